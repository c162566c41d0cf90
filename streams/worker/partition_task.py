"""A partition that a worker owns, and the task that serves it: batches to its thread, checkpoints when due."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.parking import FAULTS, Parking
from kinstream.streams.agents.machine import RecordsMissed
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.errors import KinstreamError, OutsideUnavailable
from kinstream.streams.kafka.clocks import later
from kinstream.streams.processes.json_lines import fields
from kinstream.streams.records.message import Message, PartitionName

log = logging.getLogger("kinstream.worker")

#: Runs of records that wait for a partition's task.
QUEUE_RUNS: Final = 4
#: Waiting messages that a partition applies at once on its thread: at first, at most, and as many as take this long.
BATCH: Final = 128
MOST: Final = 1_024
BATCH_SECONDS: Final = 0.1
ANNOUNCE_SECONDS: Final = 600.0
#: Longest wait before a look at what is due; and at a partition that has nothing to do. The latter ends for all
#: partitions of a process at the same moment: a process wakes seldom.
LOOK_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 5.0
#: Waits between two attempts at a record for which another system does not answer; and between two lines about it.
ATTEMPT_SECONDS: Final = (1.0, 2.0, 4.0, 8.0)
SAID_SECONDS: Final = 60.0


class Host(Protocol):
    """The interface of the worker for the task of a partition."""

    async def run_in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any: ...

    async def seek_back(self, place: PartitionName, offset: int) -> None: ...

    async def commit(self, place: PartitionName, offset: int) -> bool: ...

    def position(self, place: PartitionName, applied: int) -> int: ...

    def fail(self, error: BaseException) -> None: ...


class Owned:
    """A restored partition.

    Parameters
    ----------
    live_at : last stable offset of the log when it was taken over.
    live : whether nothing of it was ever shown on a metrics page.
    emitted_to : input offset up to which a run that was killed before may have emitted.
    careful : note each record while it is applied, until a checkpoint is past the place of a fault.
    """

    def __init__(
        self,
        place: PartitionName,
        runner: PartitionRunner,
        host: Host,
        parking: Parking,
        *,
        interval_seconds: float,
        live_at: int,
        live: bool,
        emitted_to: int,
        careful: bool,
    ) -> None:
        self.place = place
        self.runner = runner
        self.queue: asyncio.Queue[list[Message]] = asyncio.Queue(QUEUE_RUNS)
        self._clock_told = False
        #: Messages of a run that was begun.
        self._next: list[Message] = []
        self._batch = BATCH
        self.closing = False
        self.task: asyncio.Task[None] | None = None
        self.received = -1
        #: The log's own time of the record last received, in seconds since the epoch; None before the first.
        self.received_at: float | None = None
        self.read_bytes = self.bytes_shown = 0
        self.busy_shown = 0.0
        #: Monotonic time at which a checkpoint was last known to hold all that was applied.
        self.covered_at = time.monotonic()
        self._host = host
        self._parking = parking
        self._interval_seconds = interval_seconds
        self._announced_at = time.monotonic()
        self._committed = -1
        self._commit_again_at = 0.0
        self._live_at = live_at
        self._live = live
        self._emitted_to = emitted_to
        #: Records to apply until everything is emitted again that a run before this one may have emitted.
        self.catching_up = max(0, emitted_to - runner.machine.next_offset)
        #: The number of this run, for its final mark; None before it begins.
        self._run: int | None = None
        self._careful = careful
        #: Whether a fault file may still be there that progress should clear.
        self._faults = True
        #: How often a record has waited for another system, since one was applied.
        self.attempts = 0
        self._said_at = -SAID_SECONDS

    async def put(self, messages: list[Message]) -> None:
        """Hand over messages; waits while the queue is full."""
        await self.queue.put(messages)
        self.received = messages[-1].offset
        self.received_at = messages[-1].timestamp_ms / 1000
        if not self._clock_told and (text := later(messages[-1])):
            self._clock_told = True
            log.warning("%s", text)
        self.read_bytes += sum(len(message.value or b"") for message in messages)

    @property
    def waiting(self) -> bool:
        """Whether messages wait to be applied."""
        return bool(self._next) or not self.queue.empty()

    def drain(self) -> None:
        """Drop waiting messages; they will be read again."""
        self._next = []
        while not self.queue.empty():
            self.queue.get_nowait()

    def close(self) -> None:
        """End the task soon: it applies no more than the message that it is at."""
        self.closing = True
        self.drain()
        # Wakes the task.
        self.queue.put_nowait([])

    def begin_run(self, generation: Generation) -> None:
        """Record that this run may emit: from here on the last final mark does not count."""
        self._run = generation.mark_started(self.place[1])
        if self.catching_up:
            where = (*self.place, self.catching_up)
            log.info("%s partition %d: catching up with its own outputs, %d records", *where)

    def end_run(self, generation: Generation) -> None:
        """Write the final mark once everything is emitted again that an earlier run may have emitted."""
        if self._run is not None and not self.catching_up:
            partition, manifest = self.place[1], self.runner.manifest
            ended = generation.birth_offset(partition) if manifest is None else manifest.offset
            generation.mark_final(partition, ended, self._run)

    async def serve(self) -> None:
        """Work until closed. An unexpected error ends the process."""
        with fields(topic=self.place[0], partition=self.place[1]):
            await self._serve()

    async def _serve(self) -> None:
        try:
            while not self.closing:
                batch = await self._next_batch()
                if batch and not self.closing:
                    await self._work(batch)
                await self._checkpoint_if_due()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of a library is no Exception
            self._note_fault(error)
            self._host.fail(error)

    async def _next_batch(self) -> list[Message]:
        if not self._next:
            try:
                async with asyncio.timeout_at(self._look_at(asyncio.get_running_loop().time())):
                    self._next = await self.queue.get()
            except TimeoutError:
                return []
        while len(self._next) < self._batch and not self.queue.empty():
            self._next = self._next + self.queue.get_nowait()
        batch, self._next = self._next[: self._batch], self._next[self._batch :]
        return batch

    def _look_at(self, now: float) -> float:
        idle = self._live and not (self.runner.dirty or self.catching_up)
        if idle and self.runner.checkpointed_offset == self._committed:
            return aligned(now, IDLE_SECONDS)
        return now + LOOK_SECONDS

    async def _work(self, batch: list[Message]) -> None:
        begun = time.monotonic()
        try:
            work = self._work_carefully if self._careful else self.runner.work
            await self._host.run_in_thread(work, self._until_closing(batch))
        except RecordsMissed as missed:
            where = (*self.place, missed.wanted)
            log.info("%s partition %d: records were dropped on the way; reading again at %d", *where)
            self.drain()
            await self._host.seek_back(self.place, missed.wanted)
        except OutsideUnavailable as error:
            applied = self.runner.machine.next_offset
            self._next = [message for message in batch if message.offset >= applied] + self._next
            await self._wait_for(error)
        else:
            self.attempts = 0
            self._batch = next_batch(self._batch, len(batch), time.monotonic() - begun)

    async def _wait_for(self, error: OutsideUnavailable) -> None:
        """Wait before the same record is tried again; nothing of it was applied."""
        now = time.monotonic()
        if now - self._said_at >= SAID_SECONDS:
            self._said_at = now
            log.warning("%s partition %d: %s; the record waits", *self.place, error)
        until = now + ATTEMPT_SECONDS[min(self.attempts, len(ATTEMPT_SECONDS) - 1)]
        self.attempts += 1
        while not self.closing and (left := until - time.monotonic()) > 0.0:
            await asyncio.sleep(min(left, LOOK_SECONDS))

    def _until_closing(self, batch: list[Message]) -> Iterator[Message]:
        """A revocation waits for one message, not for a batch: the next owner reads the others again."""
        for message in batch:
            if self.closing:
                return
            yield message

    def _work_carefully(self, batch: Iterable[Message]) -> None:
        try:
            for message in batch:
                self._parking.enter(*self.place, message.offset)
                self.runner.work([message])
        finally:
            self._parking.leave(*self.place)

    async def _checkpoint_if_due(self) -> None:
        now = time.monotonic()
        runner, host = self.runner, self._host
        self.note_position()
        if not self._live and self._has_reached(self._live_at):
            self._live = True
            runner.machine.on_live()
        # Also if only the position has moved: what is before it may be deleted, and was no record.
        applied = runner.machine.next_offset
        position = host.position(self.place, applied)
        due = runner.dirty or position > applied
        if due and now - runner.checkpointed_at >= self._interval_seconds:
            await host.run_in_thread(runner.checkpoint, position)
            if self._faults:
                passed = (*self.place, runner.checkpointed_offset)
                self._faults = not await host.run_in_thread(self._parking.passed, *passed)
                self._careful = self._careful and self._faults
        if runner.checkpointed_offset != self._committed and now >= self._commit_again_at:
            # Also after a restart, and after a commit that an outage swallowed.
            self._commit_again_at = now + self._interval_seconds
            if await host.commit(self.place, runner.checkpointed_offset):
                self._committed = runner.checkpointed_offset
        if now - self._announced_at >= ANNOUNCE_SECONDS:
            self._announced_at = now
            await host.run_in_thread(runner.announce_all)

    def note_position(self) -> None:
        """Bring `catching_up` up to date. At 0 it stays there."""
        if not self.catching_up:
            return
        if self._has_reached(self._emitted_to):
            self.catching_up = 0
            log.info("%s partition %d: has caught up with its own outputs", *self.place)
        else:
            self.catching_up = self._emitted_to - self.runner.machine.next_offset

    def _has_reached(self, offset: int) -> bool:
        applied = self.runner.machine.next_offset
        return applied >= offset or self._host.position(self.place, applied) >= offset

    def _note_fault(self, error: BaseException) -> None:
        offset = self.runner.in_flight
        if offset is not None and not isinstance(error, KinstreamError):
            count = self._parking.record_fault(*self.place, offset, repr(error))
            where = (*self.place, offset, count, FAULTS)
            log.error("%s partition %d offset %d has ended the worker (%d of %d)", *where)
            if isinstance(error, MemoryError) and count >= FAULTS:
                # It is about the record's space: the others of the partition go on without it.
                self._parking.skip(*self.place, offset)
                log.error(
                    "%s partition %d offset %d takes too much memory: it becomes a dead letter", *where[:3]
                )


def aligned(now: float, period: float) -> float:
    """The next moment that is a multiple of a period, in seconds."""
    return (now // period + 1) * period


def next_batch(size: int, applied: int, seconds: float) -> int:
    """How many messages the next batch may have, after a batch of at most `size` that took some seconds.

    It is at most doubled, and only after a full batch: the next messages may cost more than these.

    Examples
    --------
    >>> next_batch(128, 128, seconds=0.01), next_batch(128, 5, seconds=0.001), next_batch(128, 100, seconds=2.0)
    (256, 128, 5)
    """
    fits = int(applied * BATCH_SECONDS / max(seconds, 1e-9))
    if applied < size and fits >= size:
        return size
    return max(1, min(fits, 2 * size, MOST))
