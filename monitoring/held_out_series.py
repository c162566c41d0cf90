"""Prometheus series of held-out events: the learned metric compared with the best un-learned one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kinstream.monitoring.tallies import Row
from kinstream.streams.records.held_out import LEARNED, HeldOut

_LABELS: Final = ("partition", "space", "learner")
#: Label of the un-learned metric with the fewest mistakes; `kinstream_held_out_best_info` names it.
BEST: Final = "best un-learned"


def held_out_series(
    rows: Iterable[tuple[list[str], Row]], withholds: Callable[[str], bool]
) -> Iterator[Metric]:
    """The series of some tallies.

    Parameters
    ----------
    withholds : whether a learner of that name withholds models that are worse.
    """
    events = CounterMetricFamily(
        "kinstream_held_out_events",
        "Events that were judged before anything of them was learned.",
        labels=_LABELS,
    )
    rate = _gauge(
        "held_out_mistake_rate",
        "Share of wrong verdicts on held-out events, the newest counting most: by the learned metric, and by the best "
        "un-learned one. Of lists, what is lost of the gain of their clicked items; absent with the difference.",
        "metric",
    )
    difference = _gauge(
        "held_out_difference",
        "Mistake rate of the learned metric on held-out events less that of the best un-learned one. Absent with fewer "
        "than 50 events. Of lists, shown if 0 is outside the bounds, or with 500 different queries if it is at least "
        "its standard error.",
    )
    bounds = {
        "low": _gauge(
            "held_out_difference_low",
            "Lower bound of a 95 % interval of that difference. Above 0: the model is worse than not learning.",
        ),
        "high": _gauge(
            "held_out_difference_high",
            "Upper bound of a 95 % interval of that difference. Below 0: learning helps.",
        ),
    }
    known = _gauge(
        "held_out_known_ratio",
        "Held-out events, or different queries of judged lists, as a share of those that are needed before there is a "
        "difference: 50 events, or 200 queries. 1 from then on.",
    )
    best = _gauge(
        "held_out_best_info",
        "1 for the un-learned metric with the fewest mistakes on held-out events.",
        "best",
    )
    withheld = _gauge(
        "model_withheld",
        "1 while the model is not announced, because it has been shown to be worse than an un-learned metric.",
    )
    for labels, row in rows:
        if row.held_out is None:
            continue
        events.add_metric(labels, row.held_out.judged)
        if not row.stands:
            continue
        known.add_metric(labels, min(1.0, row.held_out.seen / row.held_out.least))
        if row.held_out.published:
            _add_rates(labels, row.held_out, rate)
        best.add_metric([*labels, row.held_out.best], 1)
        found = row.held_out.difference
        if found is not None:
            if row.held_out.published:
                difference.add_metric(labels, found.value)
            bounds["low"].add_metric(labels, found.low)
            bounds["high"].add_metric(labels, found.high)
        withheld.add_metric(labels, float(row.held_out.worse and withholds(row.learner)))
    yield from (events, rate, difference, *bounds.values(), known, best, withheld)


def _add_rates(labels: list[str], found: HeldOut, rate: GaugeMetricFamily) -> None:
    for label, metric in ((LEARNED, LEARNED), (BEST, found.best)):
        value = found.window.rate(metric)
        if value is not None:
            rate.add_metric([*labels, label], value)


def _gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"kinstream_{name}", text, labels=[*_LABELS, *more])
