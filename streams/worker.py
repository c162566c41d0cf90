"""The worker process: a faust app on the Kinstream transport, one task for each owned partition.

The event loop only moves messages; machines, kernels and checkpoints run on threads. Whatever is not a record's own
fault ends the process at once, and the supervisor starts it again from the checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kinstream.streams.agent import AgentSpec
from kinstream.streams.client_errors import explained
from kinstream.streams.clients import confluent_producer, faust_broker
from kinstream.streams.cluster import Cluster
from kinstream.streams.emitter import Emitter
from kinstream.streams.errors import (
    AccessDenied,
    BatchTooLarge,
    CheckpointError,
    DeliveryDenied,
    DeliveryError,
    GenerationMismatch,
    KinstreamError,
    LogGap,
    LoginRefused,
    PartitionParked,
    SettingsError,
)
from kinstream.streams.generation import Generation
from kinstream.streams.log import Message
from kinstream.streams.owned import QUEUE_SIZE, Owned, Place
from kinstream.streams.settings import Settings
from kinstream.streams.supervisor import CRASHED, REFUSED, RESTART, hold_on_to_supervisor
from kinstream.streams.topic_watch import WatchedSink, topic_watch
from kinstream.streams.watchdog import Progress, Watchdog
from kinstream.streams.worker_view import WorkerView

#: How long a thread may keep the interpreter while another waits for it.
SWITCH_SECONDS: Final = 0.0005
#: What a fresh process would meet as well: somebody has to change something.
FOR_PEOPLE: Final = (
    AccessDenied,
    BatchTooLarge,
    DeliveryDenied,
    GenerationMismatch,
    LogGap,
    LoginRefused,
    SettingsError,
)

log = logging.getLogger("kinstream.worker")


class Worker:
    """One process of one agent.

    Parameters
    ----------
    spec : which agent.
    generation : its opened generation: birth record and checkpoint stores.
    listener : a socket that is bound to the address of the page already.
    """

    def __init__(
        self,
        spec: AgentSpec,
        settings: Settings,
        generation: Generation,
        listener: socket.socket | None = None,
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.generation = generation
        self.input_topic = settings.topic(spec.input_role)
        self.cluster = Cluster(settings.kafka)
        self.emitter = Emitter(
            confluent_producer(settings.kafka), deadline_seconds=settings.worker.delivery_deadline_seconds
        )
        self.topics = topic_watch(spec, settings, generation.birth, self.fail)
        self._sink = WatchedSink(self.emitter, self.topics)
        self.owned: dict[Place, Owned] = {}
        self.parked: dict[Place, int] = {}
        self.pool = ThreadPoolExecutor(32, "partition")
        self.assigned = False
        self._loop_seen_at = time.monotonic()
        self._rebalancing_since: float | None = time.monotonic()
        self._restoring_since: float | None = None
        self._revocations = 0
        self._stop = asyncio.Event()
        self._restoring = asyncio.Lock()
        self._failure: BaseException | None = None
        self.watchdog = Watchdog(
            self,
            Cluster(settings.kafka),
            stall_seconds=settings.worker.stall_seconds,
            rebalance_seconds=settings.worker.rebalance_limit_seconds,
            restore_seconds=settings.worker.restore_limit_seconds,
            on_stall=self._on_stall,
            group=(generation.group, self.input_topic, generation.birth.input_partitions)
            if generation.birth.cluster_id
            else None,
        )
        self.app = self._make_app()
        self.view = WorkerView(self, listener)

    # ---- the faust app ------------------------------------------------------------------------------------------

    def _make_app(self) -> Any:
        import faust

        from kinstream.streams.recovery import TableManager
        from kinstream.streams.transport import RUN

        w = self.settings.worker
        app: Any = faust.App(
            self.generation.group,
            **faust_broker(self.settings.kafka),
            autodiscover=False,
            store="memory://",
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            TableManager=TableManager,
            table_standby_replicas=0,
            consumer_auto_offset_reset="none",
            stream_wait_empty=False,
            stream_buffer_maxsize=QUEUE_SIZE // RUN,
            consumer_max_fetch_size=4 * 1024 * 1024,
            broker_session_timeout=w.session_timeout_seconds,
            broker_heartbeat_interval=w.heartbeat_interval_seconds,
        )
        # faust makes folders for tables at its start; there are none.
        app._create_directories = lambda: None
        app.kinstream_restore = self.restore
        app.kinstream_fail = self._fail_in_client
        app.on_partitions_revoked.connect(self._on_revoked, weak=False)
        app.on_rebalance_complete.connect(self._on_rebalance_complete, weak=False)
        topic = app.topic(
            self.input_topic,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            acks=False,
        )

        async def deliver(stream: Any) -> None:
            async for event in stream.events():
                for message in (*event.message.earlier, event.message):
                    await self.deliver(message)

        app.agent(topic, name=self.generation.group)(deliver)
        return app

    async def deliver(self, message: Any) -> None:
        """Hand a message to its partition's task; what nobody owns any more is read again by its next owner."""
        owned = self.owned.get((message.topic, message.partition))
        if owned is None or owned.closing:
            return
        value = Message(
            message.topic,
            message.partition,
            message.offset,
            int((message.timestamp or 0) * 1000),
            message.key,
            message.value,
            tuple(message.headers or ()),
            message.previous,
        )
        await owned.put(value)

    # ---- taking over and giving back ----------------------------------------------------------------------------

    async def restore(self, assigned: set[Any]) -> Mapping[Any, int] | None:
        """Take over the assigned partitions.

        Returns
        -------
        The offset that each wants next; None where the assignment was over before all were taken over.
        """
        # A thread that restores cannot be called back: where faust waits no more, what it makes must not be forgotten.
        return await asyncio.shield(self._restore(assigned, self._revocations))

    async def _restore(self, assigned: set[Any], revocations: int) -> Mapping[Any, int] | None:
        async with self._restoring:
            if self._stop.is_set():
                # faust seeks once more when the flow stops; what was given back must not be taken over again.
                return {}
            self._restoring_since = time.monotonic()
            try:
                mine = sorted(tp for tp in assigned if tp.topic == self.input_topic)
                taken: list[Owned] = []
                gaps: list[LogGap] = []
                for tp in mine:
                    if self._stop.is_set() or self._revocations != revocations:
                        return None
                    try:
                        taken += await self._taken_over(tp)
                    except LogGap as gap:
                        # An operator wants to accept all of them at once.
                        gaps.append(gap)
                if gaps:
                    self.fail(LogGap("\n".join(map(str, gaps))))
                    raise gaps[0]
                if self._revocations != revocations:
                    return None
                for owned in taken:
                    await self._begin(owned)
                self.assigned = True
                return {tp: self._next_offset(tp) for tp in mine}
            finally:
                self._restoring_since = None

    async def _taken_over(self, tp: Any) -> list[Owned]:
        """The restored partition; none where it is owned already, or parked.

        Raises
        ------
        LogGap : the log has lost what it wants next.
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
            self.parked[place] = self.generation.parking.parked_offset(*place) or 0
            return []
        except Exception as error:
            self.fail(error)
            raise

    async def _begin(self, owned: Owned) -> None:
        """Serve a restored partition. From here on its last final mark does not count."""
        try:
            await self.run_in_thread(owned.begin_run, self.generation)
        except Exception as error:
            self.fail(error)
            raise
        self.owned[owned.place] = owned
        self.view.assign(owned.place, owned)
        owned.task = asyncio.create_task(owned.serve())

    def _next_offset(self, tp: Any) -> int:
        """Where to read on a partition that was taken over, or is parked."""
        place = (tp.topic, tp.partition)
        if not self._serves(tp.partition):
            self.app.consumer.pause_partitions({tp})
            return 0
        owned = self.owned.get(place)
        if owned is None:
            self.app.consumer.pause_partitions({tp})
            return self.parked[place]
        return int(owned.runner.machine.next_offset)

    def _serves(self, partition: int) -> bool:
        """Whether a partition was there when the generation began; one that was added waits for a repartition."""
        return partition < self.generation.birth.input_partitions

    def _take_over(self, partition: int) -> Owned:
        self.topics.check()
        runner = self.generation.runner(partition, self._sink)
        start, end = self.cluster.bounds(self.input_topic, partition)
        for note in runner.restore(self.generation.birth_offset(partition), start, end):
            log.warning("%s", note)
        self.generation.verify_last_record(runner.manifest, start)
        machine = runner.machine
        log.info("%s partition %d: reading on at %d", self.input_topic, partition, machine.next_offset)
        unseen = runner.manifest is None
        machine.on_owned(live=unseen)
        return Owned(
            (self.input_topic, partition),
            runner,
            self,
            self.generation.parking,
            interval_seconds=self.settings.checkpoints.interval_seconds,
            live_at=end,
            live=unseen,
            emitted_to=self.generation.emitted_to(partition, end),
            careful=os.environ.get(CRASHED) == "1",
        )

    async def _on_revoked(self, app: Any, revoked: set[Any], **kwargs: Any) -> None:
        self._rebalancing_since = time.monotonic()
        self._revocations += 1
        self.assigned = False
        limit = self.settings.worker.session_timeout_seconds
        # A take-over that is still under way belongs to the assignment that ends here.
        async with self._restoring:
            places = {(tp.topic, tp.partition) for tp in revoked}
            leaving = [place for place in self.owned if place in places]
            await asyncio.gather(*(self._give_back(place, limit, limit / 2) for place in leaving))
        for tp in revoked:
            self.parked.pop((tp.topic, tp.partition), None)

    async def _give_back(self, place: Place, limit: float, confirm_seconds: float) -> None:
        owned = self.owned[place]
        owned.closing = True
        owned.drain()
        self.view.revoke(place)
        assert owned.task is not None
        done, _ = await asyncio.wait({owned.task}, timeout=limit)
        if not done:
            self.fail(
                TimeoutError(
                    f"{place[0]} partition {place[1]}: the kernel did not return within {limit:.0f} s"
                )
            )
            return
        # Not before: what ran until now still counts into what the machine shows.
        owned.runner.machine.on_revoked()
        if self._failure is not None:
            return
        try:
            if owned.runner.dirty:
                offset = await self.run_in_thread(owned.runner.checkpoint, confirm_seconds)
                if self._stop.is_set():
                    await self.commit(place, offset)
            owned.note_position()
            await self.run_in_thread(owned.end_run, self.generation)
        except KinstreamError as error:
            # The next owner repeats what is behind the last checkpoint, with the same identities. A delivery that
            # failed forbids another send, so the process ends with it.
            self.fail(error)
            return
        self.owned.pop(place, None)

    async def _on_rebalance_complete(self, app: Any, **kwargs: Any) -> None:
        self._rebalancing_since = None

    # ---- what the task of a partition asks of its worker --------------------------------------------------------

    async def run_in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run something that may take long away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, call, *arguments)

    async def seek_back(self, place: Place, offset: int) -> None:
        """Read a partition again from `offset`."""
        await self.app.consumer.seek_back(_tp(place), offset)

    async def commit(self, place: Place, offset: int) -> bool:
        """Write the group's offset, for lag tools; whether the brokers took it."""
        return bool(await self.app.consumer.commit_for_tools({_tp(place): offset}))

    # ---- ending -------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the process without another send."""
        if self._failure is None:
            self._failure = error
            log.critical("%s: %s", type(error).__name__, error, exc_info=None if _expected(error) else error)
            sys.stderr.flush()
            os._exit(REFUSED if isinstance(error, FOR_PEOPLE) else RESTART)

    def _fail_in_client(self, error: BaseException) -> None:
        self.fail(explained(self.settings.kafka, error) or error)

    async def _fail_explained(self, error: BaseException) -> None:
        """End the process; where login or permission is behind the error, say what is missing."""
        self.fail(await self.run_in_thread(explained, self.settings.kafka, error) or error)

    def _on_stall(self, verdict: str) -> None:
        log.critical("Stalled: %s; ending the process", verdict)
        sys.stderr.flush()
        os._exit(RESTART)

    def _stop_soon(self) -> None:
        if not self._stop.is_set():
            log.info("stopping")
            timer = threading.Timer(self.settings.worker.shutdown_seconds, self._stop_hard)
            timer.daemon = True
            timer.start()
        self._stop.set()

    def _stop_hard(self) -> None:
        log.critical("not stopped within %.0f s; ending hard", self.settings.worker.shutdown_seconds)
        sys.stderr.flush()
        os._exit(RESTART)

    # ---- what the watchdog and the health page see --------------------------------------------------------------

    def progress(self) -> Mapping[Place, Progress]:
        found = {}
        for place, owned in list(self.owned.items()):
            machine = owned.runner.machine
            position = self.position(place, owned)
            waiting = not owned.queue.empty()
            found[place] = Progress(
                position, machine.next_offset, owned.runner.in_flight is not None or waiting
            )
        return found

    def position(self, place: Place, owned: Owned) -> int:
        """The offset applied next; past what follows the last record where that is never delivered (markers)."""
        applied: int = owned.runner.machine.next_offset
        consumer = self.app.consumer
        # What the client has returned and nobody has applied may be on its way, or was dropped there.
        at = consumer.client_position(*place) if consumer.last_returned(*place) < applied else None
        return applied if at is None else max(applied, int(at))

    def polled_at(self) -> float | None:
        """Monotonic time at which the client last asked for records."""
        # faust makes its consumer when it is first asked for, on the loop of whoever asks: not the page's thread.
        found: float | None = self.app.consumer.polled_at if self.assigned else None
        return found

    def rebalancing_since(self) -> float | None:
        return self._rebalancing_since

    def restoring_since(self) -> float | None:
        return self._restoring_since

    def loop_seen_at(self) -> float:
        return self._loop_seen_at

    # ---- running ------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until stopped; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_soon)
        hold_on_to_supervisor()
        # A kernel that is done waits this long for the event loop to hand it the interpreter; 5 ms is Python's own.
        sys.setswitchinterval(SWITCH_SECONDS)
        beat = asyncio.create_task(self._beat())
        self.watchdog.start()
        self.topics.start()
        log.info(
            "%s generation %d serves %s/metrics", self.spec.application, self.generation.number, self.view.url
        )
        self.app.loop = loop
        self.app.finalize()
        await self._start()
        while not self._stop.is_set():
            if self.app.crashed:
                await self._fail_explained(self.app.crash_reason or RuntimeError("the faust app crashed"))
            try:
                self.emitter.check()
            except DeliveryError as error:
                self.fail(error)
            self._look_at_parked()
            self.view.refresh()
            try:
                async with asyncio.timeout(0.5):
                    await self._stop.wait()
            except TimeoutError:
                continue
        await self._shut_down()
        beat.cancel()
        return 0

    async def _start(self) -> None:
        """Start the app, which waits for the first take-over; or be told to stop meanwhile."""
        starting = asyncio.create_task(self.app.start())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not starting.done():
            starting.cancel()
            return
        error = starting.exception()
        if error is not None:
            await self._fail_explained(error)

    async def _beat(self) -> None:
        """A sign of life of the event loop, also while the app starts."""
        while True:
            self._loop_seen_at = time.monotonic()
            await asyncio.sleep(0.5)

    def _look_at_parked(self) -> None:
        for (topic, partition), offset in list(self.parked.items()):
            if self.generation.parking.parked_offset(topic, partition) != offset:
                self.fail(PartitionParked(f"{topic} partition {partition} is no longer parked"))

    async def _shut_down(self) -> None:
        self.watchdog.stop()
        self.topics.stop()
        self.app.consumer.stop_flow()
        limit = self.settings.worker.shutdown_seconds
        # Neither beside a take-over, which is brought to its end, nor beside a revocation.
        async with self._restoring:
            await asyncio.gather(*(self._give_back(place, limit, limit / 2) for place in list(self.owned)))
        try:
            # With the brokers away, aiokafka may not come to an end; everything that counts is done.
            await asyncio.wait_for(self.app.stop(), limit / 2)
        except TimeoutError:
            log.warning("the group could not be left in order; the brokers will notice")
        self.view.close()
        self.emitter.close(1.0)


def _tp(place: Place) -> Any:
    from faust.types import TP

    return TP(*place)


def _expected(error: BaseException) -> bool:
    return isinstance(error, (KinstreamError, DeliveryError, CheckpointError, TimeoutError))
