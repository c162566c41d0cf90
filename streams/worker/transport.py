"""The checkpointed faust transport: aiokafka's, except that positions come from checkpoints.

faust seeks every partition to the group's committed offset after each rebalance. Here the checkpoints hold the
positions, and the group's offsets are written for lag tools only. Each record is tagged with the offset that the
client returned before it, so that a machine can distinguish a gap in the log from records that were dropped in the
process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar, Final, cast

import faust
from aiokafka import TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from faust.tables.recovery import RebalanceAgain
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from mode import Service

from kinstream.streams.errors import BatchTooLarge
from kinstream.streams.records.message import Message
from kinstream.streams.worker import decompress
from kinstream.streams.worker.port import RUN, RUN_BYTES, Port, Reading, Run

decompress.install()

#: Seconds between two looks of the fetcher at what to do, if nothing happens; and of faust, whether its thread lives.
IDLE_SECONDS: Final = 5.0
#: Seconds that the thread waits for records. Those that come end it; it is the delay of what is read and not returned.
RECORDS_SECONDS: Final = 2.0
#: The type of times that the log sets, as brokers send it.
_APPENDED: Final = 1


class PortedApp(faust.App):
    """A faust app whose transport serves a worker.

    faust makes transport and consumer itself and passes them only the app; so the app carries the port.

    Parameters
    ----------
    fetch_wait_ms : how long brokers may keep a fetch that finds no records.
    """

    def __init__(self, name: str, *, port: Port, fetch_wait_ms: int, **options: Any) -> None:
        self.port = port
        self.fetch_wait_ms = fetch_wait_ms
        super().__init__(name, **options)

    def _create_directories(self) -> None:
        """faust makes folders for tables at its start; there are none."""


def _port(app: Any) -> Port:
    return cast(PortedApp, app).port


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that owns the aiokafka consumer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._returned: dict[tuple[str, int], int] = {}
        #: The client's state of each partition that was sought. A partition that is assigned again has another one, and
        #: its position says nothing until it is sought as well.
        self._sought: dict[tuple[str, int], Any] = {}
        self._readings: dict[tuple[str, int], Reading] = {}
        self.polled_at: float | None = None

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # faust offers this only together with its own transactions.
        consumer._isolation_level = "read_committed"
        # For faust it is a constant.
        consumer._fetch_max_wait_ms = cast(PortedApp, self.app).fetch_wait_ms
        # Whatever lets it fetch wakes it; 0.2 s is aiokafka's own.
        consumer._consumer_timeout = IDLE_SECONDS
        return consumer

    @Service.task
    async def _thread_keepalive(self) -> None:
        # For faust it is a second.
        async for _ in self.itertimer(IDLE_SECONDS, name="keepalive"):
            pass

    async def _keepalive2(self) -> None:
        """Do nothing. faust wakes both threads every second to see that they do; the watchdog sees it too."""

    async def _fetch_records(
        self, consumer: Any, active_partitions: Any, timeout: Any = None, max_records: int | None = None
    ) -> Any:
        self.polled_at = time.monotonic()
        try:
            fetched = await super()._fetch_records(consumer, active_partitions, RECORDS_SECONDS, max_records)
        except (BatchTooLarge, GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
            # faust would log it three times, each with a traceback, before it asks its app.
            _port(self.app).fail_in_client(error)
            raise
        # Tagged here, in one step with the fetch: records that faust drops later still count as returned.
        runs = {tp: self._runs(tp, records) for tp, records in fetched.items()}
        self._note_readings()
        return runs

    def _note_readings(self) -> None:
        """Note how far the client has read, in the same step: a position is not past a record without a tag."""
        for (topic, partition), sought in self._sought.items():
            if self._state(topic, partition) is sought and sought.has_valid_position:
                reading = Reading(self._returned[topic, partition], sought.position)
                self._readings[topic, partition] = reading

    def _state(self, topic: str, partition: int) -> Any:
        """The client's state of a partition; None if it is not assigned."""
        current = self._ensure_consumer()._subscription.subscription
        assignment = current and current.assignment
        return assignment and assignment.state_value(TopicPartition(topic, partition))

    def _runs(self, tp: Any, records: list[Any]) -> list[Run]:
        """The records of a partition in runs, each record with the offset that was returned before it."""
        key = (tp.topic, tp.partition)
        previous = self._returned.get(key, -1)
        runs: list[Run] = []
        run: Run = []
        size = 0
        topic, partition = key
        for record in records:
            offset, value = record.offset, record.value
            headers = record.headers
            run.append(
                Message(
                    topic,
                    partition,
                    offset,
                    record.timestamp or 0,
                    record.key,
                    value,
                    tuple(headers) if headers else (),
                    previous,
                    record.timestamp_type == _APPENDED,
                )
            )
            previous = offset
            if value is not None:
                size += len(value)
            if len(run) == RUN or size >= RUN_BYTES:
                runs.append(run)
                run, size = [], 0
        if run:
            runs.append(run)
        self._returned[key] = previous
        return runs

    async def seek_all(self, offsets: Mapping[TP, int]) -> None:
        """Seek partitions, on this thread."""
        await self.call_thread(self._seek_all, offsets)

    async def _seek_all(self, offsets: Mapping[TP, int]) -> None:
        consumer = self._ensure_consumer()
        assigned = {(tp.topic, tp.partition) for tp in consumer.assignment()}
        for tp, offset in offsets.items():
            if (tp.topic, tp.partition) in assigned:
                consumer.seek(TopicPartition(tp.topic, tp.partition), offset)
                self._returned[tp.topic, tp.partition] = offset - 1
                self._sought[tp.topic, tp.partition] = self._state(tp.topic, tp.partition)

    def reading(self, topic: str, partition: int) -> Reading | None:
        return self._readings.get((topic, partition))

    async def commit_for_tools(self, offsets: Mapping[TP, int]) -> bool:
        return bool(await self.call_thread(self._commit_for_tools, offsets))

    async def _commit_for_tools(self, offsets: Mapping[TP, int]) -> bool:
        consumer = self._ensure_consumer()
        if _joins(consumer._coordinator, consumer._subscription.subscription):
            # On the same connection it would be answered after the join, for a generation that has ended by then;
            # aiokafka takes that as a reason to join again, for ever.
            return False
        assigned = {(tp.topic, tp.partition) for tp in consumer.assignment()}
        mine = {
            TopicPartition(tp.topic, tp.partition): offset
            for tp, offset in offsets.items()
            if (tp.topic, tp.partition) in assigned
        }
        try:
            if mine:
                await consumer.commit(mine)
        except KafkaError as error:
            # faust's own commit would crash the app here, during an outage that ends by itself.
            self.log.debug("the group's offsets were not written: %r", error)
            return False
        return True


