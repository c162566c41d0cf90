"""Membership by Kafka's consumer protocol (KIP-848), on confluent-kafka's consumer and without faust: a prototype.

One thread polls and makes every other call: in confluent-kafka a call from another thread may wait for the poll without
end. The client calls back on it when partitions come or go, and tells the brokers only after that. So partitions are
taken over and given back within the call, one change after the other, while those that stay are worked on. The brokers
set session timeout and heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from kinstream.streams.errors import BrokerUnavailable, SettingsError
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import denied, refused_login
from kinstream.streams.kafka.reader import message_of
from kinstream.streams.kafka.tokens.source import have_token
from kinstream.streams.kafka.unanswered import answers
from kinstream.streams.records.message import Message, PartitionName
from kinstream.streams.settings import Settings
from kinstream.streams.worker.port import (
    EMBEDDED_FETCH_WAIT_MS,
    RUN,
    RUN_BYTES,
    TP,
    Client,
    Port,
    Reading,
    Run,
)

log = logging.getLogger("kinstream.consumer_group")

#: How long a poll waits for a record. Calls from the event loop wait for it too, and so does a paused partition.
POLL_SECONDS: Final = 0.1
PAUSED_POLL_SECONDS: Final = 0.005
#: The brokers wait this long for a commit to be answered; nothing depends on it.
COMMIT_SECONDS: Final = 5.0
#: Records that the client holds ready; a pause makes it drop them and fetch them again.
READY_KBYTES: Final = 8_192
#: How soon the client looks again whether it may fetch, when it holds that much; its own 1,000 ms leave kernels idle.
FETCH_AGAIN_MS: Final = 5
#: A partition with so many records or bytes waiting is not read, until half of them are gone.
WAITING: Final = 4 * RUN
WAITING_BYTES: Final = 8 * RUN_BYTES
#: While every partition is full, the thread pauses none for at most this long; rebalances wait meanwhile.
FULL_SECONDS: Final = 0.5
FULL_LOOK_SECONDS: Final = 0.002
#: Seconds between two looks at whether a worker without partitions has been let in.
SPARE_LOOK_SECONDS: Final = 3.0

T = TypeVar("T")


class Feed:
    """The records of one partition on their way from the thread to the partition's task; used on the event loop."""

    def __init__(self, deliver: Callable[[Run], Coroutine[Any, Any, None]]) -> None:
        self._deliver = deliver
        self._waiting: Run = []
        self._bytes = 0
        self._full = False
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether no more should be read for now; the reading thread asks."""
        least = 0.5 if self._full else 1.0
        self._full = len(self._waiting) >= least * WAITING or self._bytes >= least * WAITING_BYTES
        return self._full

    def put(self, messages: Run) -> None:
        self._waiting += messages
        self._bytes += sum(map(_size, messages))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        while self._waiting:
            count = size = 0
            for message in self._waiting[:RUN]:
                count += 1
                size += _size(message)
                if size >= RUN_BYTES:
                    break
            run, self._waiting = self._waiting[:count], self._waiting[count:]
            self._bytes -= size
            await self._deliver(run)

    def clear(self) -> None:
        """Drop what waits."""
        if self._task is not None:
            self._task.cancel()
        self._waiting, self._bytes, self._task = [], 0, None


def _size(message: Message) -> int:
    return len(message.value or b"")


class ConsumerMembership:
    """See `kinstream.streams.worker.port.Membership`; it is its own client.

    Parameters
    ----------
    embedded : the broker is the embedded one.
    """

    def __init__(self, group: str, topic: str, settings: Settings, port: Port, *, embedded: bool) -> None:
        self.failure: BaseException | None = None
        self.polled_at: float | None = None
        self._group = group
        self._topic = topic
        self._kafka = settings.kafka
        self._port = port
        # The client leaves the group if it is not polled for this long: the watchdog ends the process before.
        longest = settings.worker.restore_limit_seconds + settings.worker.rebalance_limit_seconds + 60.0
        self._config: dict[str, Any] = confluent(settings.kafka) | {
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "check.crcs": True,
            "max.poll.interval.ms": int(longest * 1000),
            "queued.max.messages.kbytes": READY_KBYTES,
            "fetch.queue.backoff.ms": FETCH_AGAIN_MS,
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }
        if embedded:
            self._config["fetch.wait.max.ms"] = EMBEDDED_FETCH_WAIT_MS
        self._thread = threading.Thread(target=self._run, name="consumer", daemon=True)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._commits: dict[frozenset[tuple[str, int, int]], asyncio.Future[bool]] = {}
        self._spare_look_at = 0.0
        self._full_since: float | None = None
        self._flowing = True
        self._leaving = False
        self._changing = False
        # Changed by the thread, or on the loop while the thread waits for it.
        self._feeds: dict[PartitionName, Feed] = {}
        self._unread: set[PartitionName] = set()
        self._paused: set[PartitionName] = set()
        self._returned: dict[PartitionName, int] = {}
        self._readings: dict[PartitionName, Reading] = {}

    # ---- calls of the worker, on the event loop -----------------------------------------------------------------

    @property
    def client(self) -> Client:
        return self

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._spare_look_at = time.monotonic() + SPARE_LOOK_SECONDS
        self._thread.start()
        await self._joined

    def stop_flow(self) -> None:
        self._flowing = False

    async def leave(self) -> None:
        self._leaving = True
        if self._thread.is_alive():
            await self._ended.wait()

    def reading(self, topic: str, partition: int) -> Reading | None:
        return self._readings.get((topic, partition))

    def pause_partitions(self, tps: set[TP]) -> None:
        self._unread |= tps

    async def seek_back(self, tp: TP, offset: int) -> None:
        done = self._loop.create_future()

        def seek() -> None:
            if tp in self._feeds:
                self._consumer.seek(TopicPartition(*tp, offset))
                self._returned[tp] = offset - 1
            self._loop.call_soon_threadsafe(sought)

        def sought() -> None:
            if tp in self._feeds:
                self._feeds[tp].clear()
            if not done.done():
                done.set_result(None)

        self._calls.put(seek)
        await done

    async def commit_for_tools(self, offsets: Mapping[TP, int]) -> bool:
        if self._changing:
            return False
        places = [TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        key = _committed(places)
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._commits[key] = answer

        def commit() -> None:
            try:
                self._consumer.commit(offsets=places, asynchronous=True)
            except KafkaException as error:
                self._on_commit(error.args[0], places)

        self._calls.put(commit)
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                return await answer
        except TimeoutError:
            return False
        finally:
            self._commits.pop(key, None)

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            have_token(self._kafka)
            self._consumer = Consumer(self._config)
            self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not self._leaving:
                self._call()
                if self._waits_for_room():
                    continue
                self._pause_and_resume()
                self._read()
                self._look_whether_spare()
            self._consumer.close()
        except BaseException as error:
            self._fail(error)
        self._loop.call_soon_threadsafe(self._ended.set)

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._loop.call_soon_threadsafe(self._end_joining, self.failure)

    def _end_joining(self, error: BaseException | None) -> None:
        if self._joined.done():
            return
        if error is None:
            self._joined.set_result(None)
        else:
            self._joined.set_exception(error)

    def _call(self) -> None:
        try:
            while True:
                self._calls.get_nowait()()
        except Empty:
            return

    def _waits_for_room(self) -> bool:
        """Wait a moment if every partition that may be read is full: a pause would make the client drop its records."""
        readable = [feed for place, feed in self._feeds.items() if place not in self._unread]
        # Each is asked, for each remembers its answer.
        if not self._flowing or not readable or not all([feed.full for feed in readable]):
            self._full_since = None
            return False
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since > FULL_SECONDS:
            return False
        time.sleep(FULL_LOOK_SECONDS)
        return True

    def _pause_and_resume(self) -> None:
        wanted = {
            place
            for place, feed in self._feeds.items()
            if not self._flowing or place in self._unread or feed.full
        }
        if wanted != self._paused:
            self._consumer.pause([TopicPartition(*place) for place in wanted - self._paused])
            self._consumer.resume([TopicPartition(*place) for place in self._paused - wanted])
            self._paused = wanted

    def _read(self) -> None:
        """Take what the client has ready, tag each record with the offset that was returned before it, pass it on."""
        self.polled_at = time.monotonic()
        # A batch is waited for until it is complete: so wait for one record, and take those that are there beside it.
        first = self._consumer.poll(PAUSED_POLL_SECONDS if self._paused else POLL_SECONDS)
        records: list[Any] = [] if first is None else [first, *self._consumer.consume(RUN - 1, 0)]
        found: dict[PartitionName, Run] = {}
        for record in records:
            if (error := record.error()) is not None:
                self._on_record_error(error)
                continue
            place = record.topic(), record.partition()
            if place in self._feeds:
                message = message_of(record, self._returned[place])
                self._returned[place] = message.offset
                found.setdefault(place, []).append(message)
        for place, messages in found.items():
            self._loop.call_soon_threadsafe(self._feeds[place].put, messages)
        # After the tags: a position must not be past a record that is not known to be returned. The client has none
        # after a seek or an assignment, until it has read on.
        now = self._consumer.position([TopicPartition(*place) for place in self._feeds])
        self._readings |= {
            place: Reading(self._returned[place], tp.offset)
            for tp in now
            if (place := (tp.topic, tp.partition)) in self._feeds and tp.offset >= 0
        }

    def _look_whether_spare(self) -> None:
        # The client does not call back if all partitions are with others when it is let in.
        if self._joined.done() or time.monotonic() < self._spare_look_at:
            return
        self._spare_look_at = time.monotonic() + SPARE_LOOK_SECONDS
        cluster = Cluster(self._kafka)
        try:
            # As in `Cluster.nobodys`: no administrative request may time out.
            if answers(cluster.admin) and self._consumer.memberid() in cluster.member_ids(self._group):
                self._wait(self._change(set(), set()))
        except BrokerUnavailable as error:
            log.debug("%s", error)
        finally:
            cluster.close()

    # ---- rebalances, on the thread ------------------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gained = {TP(tp.topic, tp.partition) for tp in partitions}
        offsets = self._wait(self._change(set(), {TP(*place) for place in self._feeds} | gained))
        self._unread |= gained - offsets.keys()
        # Those that are not read start where no offset can be out of range.
        starts = {tp: OFFSET_END if tp in self._unread else offsets[tp] for tp in gained}
        self._returned |= {tp: start - 1 for tp, start in starts.items()}
        consumer.incremental_assign([TopicPartition(*tp, start) for tp, start in starts.items()])
        self._pause_and_resume()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Also of partitions that were lost: what this worker writes now, the next owner writes the same.
        lost = {TP(tp.topic, tp.partition) for tp in partitions}
        self._wait(self._change(lost, {TP(*place) for place in self._feeds} - lost))
        for places in (self._unread, self._paused):
            places -= lost
        consumer.incremental_unassign(partitions)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the loop; what it waits for on this thread is done meanwhile."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.add_done_callback(lambda done: self._calls.put(_nothing))
        while not future.done():
            self._calls.get()()
        return future.result()

    async def _change(self, lost: set[TP], assigned: set[TP]) -> Mapping[TP, int]:
        """Give back and take over; the next offset of every partition that is served."""
        # The answers of commits come with polls; a partition that is given back must not wait for one.
        self._changing = True
        for answer in self._commits.values():
            if not answer.done():
                answer.set_result(False)
        await self._port.revoke(lost)
        for tp in lost & self._feeds.keys():
            self._feeds.pop(tp).clear()
        offsets = await self._port.restore(assigned) or {}
        for tp in assigned - self._feeds.keys():
            self._feeds[tp] = Feed(self._port.deliver)
        self._changing = False
        self._end_joining(None)
        return offsets

    # ---- errors and answers, on the thread ----------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._fail(refused_login(self._kafka, error.str()))
        elif error.code() == KafkaError._FATAL:
            self._fail(
                SettingsError(f'[worker] group_protocol = "consumer" needs Kafka 4.0 or later: {error.str()}')
            )
        else:
            # Brokers that do not answer: the watchdog reports them.
            log.debug("%s", error)

    def _on_record_error(self, error: KafkaError) -> None:
        match error.code():
            case KafkaError.GROUP_AUTHORIZATION_FAILED:
                self._fail(denied(self._kafka, "READ", f"group {self._group}"))
            case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self._fail(denied(self._kafka, "READ", f"topic {self._topic}"))
            case KafkaError._AUTO_OFFSET_RESET | KafkaError.OFFSET_OUT_OF_RANGE:
                # The next start compares the log with the checkpoint, and says what is missing.
                self._fail(KafkaException(error))
            case _:
                self._on_error(error)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            log.debug("the group's offsets were not written: %s", error)
        self._loop.call_soon_threadsafe(self._answer, _committed(partitions), error is None)

    def _answer(self, key: frozenset[tuple[str, int, int]], accepted: bool) -> None:
        answer = self._commits.get(key)
        if answer is not None and not answer.done():
            answer.set_result(accepted)


def _nothing() -> None:
    """Only wakes the thread."""


def _committed(partitions: list[TopicPartition]) -> frozenset[tuple[str, int, int]]:
    return frozenset((tp.topic, tp.partition, tp.offset) for tp in partitions)
