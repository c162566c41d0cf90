"""Ends a process that has work and makes no progress. A restart is always safe, so ending early costs little.

It runs on its own thread and queries the brokers with its own client, so neither a stuck event loop nor a fetch that
never returns can block it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kinstream.streams.errors import AccessDenied, BrokerUnavailable, LoginRefused
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.processes.json_lines import within

log = logging.getLogger("kinstream.watchdog")

#: Brokers that are silent this long are reported; a change of leader takes less.
SILENT_SECONDS: Final = 3.0
#: Seconds between two rounds; and while no partition has something to do and the brokers answer.
ROUND_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 2.0
#: Rounds between two questions for the end of a partition that has nothing to do.
IDLE_ROUNDS: Final = 5
#: Seconds between two checks of how the group has shared out the partitions.
GROUP_LOOK_SECONDS: Final = 5.0
#: Seconds between two checks of the topic's retention; also the wait after an unanswered one.
RETENTION_LOOK_SECONDS: Final = 600.0
RETENTION_AGAIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of one partition: the client's position, and the machine's next offset."""

    position: int
    applied: int
    in_kernel: bool = False


class WatchedWorker(Protocol):
    """The interface that the watchdog checks, from its own thread."""

    def progress(self) -> Mapping[tuple[str, int], PartitionProgress]:
        """Partitions that should move: owned, restored and not parked."""

    def rebalancing_since(self) -> float | None:
        """Monotonic time at which the running rebalance began."""

    def restoring_since(self) -> float | None:
        """Monotonic time at which the take-over of partitions in progress began."""

    def loop_seen_at(self) -> float:
        """Monotonic time of the event loop's last sign of life."""