def _joins(coordinator: Any, subscription: Any) -> bool:
    """Whether a consumer is joining its group, or is about to."""
    if subscription is None or coordinator._performed_join_prepare:
        return True
    return bool(coordinator.need_rejoin(subscription))


class Consumer(driver.Consumer):
    """A consumer that reads from the offsets of the checkpoints."""

    _thread: ConsumerThread
    #: Whether the client's assignment is valid: it is not between a revocation and the next assignment.
    _stands = False

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self._stands = False
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self._stands = True
        await super().on_partitions_assigned(assigned, generation_id)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Restore the assigned partitions and seek to the next offsets of their checkpoints."""
        if not self._stands:
            # faust seeks once more when the flow stops: partitions given back must not be taken over again.
            return {}
        # faust's type of a partition is equal to ours.
        assigned: Any = set(self.assignment())
        offsets: Any = await _port(self.app).restore(assigned)
        if offsets is None:
            raise RebalanceAgain
        await self._thread.seek_all(offsets)
        return cast("Mapping[TP, int]", offsets)

    def on_buffer_full(self, tp: TP) -> None:
        """Do nothing: a full queue makes the fetcher wait, record by record.

        faust would also leave the partition out of the next fetch. If no partition is left, it sleeps for a second even
        when the queue drains earlier, so a backlog of large blocks would come in bursts.
        """

    def reading(self, topic: str, partition: int) -> Reading | None:
        """How far the client has read a partition; None before it has."""
        return self._thread.reading(topic, partition)

    @property
    def polled_at(self) -> float | None:
        """Monotonic time at which the client last asked for records."""
        return self._thread.polled_at

    async def seek_back(self, tp: TP, offset: int) -> None:
        """Read a partition again from `offset`."""
        self._read_offset[tp] = offset
        await self._thread.seek_all({tp: offset})

    def _to_message(self, tp: TP, run: Run) -> Any:
        """The message that stands for a run of records: that of its last one.

        faust takes as long over a message as a kernel over a small block. Whatever faust does with a message, including
        dropping it when the flow stops, it does with the whole run; the tags show it.
        """
        last: Any = run[-1]
        message: Any = ConsumerMessage(
            last.topic,
            last.partition,
            last.offset,
            last.timestamp_ms / 1000,
            0,
            last.headers,
            last.key,
            last.value,
            None,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )
        message.run = run
        return message

    async def commit_for_tools(self, offsets: Mapping[TP, int]) -> bool:
        """Write the group's offsets, so that lag tools see them. Nothing depends on it, so a failure is only logged."""
        return await self._thread.commit_for_tools(offsets)


class Transport(driver.Transport):
    """Registered under the `faust.transports` entry point; broker URLs begin with `kinstream://`."""

    Consumer: ClassVar[type[Consumer]] = Consumer
    driver_version = f"kinstream on {driver.Transport.driver_version}"
