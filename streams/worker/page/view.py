"""The page of a worker: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.store import versions
from kinstream.streams.processes.supervisor import RESTARTS, supervisor
from kinstream.streams.records.message import PartitionName
from kinstream.streams.settings import Settings
from kinstream.streams.traces.exporter import Exporter
from kinstream.streams.worker.page.gauges import WorkerCollector, WorkerGauges, registry
from kinstream.streams.worker.page.server import Check, HttpServer, SharedHealth, worker_health
from kinstream.streams.worker.page.traces import TraceCollector

#: Rates for the retention headroom are measured over this time, by samples this far apart. The log's start moves by
#: whole segments: over a shorter time one such step would look like a high rate.
RATE_SECONDS: Final = 3600.0
LOOK_SECONDS: Final = 10.0


class ShownPartition(Protocol):
    """A partition as the page reads it. The view writes the last three: values already shown."""

    @property
    def runner(self) -> PartitionRunner: ...

    @property
    def catching_up(self) -> int:
        """Records to apply until everything is emitted again that a killed run may have emitted."""

    @property
    def received_at(self) -> float | None:
        """The log's own time of the record last received, in seconds since the epoch."""

    @property
    def read_bytes(self) -> int: ...

    bytes_shown: int
    busy_shown: float
    #: Monotonic time at which a checkpoint was last known to hold all that was applied.
    covered_at: float


class ShownLog(Protocol):
    """The watchdog's view of the log and the brokers."""

    starts: dict[PartitionName, int]
    ends: dict[PartitionName, int]
    retention: float | None
    silent_since: float | None


class ShownTopics(Protocol):
    """The watch of the agent's topics."""

    @property
    def added(self) -> dict[str, int]:
        """Partitions that a topic has beyond those of the birth record."""

    @property
    def message(self) -> str | None: ...


class ShownWorker(Protocol):
    """The interface of a worker for its page."""

    @property
    def spec(self) -> AgentSpec: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def generation_number(self) -> int: ...

    @property
    def traces(self) -> Exporter | None:
        """The exporter of its spans, if it has one."""

    @property
    def owned(self) -> Mapping[PartitionName, ShownPartition]: ...

    @property
    def parked(self) -> Mapping[PartitionName, int]:
        """Offsets of parked partitions."""

    @property
    def watchdog(self) -> ShownLog: ...

    @property
    def topics(self) -> ShownTopics: ...

    @property
    def assigned(self) -> bool:
        """Whether all partitions of the last assignment have been taken over."""

    def rebalancing_since(self) -> float | None: ...

    def loop_seen_at(self) -> float: ...

    def polled_at(self) -> float | None: ...

    def position(self, place: PartitionName, applied: int) -> int:
        """The offset that a partition applies next, where `applied` is its machine's."""


