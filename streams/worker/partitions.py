"""The partitions of a worker: taken over from their checkpoints, served, and given back."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.errors import LogGap, MemoryShort, PartitionParked
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Sink
from kinstream.streams.processes.json_lines import fields, within
from kinstream.streams.processes.supervisor import CRASHED
from kinstream.streams.records.message import PartitionName
from kinstream.streams.settings import Settings
from kinstream.streams.traces.spans import Spans
from kinstream.streams.worker.life import Life, LifeCycle
from kinstream.streams.worker.partition_task import Owned
from kinstream.streams.worker.port import TP, Client, Run
from kinstream.streams.worker.watchdog import PartitionProgress

log = logging.getLogger("kinstream.worker")


class Partitions:
    """The partitions that the group has assigned to this worker.

    Parameters
    ----------
    sink : the receiver of their machines' outputs.
    life : of the worker: it shows whether an operation in progress is still wanted.
    client : returns the transport's consumer; called on the event loop only, since faust makes it there.
    check_topics : raises if the topics are no longer those of the generation.
    fail : ends the process.
    on_assign, on_revoke : called when serving a partition begins and ends.
    spans : receives the spans of traced messages; None if this process exports none.
    """

    def __init__(
        self,
        generation: Generation,
        settings: Settings,
        cluster: Cluster,
        sink: Sink,
        life: LifeCycle,
        *,
        client: Callable[[], Client],
        check_topics: Callable[[], None],
        fail: Callable[[BaseException], None],
        on_assign: Callable[[PartitionName, Owned], None],
        on_revoke: Callable[[PartitionName], None],
        spans: Spans | None = None,
    ) -> None:
        self.owned: dict[PartitionName, Owned] = {}
        self.parked: dict[PartitionName, int] = {}
        self._generation = generation
        self._settings = settings
        self._cluster = cluster
        self._sink = sink
        self._life = life
        self._client = client
        self._check_topics = check_topics
        self._fail = fail
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._spans = spans
        self._topic = generation.birth.input_topic
        self._pool = ThreadPoolExecutor(32, "partition")
        #: Held by a take-over, and by a revocation that waits for it.
        self._turn = asyncio.Lock()

    # ---- taking over --------------------------------------------------------------------------------------------

    async def restore(self, assigned: set[TP]) -> Mapping[TP, int] | None:
        """Take over the assigned partitions.

        Returns
        -------
        The offset that each wants next; None if the assignment ended before all were taken over.
        """
        # A restoring thread cannot be cancelled: its result must be kept even if faust no longer waits for it.
        return await asyncio.shield(self._restore(assigned, self._life.assignment))

    async def _restore(self, assigned: set[TP], assignment: int) -> Mapping[TP, int] | None:
        async with self._turn:
            if self._life.stopping:
                # faust seeks once more when the flow stops; partitions given back must not be taken over again.
                return {}
            if self._life.assignment != assignment:
                return None
            if self._life.state is not Life.SERVING:
                # faust also seeks again while its flow is stopped: then all partitions are served already.
                self._life.enter(Life.RESTORING)
            mine = sorted(tp for tp in assigned if tp.topic == self._topic)
            taken = await self._taken(mine, assignment)
            if taken is None:
                return None
            for owned in taken:
                await self._begin(owned)
            if self._life.state is Life.RESTORING:
                self._life.enter(Life.SERVING)
            return {tp: self._next_offset(tp) for tp in mine}

    async def _taken(self, wanted: list[TP], assignment: int) -> list[Owned] | None:
        """Restored partitions; None if the assignment has ended, or the worker stops."""
        taken: list[Owned] = []
        gaps: list[LogGap] = []
        for tp in wanted:
            if self._is_over(assignment):
                return None
            try:
                taken += await self._taken_over(tp)
            except LogGap as gap:
                # Report all gaps, so that an operator can accept them at once.
                gaps.append(gap)
        if gaps:
            self._fail(LogGap("\n".join(map(str, gaps))))
            raise gaps[0]
        return None if self._is_over(assignment) else taken

    def _is_over(self, assignment: int) -> bool:
        return self._life.ending or self._life.assignment != assignment

    async def _taken_over(self, tp: TP) -> list[Owned]:
        """The restored partition; none if it is owned already, or parked.

        Raises
        ------
        LogGap : the log has lost the record that it needs next.
        """
        place = (tp.topic, tp.partition)
        if place in self.owned or place in self.parked or not self._serves(tp.partition):
            return []
        try:
            return [await self.run_in_thread(self._take_over, tp.partition)]
        except LogGap:
            raise
        except PartitionParked as error:
            log.error("%s", error)
            self.parked[place] = self._generation.parking.parked_offset(*place) or 0
            return []
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of a library is no Exception
            self._fail(error)
            raise

    def _take_over(self, partition: int) -> Owned:
        with fields(topic=self._topic, partition=partition):
            try:
                return self._restored(partition)
            except MemoryError as error:
                where = f"{self._topic} partition {partition}"
                raise MemoryShort(f"{where}: its checkpoint does not fit into memory: {error}") from error

    def _restored(self, partition: int) -> Owned:
        self._check_topics()
        generation = self._generation
        crashed = os.environ.get(CRASHED) == "1"
        careful = False
        # Without a final mark the run before this one has ended in some other way than by itself.
        if generation.final_offset(partition) is None:
            covered = generation.covered_offset(partition)
            careful = generation.parking.take_over(self._topic, partition, covered, crashed=crashed)
        runner = generation.runner(partition, self._sink, self._spans)
        start, end = self._cluster.bounds(self._topic, partition)
        for note in runner.restore(generation.birth_offset(partition), start, end):
            log.warning("%s", note)
        generation.verify_last_record(runner.manifest, self._cluster, start)
        machine = runner.machine
        log.info("%s partition %d: continuing at %d", self._topic, partition, machine.next_offset)
        unseen = runner.manifest is None
        machine.on_owned(live=unseen)
        return Owned(
            (self._topic, partition),
            runner,
            self,
            generation.parking,
            interval_seconds=self._settings.checkpoints.interval_seconds,
            live_at=end,
            live=unseen,
            emitted_to=generation.emitted_to(partition, end),
            careful=careful,
        )

    async def _begin(self, owned: Owned) -> None:
        """Serve a restored partition. From here on its last final mark does not count."""
        try:
            await self.run_in_thread(owned.begin_run, self._generation)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of a library is no Exception
            self._fail(error)
            raise
        self.owned[owned.place] = owned
        self._on_assign(owned.place, owned)
        owned.task = asyncio.create_task(owned.serve())

    def _next_offset(self, tp: TP) -> int:
        """The next offset of a partition that was taken over, or is parked."""
        place = (tp.topic, tp.partition)
        if not self._serves(tp.partition):
            self._client().pause_partitions({tp})
            return 0
        owned = self.owned.get(place)
        if owned is None:
            self._client().pause_partitions({tp})
            return self.parked[place]
        return int(owned.runner.machine.next_offset)

    def _serves(self, partition: int) -> bool:
        """Whether a partition existed when the generation began; one that was added waits for a repartition."""
        return partition < self._generation.birth.input_partitions

    # ---- giving back --------------------------------------------------------------------------------------------

    async def revoke(self, revoked: set[TP]) -> None:
        """Give back partitions that the group takes away."""
        limit = self._settings.worker.session_timeout_seconds
        # A take-over that is still under way belongs to the assignment that ends here.
        async with self._turn:
            places = {(tp.topic, tp.partition) for tp in revoked}
            leaving = [place for place in self.owned if place in places]
            await asyncio.gather(*(self._give_back(place, limit, limit / 2) for place in leaving))
        for tp in revoked:
            self.parked.pop((tp.topic, tp.partition), None)

    async def give_back_all(self, limit: float) -> None:
        """Give back everything at the end; a take-over or revocation that is under way is completed first."""
        async with self._turn:
            await asyncio.gather(*(self._give_back(place, limit, limit / 2) for place in list(self.owned)))

    async def _give_back(self, place: PartitionName, limit: float, confirm_seconds: float) -> None:
        owned = self.owned[place]
        owned.close()
        self._on_revoke(place)
        assert owned.task is not None
        done, _ = await asyncio.wait({owned.task}, timeout=limit)
        if not done:
            self._fail(
                TimeoutError(
                    f"{place[0]} partition {place[1]}: the kernel did not return within {limit:.0f} s"
                )
            )
            return
        # Not before: the calls until now still add to the machine's counts.
        owned.runner.machine.on_revoked()
        # A page that was rendered in the meantime still has the machine's series.
        self._on_revoke(place)
        if self._life.state is Life.FAILED:
            return
        try:
            runner = owned.runner
            applied = runner.machine.next_offset
            position = self.position(place, applied)
            if runner.dirty or position > applied:
                offset = await self.run_in_thread(runner.checkpoint, position, confirm_seconds)
                if self._life.stopping:
                    await self.commit(place, offset)
            owned.note_position()
            await self.run_in_thread(owned.end_run, self._generation)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # The next owner repeats the work after the last checkpoint, with the same identities. After a failed
            # delivery nothing may be sent, so the process ends with it.
            self._fail(error)
            return
        self.owned.pop(place, None)

    def check_parked(self) -> None:
        """End the process if a partition is no longer parked: the next process takes it over."""
        for (topic, partition), offset in list(self.parked.items()):
            if self._generation.parking.parked_offset(topic, partition) != offset:
                self._fail(PartitionParked(f"{topic} partition {partition} is no longer parked"))

    # ---- records, and the interface for the task of a partition -------------------------------------------------

    async def deliver(self, run: Run) -> None:
        """Hand a run of records to its partition's task; the next owner reads those of a lost partition again."""
        owned = self.owned.get((run[-1].topic, run[-1].partition))
        if owned is None or owned.closing:
            return
        await owned.put(run)

    async def run_in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run a long call off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, within(call, arguments))

    async def seek_back(self, place: PartitionName, offset: int) -> None:
        """Read a partition again from `offset`."""
        await self._client().seek_back(TP(*place), offset)

    async def commit(self, place: PartitionName, offset: int) -> bool:
        """Write the group's offset, for lag tools; returns whether the brokers accepted it."""
        return await self._client().commit_for_tools({TP(*place): offset})

    def fail(self, error: BaseException) -> None:
        """End the process without another send."""
        self._fail(error)

    def position(self, place: PartitionName, applied: int) -> int:
        """The offset applied next, past those after the last record that hold none: they are never delivered."""
        reading = self._client().reading(*place)
        # A record that the client has returned and no task has applied may be in transit, or was dropped.
        if reading is None or reading.returned >= applied:
            return applied
        return max(applied, reading.position)

    def progress(self) -> Mapping[PartitionName, PartitionProgress]:
        """The progress of each, for the watchdog; none while one waits for another system, and the others behind it."""
        found: dict[PartitionName, PartitionProgress] = {}
        if any(owned.attempts for owned in list(self.owned.values())):
            return found
        for place, owned in list(self.owned.items()):
            applied = owned.runner.machine.next_offset
            busy = owned.runner.in_flight is not None or owned.waiting
            found[place] = PartitionProgress(self.position(place, applied), applied, busy)
        return found
