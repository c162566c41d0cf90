"""The Prometheus metrics of the metrics agent, for the partitions that it owns.

Every series belongs to one partition and has its number as a label. A space is on one partition, so no series is split,
and `other` of one partition does not change when the worker gains or loses another.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.monitoring.held_out_series import held_out_series
from kinstream.monitoring.tallies import OTHER, ExactShare, Row, Snapshot, Tallies, mistakes, utilised
from kinstream.streams.records.values import Outcome

#: Upper bounds of the delay histogram, in seconds.
DELAY_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: An event older than this is loaded history and shows no delay of this system.
OLDEST_DELAY_SECONDS: Final = 300.0
#: Why a delay was not observed.
SKIPPED: Final = ("replay", "backfill", "future")
#: Experts or modalities shown by name for one model: the first by name. The others are summed.
MAX_EXPERTS: Final = 32

_LABELS: Final = ("partition", "space", "learner")
_COUNTERS: Final = {
    "seen": "Constraints that a learner accepted (rejected ones excluded).",
    "scored": "Accepted constraints with a defined prediction, except the split ones: the denominator of the mistake "
    "rate.",
    "mistakes": "Scored constraints that the model got wrong (ties included) before it learned from their event.",
    "utilised": "Accepted constraints that changed the model.",
    "clipped": "Updates that the guard against divergence shortened.",
    "rejected": "Constraints refused because they, or the model after them, were not finite, or because the guard "
    "forbids the step.",
    "degenerate": "Accepted constraints without a direction to learn from, such as a zero difference.",
    "ignored": "Constraints of a kind or rule that the learner does not learn from.",
    "held_out": "Constraints of held-out events, which are judged and never learned. They are in no other count.",
    "split_scored": "Accepted constraints with a defined prediction whose event began in an earlier block. Every "
    "mistake rate excludes them.",
    "split_mistakes": "Split constraints that the model got wrong (ties included) before it learned from their block.",
}
_BY_RULE: Final = {
    "seen": "Accepted constraints by the rule that made them.",
    "scored": "Scored constraints by the rule that made them.",
    "mistakes": "Mistakes by the rule that made the constraint.",
    "utilised": "Utilised constraints by the rule that made them.",
}
_RATIOS: Final[tuple[tuple[str, str, Callable[[Row], ExactShare]], ...]] = (
    (
        "online_mistake_rate",
        "Mistakes / scored since the beginning. Absent while nothing was scored.",
        lambda row: mistakes(row.totals),
    ),
    (
        "online_mistake_window_rate",
        "Mistakes / scored over the newest blocks of the current model. Rises when the stream drifts.",
        lambda row: row.mistake_window,
    ),
    (
        "constraint_utilisation_ratio",
        "Utilised / accepted since the beginning. Absent while nothing was accepted.",
        lambda row: utilised(row.totals),
    ),
    (
        "constraint_utilisation_window_ratio",
        "Utilised / accepted over the newest blocks of the current model. Near 0: the model has stopped learning.",
        lambda row: row.utilisation_window,
    ),
)


class DelayHistogram:
    """Event to metric, by learner. Of this process only: a restart begins at zero, as Prometheus expects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._skipped = dict.fromkeys(SKIPPED, 0)

    def observe(self, learner: str, delay_seconds: float, *, live: bool = True) -> None:
        """Count a delay; one that is not a delay of the running system is counted as skipped."""
        with self._lock:
            if not live:
                self._skipped["replay"] += 1
            elif delay_seconds > OLDEST_DELAY_SECONDS:
                self._skipped["backfill"] += 1
            elif delay_seconds < 0:
                self._skipped["future"] += 1
            else:
                counts = self._counts.setdefault(learner, [0] * (len(DELAY_BUCKETS) + 1))
                counts[bisect_left(DELAY_BUCKETS, delay_seconds)] += 1
                self._sums[learner] = self._sums.get(learner, 0.0) + delay_seconds

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            counts = {learner: list(accumulate(some)) for learner, some in self._counts.items()}
            sums, skipped = dict(self._sums), dict(self._skipped)
        histogram = HistogramMetricFamily(
            "kinstream_event_to_metric_delay_seconds",
            "Time from an event's own time to the counting of its outcome, of outcomes that are counted live.",
            labels=["learner"],
        )
        bounds = [*(str(bound) for bound in DELAY_BUCKETS), "+Inf"]
        for learner, cumulated in counts.items():
            histogram.add_metric([learner], list(zip(bounds, cumulated, strict=True)), sums[learner])
        yield histogram
        left_out = CounterMetricFamily(
            "kinstream_event_to_metric_delay_skipped",
            "Outcomes excluded from the delay histogram: replay (catching up after a start), backfill (events older "
            f"than {OLDEST_DELAY_SECONDS:.0f} s), future (events ahead of this clock).",
            labels=["reason"],
        )
        for reason, number in skipped.items():
            left_out.add_metric([reason], number)
        yield left_out