class Watchdog:
    """Calls `on_stall` once with a sentence that names what has stopped.

    Parameters
    ----------
    stall_seconds : how long a partition with lag, or the event loop, may make no progress.
    rebalance_seconds : how long a rebalance may last.
    restore_seconds : how long it may take to take over the assigned partitions; none of them makes progress meanwhile.
    group : consumer group, topic and number of partitions that its members must share among them; None to skip this
        check. A leader that read the metadata while a broker was restarting may leave the topic unassigned, and
        nothing in the clients repairs that.
    """

    def __init__(
        self,
        watched: WatchedWorker,
        cluster: Cluster,
        *,
        stall_seconds: float,
        rebalance_seconds: float,
        restore_seconds: float,
        on_stall: Callable[[str], None],
        group: tuple[str, str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched = watched
        self._cluster = cluster
        self._stall_seconds = stall_seconds
        self._rebalance_seconds = rebalance_seconds
        self._restore_seconds = restore_seconds
        self._on_stall = on_stall
        self._group = group
        self._nobodys: frozenset[int] = frozenset()
        #: Number of checks in a row that the brokers refused to answer.
        self._refusals = self._rounds = 0
        self._idle = False
        self._group_look_at = clock() + GROUP_LOOK_SECONDS
        self._clock = clock
        self._stop = threading.Event()
        self._moved: dict[tuple[str, int], tuple[PartitionProgress, float]] = {}
        #: Last stable offset of each partition, at the brokers' last answer.
        self.ends: dict[tuple[str, int], int] = {}
        self.starts: dict[tuple[str, int], int] = {}
        #: How long the group's topic keeps a record, in seconds; None if for ever or not known.
        self.retention: float | None = None
        self._retention_look_at = clock()
        #: By `clock`, when the brokers stopped answering; None while they answer.
        self.silent_since: float | None = None
        self._reported = False

    def start(self) -> None:
        threading.Thread(target=within(self._run), name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def period(self) -> float:
        """Seconds until the next round."""
        return min(IDLE_SECONDS if self._idle else ROUND_SECONDS, self._stall_seconds / 4)

    def _run(self) -> None:
        before = self._clock()
        while not self._stop.wait(period := self.period):
            now = self._clock()
            # A process that was stopped and continued has made no progress, through no fault of its own.
            suspended, before = now - before > period + self._stall_seconds / 2, now
            verdict = None if suspended else self._verdict()
            before = self._clock()
            if verdict is not None and not self._stop.is_set():
                self._on_stall(verdict)
                return

    def _verdict(self) -> str | None:
        """One round. The brokers may refuse it once; after two refusals in a row the process ends, and a start reports
        why."""
        try:
            found = self.look()
        except (LoginRefused, AccessDenied) as error:
            self._refusals += 1
            return str(error) if self._refusals > 1 else None
        self._refusals = 0
        return found

    def look(self) -> str | None:
        """One round: a sentence if something has stopped that should not.

        Raises
        ------
        LoginRefused, AccessDenied : the brokers refuse this client's requests.
        """
        now, self._idle = self._clock(), False
        silent = now - self._watched.loop_seen_at()
        if silent > self._stall_seconds:
            return f"the event loop has not answered for {silent:.0f} s"
        began = self._watched.rebalancing_since()
        if began is not None and now - began > self._rebalance_seconds:
            return f"a rebalance has lasted {now - began:.0f} s"
        restoring = self._watched.restoring_since()
        if restoring is not None and now - restoring > self._restore_seconds:
            return f"taking over partitions has lasted {now - restoring:.0f} s"
        if began is None and now >= self._retention_look_at:
            self._look_at_retention(now)
        if began is None and now >= self._group_look_at:
            self._group_look_at = now + GROUP_LOOK_SECONDS
            left = self._left_to_nobody()
            if left is not None:
                return left
        progress = self._watched.progress()
        self._moved = {place: seen for place, seen in self._moved.items() if place in progress}
        self._rounds += 1
        idle = began is None and restoring is None
        for number, (place, at) in enumerate(progress.items(), self._rounds):
            before = self._moved.get(place)
            moves = before is None or before[0] != at or self.ends.get(place) != at.position
            if before is None or before[0] != at:
                self._moved[place] = (at, now)
            # In every round a part of those that stand still at their ends: the brokers' silence is noticed at once.
            if moves or number % min(IDLE_ROUNDS, len(progress)) == 0:
                self._ask(place)
            end = self.ends.get(place)
            lag = 0 if end is None else end - at.position
            idle = idle and not moves and lag <= 0 and not at.in_kernel
            if restoring is not None or (lag <= 0 and not at.in_kernel):
                # Idle: the time limit starts when there is work to do and the flow runs.
                self._moved[place] = (at, now)
            still = now - self._moved[place][1]
            if still > self._stall_seconds and began is None:
                what = "the kernel does not return" if at.in_kernel else f"{lag} records wait"
                return f"{place[0]} partition {place[1]} has not moved for {still:.0f} s: {what}"
        self._idle = idle and self.silent_since is None
        return None

    def _look_at_retention(self, now: float) -> None:
        if self._group is None:
            return
        self._retention_look_at = now + RETENTION_LOOK_SECONDS
        try:
            self.retention = self._cluster.retention_seconds(self._group[1])
        except (AccessDenied, BrokerUnavailable):
            # A missing permission does not show whether the brokers answer.
            self._retention_look_at = now + RETENTION_AGAIN_SECONDS

    def _answered(self, error: BrokerUnavailable | None) -> None:
        """Note whether the brokers answer, and log once that they stopped and once that they answer again."""
        now = self._clock()
        if error is None:
            if self._reported:
                log.info("the brokers answer again, after %.0f s", now - (self.silent_since or now))
            self.silent_since, self._reported = None, False
        elif self.silent_since is None:
            self.silent_since = now
        elif not self._reported and now - self.silent_since >= SILENT_SECONDS:
            self._reported = True
            log.warning("%s", error)

    def _left_to_nobody(self) -> str | None:
        if self._group is None:
            return None
        group, topic, partitions = self._group
        try:
            found = self._cluster.nobodys(group, topic, partitions)
            self._answered(None)
        except BrokerUnavailable as error:
            found = frozenset()
            self._answered(error)
        # Twice in a row: a stable group may be about to admit a member.
        still, self._nobodys = found & self._nobodys, found
        if not still:
            return None
        return f"group {group} has assigned partitions {sorted(still)} of {topic} to no member"

    def _ask(self, place: tuple[str, int]) -> None:
        try:
            self.starts[place], self.ends[place] = self._cluster.bounds(*place)
            self._answered(None)
        except BrokerUnavailable as error:
            self._answered(error)
            # Without an answer there is no verdict: an outage must not end workers that would survive it.
            self._moved[place] = (PartitionProgress(-1, -1), self._clock())
