"""Reads `kinstream.events` for catalogues, without a group: from the start of the log, and then continuously."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kinstream.search.spaces.catalogue import CatalogueReader, Changed
from kinstream.streams.agents.machine import RecordsMissed
from kinstream.streams.errors import BrokerUnavailable, KinstreamError, LogGap
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import denied
from kinstream.streams.kafka.reader import arrived, headers_of
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of
from kinstream.streams.worker.topic_watch import POLL_SECONDS, described

log = logging.getLogger("kinstream.search")

_BATCH: Final = 500
#: Seconds of one wait for records, and so of `stop`.
_POLL_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 1.0
#: Size of read-ahead in KiB: large, because a whole catalogue is read.
_AHEAD_KIB: Final = 16_384

Apply = Callable[[str, list[Changed]], None]


@dataclass(slots=True)
class Progress:
    """One partition: the end that it had at the start, whether that is reached, and the records lost to retention."""

    stop: int
    reached: bool = False
    lost: int = 0


class EventsFeed:
    """A thread that keeps catalogues up to date.

    Parameters
    ----------
    sources : for each space, the source of its items (`kinstream.search.spaces.catalogue.SOURCES`).
    apply : takes over the changes of a space, in order.
    redrives_of : see `CatalogueReader`.
    """

    def __init__(
        self, settings: Settings, sources: Mapping[str, str], apply: Apply, redrives_of: str | None = None
    ) -> None:
        self._settings = settings
        self._topic = settings.topic("events")
        self._sources = dict(sources)
        self._apply = apply
        self._redrives_of = redrives_of
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kinstream-catalogue", daemon=True)
        self.readers: dict[int, CatalogueReader] = {}
        self.progress: dict[int, Progress] = {}
        self.partitions = 0
        self._topic_id: str | None = None
        self._look_at = 0.0
        self.errors: Counter[str] = Counter()
        #: When the brokers last returned data, by the monotonic clock; None before that.
        self.contact: float | None = None
        #: The error that ended the thread.
        self.failure: KinstreamError | Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the thread; wait up to that long for it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    @property
    def caught_up(self) -> bool:
        """Whether every partition was read up to the end that it had at the start."""
        return bool(self.progress) and all(one.reached for one in self.progress.values())

    def partition(self, space: str) -> int | None:
        """The partition of a space; None before the number of partitions is known."""
        return partition_of(space, self.partitions) if self.partitions else None

    @property
    def waiting_for(self) -> list[str]:
        """Partitions that are not read up to that end, with the number of records left."""
        if not self.progress:
            return ["an answer of the brokers"]
        return [
            f"{self._topic} partition {p}: {one.stop - self.readers[p].next_offset} records"
            for p, one in sorted(self.progress.items())
            if not one.reached
        ]

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        consumer = None
        cluster = Cluster(self._settings.kafka)
        try:
            if self._find_out():
                consumer = self._consumer()
                self._assign(consumer)
                while not self._stopping.is_set():
                    self._poll(consumer)
                    self._look_at_topic(cluster)
        except Exception as error:
            self.failure = error
            log.error("the catalogues are no longer updated: %s", error)
        finally:
            cluster.close()
            if consumer is not None:
                consumer.close()

    def _look_at_topic(self, cluster: Cluster) -> None:
        """Check at intervals that the topic is still the same one.

        Raises
        ------
        LogGap : it was re-created.
        """
        if self._topic_id is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + POLL_SECONDS
        try:
            found = described(cluster, [self._topic]).get(self._topic)
        except BrokerUnavailable:
            return
        if found is None:
            return
        if found.topic_id not in (None, self._topic_id):
            raise LogGap(
                f"{self._topic} was re-created: its id was {self._topic_id} and is {found.topic_id}. Start again: a "
                "catalogue is read from the beginning at every start"
            )
        if found.partitions != self.partitions and "partitions" not in self.errors:
            self.errors["partitions"] += 1
            log.warning(
                "%s has %d partitions, not %d: records on new partitions are not read",
                self._topic,
                found.partitions,
                self.partitions,
            )

    def _find_out(self) -> bool:
        """The partitions to read and their ends; False if the feed is stopped meanwhile."""
        cluster = Cluster(self._settings.kafka)
        try:
            while not self._stopping.is_set():
                try:
                    found = cluster.view([self._topic]).topics.get(self._topic)
                    if found is not None:
                        wanted = {partition_of(space, found.partitions) for space in self._sources}
                        bounds = {p: cluster.bounds(self._topic, p) for p in sorted(wanted)}
                        self._topic_id = found.topic_id
                        self._begin(found.partitions, bounds)
                        return True
                    self.errors["no-topic"] += 1
                except BrokerUnavailable as error:
                    self.errors["unavailable"] += 1
                    log.warning("%s; trying again", error)
                self._stopping.wait(_AGAIN_SECONDS)
            return False
        finally:
            cluster.close()

    def _begin(self, partitions: int, bounds: Mapping[int, tuple[int, int]]) -> None:
        for p, (low, _) in bounds.items():
            reader = CatalogueReader(self._topic, p, partitions, self._sources, redrives_of=self._redrives_of)
            reader.begin(low)
            self.readers[p] = reader
        self.partitions = partitions
        self.progress = {p: Progress(high, reached=low >= high) for p, (low, high) in bounds.items()}
        self.contact = time.monotonic()

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **confluent(self._settings.kafka),
                "group.id": "kinstream-search",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _AHEAD_KIB,
            }
        )

    def _assign(self, consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self._topic, p, r.next_offset) for p, r in self.readers.items()])
        self._previous = {p: r.next_offset - 1 for p, r in self.readers.items()}

    def _poll(self, consumer: Any) -> None:
        records = arrived(consumer, _BATCH, _POLL_SECONDS)
        changed: dict[str, list[Changed]] = {}
        ends = []
        try:
            for record in records:
                if record.error() is not None:
                    if not self._excused(record):
                        ends.append(record)
                    continue
                p = record.partition()
                found = self.readers[p].step(_message(record, self._previous[p]))
                self._previous[p] = record.offset()
                self.contact = time.monotonic()
                if found is not None:
                    changed.setdefault(found.space, []).append(found)
        except RecordsMissed:
            self.errors["missed"] += 1
            self._give(changed)
            self._assign(consumer)
            return
        self._give(changed)
        for p, one in self.progress.items():
            one.reached = one.reached or self.readers[p].next_offset >= one.stop
        for record in ends:
            self._answer(consumer, record)

    def _give(self, changed: Mapping[str, list[Changed]]) -> None:
        for space, some in changed.items():
            self._apply(space, some)

    def _excused(self, record: Any) -> bool:
        """Errors that the client recovers from; librdkafka looks for the coordinator of a group that is never
        joined."""
        from confluent_kafka import KafkaError

        code = record.error().code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return True
        mine = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
        if code in (*mine, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            return False
        self.errors["client"] += 1
        log.warning("%s: %s", self._topic, record.error().str())
        return True

    def _answer(self, consumer: Any, record: Any) -> None:
        """The end of a partition, or an offset that the log does not have."""
        from confluent_kafka import KafkaError

        code, p = record.error().code(), record.partition()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise denied(self._settings.kafka, "READ", f"topic {self._topic}")
        if code == KafkaError._PARTITION_EOF:
            # The offsets up to this end hold no more records.
            self.contact = time.monotonic()
            self.readers[p].begin(max(self.readers[p].next_offset, record.offset()))
            self.progress[p].reached = self.progress[p].reached or record.offset() >= self.progress[p].stop
            return
        self._go_on_after_loss(consumer)

    def _go_on_after_loss(self, consumer: Any) -> None:
        cluster = Cluster(self._settings.kafka)
        try:
            for p, reader in self.readers.items():
                low, high = cluster.bounds(self._topic, p)
                if high < reader.next_offset:
                    raise LogGap(
                        f"{self._topic} partition {p} ends at {high}, and was read up to {reader.next_offset}: it is "
                        "another log under the same name. Start again: a catalogue is read from its start each time"
                    )
                if low > reader.next_offset:
                    self.progress[p].lost += low - reader.next_offset
                    log.warning(
                        "%s partition %d: offsets %d to %d were deleted before they were read; items of theirs "
                        "are missing",
                        self._topic,
                        p,
                        reader.next_offset,
                        low - 1,
                    )
                    reader.begin(low)
        except BrokerUnavailable as error:
            self.errors["unavailable"] += 1
            log.warning("%s; trying again", error)
            self._stopping.wait(_AGAIN_SECONDS)
        finally:
            cluster.close()
        self._assign(consumer)


def _message(r: Any, previous: int) -> Message:
    headers = headers_of(r)
    return Message(
        r.topic(), r.partition(), r.offset(), r.timestamp()[1], r.key(), r.value(), headers, previous
    )
