"""What a worker shows of itself: `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streams.checkpoint import versions
from streams.http import HttpServer, worker_health
from streams.owned import Owned, Place
from streams.supervisor import RESTARTS
from streams.worker_metrics import WorkerCollector, WorkerGauges, registry

if TYPE_CHECKING:
    from streams.worker import Worker

#: Rates for the retention headroom are measured over so long.
RATE_SECONDS: Final = 300.0


class Headroom:
    """When the log's start would overtake a position, if both go on as they did lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def seconds(self, now: float, log_start: int, position: int) -> float | None:
        """None while the start does not gain on the position."""
        self._seen.append((now, log_start, position))
        while self._seen[0][0] < now - RATE_SECONDS:
            self._seen.popleft()
        then, start, place = self._seen[0]
        gained = (log_start - start) - (position - place)
        if gained <= 0 or now <= then:
            return None
        return max(0.0, (position - log_start) * (now - then) / gained)


class WorkerView:
    """Keeps the gauges of a worker up to date and serves them. `refresh` runs on the event loop."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.gauges = WorkerGauges(worker.spec.application, restarts=int(os.environ.get(RESTARTS, "0")))
        self._headroom: dict[Place, Headroom] = {}
        settings = worker.settings
        health = worker_health(
            loop_age=lambda: time.monotonic() - worker.loop_seen_at(),
            assigned=lambda: worker.assigned,
            restored=lambda: worker.assigned and worker.rebalancing_since() is None,
            poll_age=lambda: _age(worker.polled_at()),
            checkpoint_age=lambda: self._oldest(worker.owned),
            loop_limit_seconds=settings.worker.stall_seconds,
            poll_limit_seconds=max(10.0, settings.worker.session_timeout_seconds * 2),
            checkpoint_limit_seconds=settings.checkpoints.interval_seconds * 6 + 30,
        )
        collector = WorkerCollector(self.gauges, build=versions())
        self._server = HttpServer(
            health,
            registry(collector, *worker.spec.collectors),
            host=settings.worker.http_host,
            port=settings.worker.http_port,
        )
        self.url = self._server.url

    def _oldest(self, owned: Mapping[Place, Owned]) -> float:
        now = time.monotonic()
        return max((now - o.covered_at for o in list(owned.values())), default=0.0)

    def assign(self, place: Place, owned: Owned) -> None:
        """Show a partition that has been restored."""
        machine = owned.runner.machine
        self.gauges.assign(*place)
        with self.gauges.edit(*place) as g:
            g.begin(machine.counts, machine.dead)

    def revoke(self, place: Place) -> None:
        """Show it no more."""
        self.gauges.revoke(*place)
        self._headroom.pop(place, None)

    def refresh(self) -> None:
        """Bring every owned partition up to date."""
        worker = self._worker
        for place, offset in worker.parked.items():
            if place not in self.gauges.snapshot():
                self.gauges.assign(*place)
            with self.gauges.edit(*place) as g:
                g.parked, g.position, g.covered_at = True, offset, self.gauges.clock()
                g.log_start, g.log_end = worker.watchdog.starts.get(place), worker.watchdog.ends.get(place)
        for place, owned in worker.owned.items():
            self._refresh(place, owned, worker.watchdog.starts.get(place), worker.watchdog.ends.get(place))

    def _refresh(self, place: Place, owned: Owned, start: int | None, end: int | None) -> None:
        runner, now = owned.runner, time.monotonic()
        machine = runner.machine
        owned.covered_at = max(owned.covered_at, runner.checkpointed_at) if runner.dirty else now
        headroom = None
        if start is not None:
            tracker = self._headroom.setdefault(place, Headroom())
            headroom = tracker.seconds(now, start, machine.next_offset)
        with self.gauges.edit(*place) as g:
            g.position = self._worker.position(place, owned)
            g.log_start, g.log_end = start, end
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

    def close(self) -> None:
        self._server.close()


def _age(at: float | None) -> float | None:
    return None if at is None else time.monotonic() - at
