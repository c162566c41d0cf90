"""The metrics of every worker process: lag, checkpoints, dead letters and restarts, by partition.

Counters belong to the process and start at zero with it, as Prometheus expects. They continue over a revocation and a
new assignment of the same partition; in between, their series are absent.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kinstream.streams.agents.machine import FATE_PREFIX
from kinstream.streams.errors import Reason

_LABELS: Final = ("agent", "topic", "partition")
#: Each count of `kinstream.streams.agents.machine.COUNTED`, its series and its help text.
COUNTED: Final = {
    "applied": ("records_applied", "Records applied to the state."),
    "duplicates": (
        "records_duplicate",
        "Records ignored because their identity, or a later one, was applied.",
    ),
    "adopted": (
        "records_adopted",
        "Records taken as the beginning of a chain that began before this log or state, or after an accepted gap.",
    ),
    "stale_epoch": (
        "records_stale_epoch",
        "Records ignored because their space was reset or deleted since.",
    ),
    "not_followed": (
        "records_not_followed",
        "Records ignored because this agent does not follow their emitter or kind, "
        "or because of a source's `when`.",
    ),
    "redriven": ("records_redriven", "Dead letters applied again at an operator's request."),
    "redrives_ignored": (
        "redrives_ignored",
        "Redrives ignored: applied before, or never refused by this agent.",
    ),
    "loads_forgotten": (
        "loads_forgotten",
        "Loads that a space no longer remembers, because it has used too many others since.",
    ),
    "scaler_renewals": (
        "scaler_renewals",
        "Scalers of learners made anew because the features of a space had left the old scale.",
    ),
}
#: Reasons by name; any other reason is counted as the last of them.
_REASONS: Final = (*(reason.value for reason in Reason), "other")


@dataclass(slots=True)
class PartitionGauges:
    """One input partition as its worker sees it. None means unknown, and is not shown.

    Parameters
    ----------
    position : offset to read next.
    log_start, log_end : first offset of the log, and its last stable offset.
    checkpoint_offset, checkpoint_bytes : of the newest checkpoint.
    covered_at : by `WorkerGauges.clock`, when a checkpoint was last known to hold all that was applied:
        written, or found to be up to date. So an idle partition that its worker checks is never old.
    retention_seconds : how long the topic keeps a record; None if it keeps records for ever, or if that is not known.
    headroom_seconds : until records that were not read yet may be deleted.
    parked : the partition waits for `kinstream skip`.
    counts, dead_letters, read_bytes, kernel_busy_seconds : counters of this process.
    """

    position: int | None = None
    log_start: int | None = None
    log_end: int | None = None
    checkpoint_offset: int | None = None
    checkpoint_bytes: int | None = None
    covered_at: float | None = None
    retention_seconds: float | None = None
    headroom_seconds: float | None = None
    parked: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    kernel_busy_seconds: float = 0.0
    _counts_before: Counter[str] = field(default_factory=Counter)
    _dead_before: Counter[str] = field(default_factory=Counter)

    @property
    def lag(self) -> int | None:
        """Offsets between the position and the last stable offset."""
        if self.position is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.position)

    def begin(self, counts: Mapping[str, int], dead: Mapping[str, int]) -> None:
        """Set the counts of a machine at its restore; only later counts are shown."""
        self._counts_before, self._dead_before = Counter(counts), Counter(dead)

    def take(self, counts: Mapping[str, int], dead: Mapping[str, int]) -> None:
        """Add the counts of a machine since the last call."""
        if dict(counts) == dict(self._counts_before) and dict(dead) == dict(self._dead_before):
            # Every second, for every partition: counting nothing would take most of the time of an idle process.
            return
        self.counts.update({name: number - self._counts_before[name] for name, number in counts.items()})
        self.dead_letters.update({name: number - self._dead_before[name] for name, number in dead.items()})
        self.begin(counts, dead)

    def copy(self) -> PartitionGauges:
        """A copy that later changes do not affect."""
        return replace(self, counts=Counter(self.counts), dead_letters=Counter(self.dead_letters))

    def reassigned(self) -> PartitionGauges:
        """The same counters, nothing else known."""
        return PartitionGauges(
            counts=self.counts,
            dead_letters=self.dead_letters,
            read_bytes=self.read_bytes,
            kernel_busy_seconds=self.kernel_busy_seconds,
        )


class WorkerGauges:
    """The partitions of one agent in this process. Safe to use from any thread.

    Parameters
    ----------
    agent : role and name, such as "learner:opml".
    restarts : how often the supervisor has restarted this worker.
    checkpoint_age_limit_seconds : above this age of a checkpoint the worker is not ready; if None, the limit is not
        shown.
    clock : seconds, the clock of `PartitionGauges.covered_at`.

    Attributes
    ----------
    silent_since : by `clock`, when the brokers stopped answering; None while they answer.
    partitions_added : by topic, partitions added since the generation began.
    """

    def __init__(
        self,
        agent: str,
        *,
        restarts: int = 0,
        checkpoint_age_limit_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agent = agent
        self.restarts = restarts
        self.checkpoint_age_limit_seconds = checkpoint_age_limit_seconds
        self.silent_since: float | None = None
        self.partitions_added: Mapping[str, int] = {}
        self.clock = clock
        self._lock = threading.Lock()
        self._owned: dict[tuple[str, int], PartitionGauges] = {}
        self._away: dict[tuple[str, int], PartitionGauges] = {}

    def assign(self, topic: str, partition: int) -> None:
        """Show a partition. Its age counts from now until the first checkpoint is known."""
        with self._lock:
            before = self._owned.pop((topic, partition), None) or self._away.pop((topic, partition), None)
            gauges = before.reassigned() if before is not None else PartitionGauges()
            gauges.covered_at = self.clock()
            self._owned[topic, partition] = gauges

    def revoke(self, topic: str, partition: int) -> None:
        """Stop showing a partition. It may be one that is not owned."""
        with self._lock:
            gauges = self._owned.pop((topic, partition), None)
            if gauges is not None:
                self._away[topic, partition] = gauges

    @contextmanager
    def edit(self, topic: str, partition: int) -> Iterator[PartitionGauges]:
        """The partition's gauges, for changing several at once; keep the block short, it holds the lock.

        A late change to a revoked partition reaches its counters and is not shown.
        """
        with self._lock:
            key = (topic, partition)
            yield self._owned.get(key) or self._away.setdefault(key, PartitionGauges())

    def snapshot(self) -> dict[tuple[str, int], PartitionGauges]:
        """Copies of the owned partitions, in order."""
        with self._lock:
            return {key: gauges.copy() for key, gauges in sorted(self._owned.items())}


class WorkerCollector(Collector):
    """Prometheus series of the agents of a process.

    Parameters
    ----------
    build : versions to show, by label; `kinstream.streams.checkpoints.manifest.versions()`.
    """

    def __init__(self, *workers: WorkerGauges, build: Mapping[str, str] | None = None) -> None:
        self._workers = workers
        self._build = dict(build or {})

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        rows = [
            ([worker.agent, topic, str(partition)], gauges, worker.clock())
            for worker in self._workers
            for (topic, partition), gauges in worker.snapshot().items()
        ]
        yield from _gauges(rows)
        yield from _counters(rows)
        restarts = CounterMetricFamily(
            "kinstream_worker_restarts",
            "Times that the supervisor has restarted this worker.",
            labels=["agent"],
        )
        for worker in self._workers:
            restarts.add_metric([worker.agent], worker.restarts)
        yield restarts
        yield from self._limits()
        yield InfoMetricFamily(
            "kinstream_build", "Versions that this process computes with.", value=self._build
        )

    def _limits(self) -> Iterator[Metric]:
        silence = GaugeMetricFamily(
            "kinstream_broker_silence_seconds",
            "Time since the brokers stopped answering this worker; 0 while they answer.",
            labels=["agent"],
        )
        limit = GaugeMetricFamily(
            "kinstream_checkpoint_age_limit_seconds",
            "Above this age of a checkpoint the worker is not ready.",
            labels=["agent"],
        )
        added = GaugeMetricFamily(
            "kinstream_topic_partitions_added",
            "Partitions added to the topic since this generation began; the agent does not use them.",
            labels=["agent", "topic"],
        )
        for worker in self._workers:
            since = worker.silent_since
            silence.add_metric([worker.agent], 0.0 if since is None else max(0.0, worker.clock() - since))
            if worker.checkpoint_age_limit_seconds is not None:
                limit.add_metric([worker.agent], worker.checkpoint_age_limit_seconds)
            for topic, number in sorted(worker.partitions_added.items()):
                added.add_metric([worker.agent, topic], number)
        yield from (silence, limit, added)


_Rows = list[tuple[list[str], PartitionGauges, float]]


def _gauges(rows: _Rows) -> Iterator[Metric]:
    values: tuple[tuple[str, str, Callable[[PartitionGauges, float], float | None]], ...] = (
        (
            "consumer_lag_records",
            "Last stable offset less this worker's own position.",
            lambda g, now: g.lag,
        ),
        (
            "consumer_position",
            "Offset that this worker reads next.",
            lambda g, now: g.position,
        ),
        (
            "log_start_offset",
            "First offset that the log still holds.",
            lambda g, now: g.log_start,
        ),
        (
            "log_end_offset",
            "Last stable offset: the offset of the next record.",
            lambda g, now: g.log_end,
        ),
        (
            "checkpoint_age_seconds",
            "Time since a checkpoint was known to hold everything applied; before the first, since assignment.",
            lambda g, now: None if g.covered_at is None else max(0.0, now - g.covered_at),
        ),
        (
            "checkpoint_offset",
            "Offset to read next by the newest checkpoint. After a crash, reading resumes there.",
            lambda g, now: g.checkpoint_offset,
        ),
        (
            "checkpoint_size_bytes",
            "Size of all files that the newest checkpoint names.",
            lambda g, now: g.checkpoint_bytes,
        ),
        (
            "retention_seconds",
            "How long the topic keeps a record. Absent if it keeps records for ever, or if that is not known.",
            lambda g, now: g.retention_seconds,
        ),
        (
            "retention_headroom_seconds",
            "Time until records that this worker has not read may be deleted, if it stopped now. Absent while that is "
            "not known.",
            lambda g, now: g.headroom_seconds,
        ),
        (
            "partition_parked",
            "1 while the partition waits for `kinstream skip`: a record has ended the worker three times.",
            lambda g, now: int(g.parked),
        ),
    )
    for name, text, value_of in values:
        family = GaugeMetricFamily(f"kinstream_{name}", text, labels=_LABELS)
        for labels, gauges, now in rows:
            value = value_of(gauges, now)
            if value is not None:
                family.add_metric(labels, value)
        yield family


def _counters(rows: _Rows) -> Iterator[Metric]:
    for count, (name, text) in COUNTED.items():
        family = CounterMetricFamily(f"kinstream_{name}", text, labels=_LABELS)
        for labels, gauges, _ in rows:
            family.add_metric(labels, gauges.counts[count])
        yield family
    read = CounterMetricFamily(
        "kinstream_read_bytes", "Bytes of the records read, keys included.", labels=_LABELS
    )
    busy = CounterMetricFamily(
        "kinstream_kernel_busy_seconds",
        "Time spent applying records; its rate is the share of one core that is used.",
        labels=_LABELS,
    )
    dead = CounterMetricFamily(
        "kinstream_dead_letters",
        "Records, or parts of them, sent to dead letters.",
        labels=[*_LABELS, "reason"],
    )
    fates = CounterMetricFamily(
        "kinstream_evidence",
        "Lists, clicks, relations and wanted constraints of a builder, by fate: used, or the reason why not.",
        labels=[*_LABELS, "fate"],
    )
    for labels, gauges, _ in rows:
        for name, number in sorted(gauges.counts.items()):
            if name.startswith(FATE_PREFIX):
                fates.add_metric([*labels, name.removeprefix(FATE_PREFIX)], number)
        read.add_metric(labels, gauges.read_bytes)
        busy.add_metric(labels, gauges.kernel_busy_seconds)
        # All reasons from the start: Prometheus sees no increase in a series that starts at 1.
        by_reason = dict.fromkeys(_REASONS, 0)
        for reason, number in gauges.dead_letters.items():
            by_reason[reason if reason in by_reason else _REASONS[-1]] += number
        for reason, number in by_reason.items():
            dead.add_metric([*labels, reason], number)
    yield from (read, busy, dead, fates)


def registry(*collectors: Collector) -> CollectorRegistry:
    """A registry of these collectors and of the process itself: memory, CPU, file descriptors, garbage."""
    made = CollectorRegistry()
    for collector in collectors:
        made.register(collector)
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made