class _Owned:
    def __init__(self, tallies: Tallies, live: bool) -> None:
        self.tallies = tallies
        self.live = live
        self.lock = threading.Lock()


class OwnedTallies:
    """The tallies of the partitions that this worker owns now. Safe to read while another thread applies.

    A partition is shown once it is live. Before a crash its counters were higher than in its checkpoint; shown too
    early they would seem to fall, which Prometheus takes for a reset, and it would count them again.
    """

    def __init__(self, delays: DelayHistogram | None = None, clock: Callable[[], float] = time.time) -> None:
        self.delays = delays or DelayHistogram()
        self._clock = clock
        self._lock = threading.Lock()
        self._owned: dict[int, _Owned] = {}

    def assign(self, partition: int, tallies: Tallies, *, live: bool = False) -> None:
        """Own a partition; it is `live` at once only if nothing of it was ever shown: at its birth offset."""
        with self._lock:
            self._owned[partition] = _Owned(tallies, live)

    def go_live(self, partition: int) -> None:
        """Show the partition: it has reached the last stable offset that the log had when it was assigned."""
        with self._lock:
            self._owned[partition].live = True

    def revoke(self, partition: int) -> None:
        """Stop showing the partition. It may be one that is not owned."""
        with self._lock:
            self._owned.pop(partition, None)

    def apply(self, partition: int, outcome: Outcome, log_ms: int = 0) -> bool:
        """Count an outcome on an owned partition; False if `Tallies.apply` returns False.

        Raises
        ------
        BadRecord : as `Tallies.apply`.
        KeyError : the partition is not owned.
        """
        with self._lock:
            owned = self._owned[partition]
        with owned.lock:
            applied = owned.tallies.apply(outcome, log_ms)
        if applied:
            self.delays.observe(outcome.learner, self._clock() - outcome.time_ms / 1000, live=owned.live)
        return applied

    def forget(self, partition: int, space: str, learner: str) -> None:
        """The learner's space was deleted: its series end, and counts under `other` stay there."""
        with self._lock:
            owned = self._owned[partition]
        with owned.lock:
            owned.tallies.forget(space, learner)

    def snapshots(self) -> dict[int, Snapshot]:
        """Each live partition between two of its outcomes."""
        with self._lock:
            live = {number: owned for number, owned in self._owned.items() if owned.live}
        found = {}
        for number, owned in sorted(live.items()):
            with owned.lock:
                found[number] = owned.tallies.snapshot()
        with self._lock:
            return {number: found[number] for number in found if self._owned.get(number) is live[number]}