class Headroom:
    """Time until records that a worker has not read yet may be deleted.

    It is the shorter of two times. By age: the oldest unread record is no older than the last record read, nor than the
    moment when nothing was left to read; the rest of its retention is left if the worker stopped now. By rate: when the
    log's start overtakes the position, if both continue as in the last hour, for whatever cause.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()
        self._caught_up_at = -math.inf

    def seconds(
        self,
        now: float,
        start: int,
        position: int,
        end: int,
        *,
        retention: float | None = None,
        read_at: float | None = None,
    ) -> float | None:
        """None while no deletion is in sight: no retention is known, and the start does not approach the position.

        Parameters
        ----------
        now, read_at : seconds since the epoch; `read_at` is the log's time of the last record read, None before it.
        start, position, end : first offset of the log, the one to be read next, and the last stable one.
        retention : seconds for which the topic keeps a record.
        """
        if position >= end:
            self._caught_up_at = now
            self._seen.clear()
            return retention
        if self._caught_up_at > now or (self._seen and self._seen[-1][0] > now):
            # The clock was ahead, and was set back: what it has dated would count until that time comes.
            self._caught_up_at = min(self._caught_up_at, now)
            self._seen.clear()
        left = [
            some
            for some in (self._by_age(now, retention, read_at), self._by_rate(now, start, position))
            if some is not None
        ]
        return max(0.0, min(left)) if left else None

    def _by_age(self, now: float, retention: float | None, read_at: float | None) -> float | None:
        youngest = max(self._caught_up_at, -math.inf if read_at is None else read_at)
        if retention is None or youngest == -math.inf:
            return None
        return min(retention, retention - (now - youngest))

    def _by_rate(self, now: float, start: int, position: int) -> float | None:
        if not self._seen or now - self._seen[-1][0] >= LOOK_SECONDS:
            self._seen.append((now, start, position))
        while self._seen[0][0] < now - RATE_SECONDS:
            self._seen.popleft()
        then, first_start, first_position = self._seen[0]
        gained = (start - first_start) - (position - first_position)
        if gained <= 0 or now <= then:
            return None
        return (position - start) * (now - then) / gained


class WorkerView:
    """Keeps the gauges of a worker up to date. `refresh` runs on the event loop.

    Parameters
    ----------
    forget : called when what the page shows has changed hands.
    """

    def __init__(self, worker: ShownWorker, forget: Callable[[], None]) -> None:
        self._worker = worker
        self._forget = forget
        settings = worker.settings
        age_limit = settings.checkpoints.interval_seconds * 6 + 30
        self.gauges = WorkerGauges(
            worker.spec.application,
            restarts=int(os.environ.get(RESTARTS, "0")),
            checkpoint_age_limit_seconds=age_limit,
        )
        self._headroom: dict[PartitionName, Headroom] = {}
        self.health = worker_health(
            loop_age=lambda: time.monotonic() - worker.loop_seen_at(),
            assigned=lambda: worker.assigned,
            restored=lambda: worker.assigned and worker.rebalancing_since() is None,
            poll_age=lambda: _age(worker.polled_at()),
            checkpoint_age=lambda: self._oldest(worker.owned),
            catching_up=lambda: sum(owned.catching_up for owned in list(worker.owned.values())),
            loop_limit_seconds=settings.worker.stall_seconds,
            poll_limit_seconds=max(10.0, settings.worker.session_timeout_seconds * 2),
            checkpoint_limit_seconds=age_limit,
            more=[
                Check(
                    "topic_partitions_added",
                    lambda: sum(worker.topics.added.values()),
                    limit=0,
                    message=lambda: worker.topics.message,
                )
            ],
            about={
                "agent": worker.spec.application,
                "generation": worker.generation_number,
                **_process(),
            },
        )

    def _oldest(self, owned: Mapping[PartitionName, ShownPartition]) -> float:
        now = time.monotonic()
        return max((now - o.covered_at for o in list(owned.values())), default=0.0)

    def assign(self, place: PartitionName, owned: ShownPartition) -> None:
        """Show a partition that has been restored."""
        machine = owned.runner.machine
        self.gauges.assign(*place)
        with self.gauges.edit(*place) as g:
            g.begin(machine.counts, machine.dead)

    def revoke(self, place: PartitionName) -> None:
        """Stop showing it."""
        self.gauges.revoke(*place)
        self._headroom.pop(place, None)
        # Another worker shows it from now on.
        self._forget()

    def refresh(self) -> None:
        """Bring every owned partition up to date."""
        worker = self._worker
        self.gauges.silent_since = worker.watchdog.silent_since
        self.gauges.partitions_added = worker.topics.added
        for place, offset in worker.parked.items():
            if place not in self.gauges.snapshot():
                self.gauges.assign(*place)
            with self.gauges.edit(*place) as g:
                g.parked, g.position, g.covered_at = True, offset, self.gauges.clock()
                g.log_start, g.log_end = worker.watchdog.starts.get(place), worker.watchdog.ends.get(place)
        for place, owned in worker.owned.items():
            self._refresh(place, owned, worker.watchdog.starts.get(place), worker.watchdog.ends.get(place))

    def _refresh(
        self, place: PartitionName, owned: ShownPartition, start: int | None, end: int | None
    ) -> None:
        runner, now = owned.runner, time.monotonic()
        machine = runner.machine
        owned.covered_at = max(owned.covered_at, runner.checkpointed_at) if runner.dirty else now
        position = self._worker.position(place, machine.next_offset)
        retention = self._worker.watchdog.retention
        headroom = None
        if start is not None and end is not None:
            tracker = self._headroom.setdefault(place, Headroom())
            headroom = tracker.seconds(
                time.time(), start, position, end, retention=retention, read_at=owned.received_at
            )
        with self.gauges.edit(*place) as g:
            g.position = position
            g.log_start, g.log_end, g.retention_seconds = start, end, retention
            g.headroom_seconds = headroom
            g.covered_at = owned.covered_at
            g.kernel_busy_seconds += runner.busy_seconds - owned.busy_shown
            owned.busy_shown = runner.busy_seconds
            g.read_bytes += owned.read_bytes - owned.bytes_shown
            owned.bytes_shown = owned.read_bytes
            if runner.manifest is not None:
                g.checkpoint_offset = runner.manifest.offset
                g.checkpoint_bytes = runner.checkpoint_bytes
            g.take(dict(machine.counts), dict(machine.dead))


class WorkerPage:
    """The page of a process: of its worker, or of all its workers.

    Parameters
    ----------
    listener : a socket that is already bound to the address of the settings.
    """

    def __init__(
        self, workers: Sequence[ShownWorker], settings: Settings, listener: socket.socket | None
    ) -> None:
        self.views = [WorkerView(worker, self._forget) for worker in workers]
        health = (
            self.views[0].health
            if len(workers) == 1
            else SharedHealth([view.health for view in self.views], _process())
        )
        exporters = [worker.traces for worker in workers if worker.traces is not None]
        self._server = HttpServer(
            health,
            registry(
                WorkerCollector(*(view.gauges for view in self.views), build=versions()),
                *([TraceCollector(*exporters)] if exporters else []),
                *(collector for worker in workers for collector in worker.spec.collectors),
            ),
            host=settings.worker.http_host,
            port=settings.worker.http_port,
            listener=listener,
        )
        self.url = self._server.url

    def _forget(self) -> None:
        self._server.metrics.forget()

    def close(self) -> None:
        self._server.close()


def _process() -> dict[str, int | None]:
    return {"pid": os.getpid(), "supervisor": supervisor()}


def _age(at: float | None) -> float | None:
    return None if at is None else time.monotonic() - at