class TallyCollector(Collector):
    """Prometheus series of the owned tallies.

    Parameters
    ----------
    withholds : whether a learner of that name withholds models that are worse than the best un-learned metric.
    clock : seconds since the epoch, for the age of the models.
    """

    def __init__(
        self,
        owned: OwnedTallies,
        *,
        withholds: Callable[[str], bool] = lambda learner: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._owned = owned
        self._withholds = withholds
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        snapshots = self._owned.snapshots()
        rows = [
            ([str(number), row.space, row.learner], row) for number, s in snapshots.items() for row in s.rows
        ]
        yield from _counters(rows)
        yield from _by_rule(rows)
        yield from _ratios(rows)
        yield from held_out_series(rows, self._withholds)
        yield from self._models(rows)
        yield from self._cardinality(snapshots)
        yield from self._owned.delays.collect()

    def _models(self, rows: list[tuple[list[str], Row]]) -> Iterator[Metric]:
        step = _gauge("model_step", "Constraints that the model has accepted in its current epoch.")
        age = _gauge(
            "model_age_seconds",
            "Current time less the time of the newest event that the model has learned from. Below zero: the events' "
            "clock is ahead of this one.",
        )
        weight = _gauge(
            "expert_weight",
            f"Weight of an expert or modality in the model. The first {MAX_EXPERTS} by name; the rest are "
            f"summed as {OTHER}.",
            "expert",
        )
        for labels, row in rows:
            if row.step is not None:
                step.add_metric(labels, row.step)
            if row.time_ms is not None:
                age.add_metric(labels, self._clock() - row.time_ms / 1000)
            for expert, value in _bounded(row.weights).items():
                weight.add_metric([*labels, expert], value)
        yield from (step, age, weight)

    def _cardinality(self, snapshots: dict[int, Snapshot]) -> Iterator[Metric]:
        listed = GaugeMetricFamily(
            "kinstream_spaces_listed", "Spaces of the partition that are shown by name.", labels=["partition"]
        )
        unlisted = GaugeMetricFamily(
            "kinstream_spaces_unlisted",
            f"Spaces of the partition that are not shown by name; their counts are added to the space {OTHER}.",
            labels=["partition"],
        )
        for number, snapshot in snapshots.items():
            listed.add_metric([str(number)], snapshot.listed)
            unlisted.add_metric([str(number)], snapshot.unlisted)
        yield from (listed, unlisted)


def _counters(rows: list[tuple[list[str], Row]]) -> Iterator[Metric]:
    for name, text in _COUNTERS.items():
        family = CounterMetricFamily(f"kinstream_constraints_{name}", text, labels=_LABELS)
        for labels, row in rows:
            family.add_metric(labels, getattr(row.totals, name))
        yield family
    loss = CounterMetricFamily("kinstream_loss", "Sum of the losses before each update.", labels=_LABELS)
    for labels, row in rows:
        loss.add_metric(labels, row.totals.loss_sum)
    yield loss


def _by_rule(rows: list[tuple[list[str], Row]]) -> Iterator[Metric]:
    for name, text in _BY_RULE.items():
        family = CounterMetricFamily(f"kinstream_rule_constraints_{name}", text, labels=[*_LABELS, "rule"])
        for labels, row in rows:
            for rule, counts in row.by_rule.items():
                family.add_metric([*labels, rule], getattr(counts, name))
        yield family


def _ratios(rows: list[tuple[list[str], Row]]) -> Iterator[Metric]:
    for name, text, part_of in _RATIOS:
        family = _gauge(name, text)
        for labels, row in rows:
            ratio = part_of(row).ratio
            if ratio is not None:
                family.add_metric(labels, ratio)
        yield family
    scored = _gauge(
        "online_mistake_window_constraints", "Scored constraints in the window of the mistake rate."
    )
    seen = _gauge(
        "constraint_utilisation_window_constraints", "Accepted constraints in the utilisation window."
    )
    for labels, row in rows:
        scored.add_metric(labels, row.mistake_window.whole)
        seen.add_metric(labels, row.utilisation_window.whole)
    yield from (scored, seen)


def _gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"kinstream_{name}", text, labels=[*_LABELS, *more])


def _bounded(weights: dict[str, float]) -> dict[str, float]:
    names = [name for name in sorted(weights) if name != OTHER]
    shown = {name: weights[name] for name in names[:MAX_EXPERTS]}
    if len(shown) < len(weights):
        shown[OTHER] = sum(weight for name, weight in weights.items() if name not in shown)
    return shown
