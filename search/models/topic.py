"""`kinstream.models`, followed from its beginning without a consumer group: no commits, no trace on the brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import TYPE_CHECKING, Any, Final, cast

from kinstream.search.models.choice import Announcement
from kinstream.search.models.decisions import Decisions
from kinstream.streams.errors import BadRecord, KinstreamError
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import denied, refused_login
from kinstream.streams.kafka.reader import arrived
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.gate import GateDecision
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.records.withheld import Withheld
from kinstream.streams.secrets import hide
from kinstream.streams.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = logging.getLogger("kinstream.follower")

#: Seconds between two requests for the topic's partitions, which also show whether a broker answers.
PROBE_SECONDS: Final = 5.0
#: The same after an error.
_AGAIN_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 2.0
#: Seconds of one wait for records, and so of `close`.
_WAIT_SECONDS: Final = 0.5
_RECORDS: Final = 500


class TopicSource:
    """All partitions of the models topic, including those added later.

    Parameters
    ----------
    settings : brokers and the topics' prefix.
    make : a consumer of confluent-kafka from its configuration.
    identify : the id of the topic, None if it is not known.
    clock : monotonic, in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        make: Callable[[dict[str, Any]], Consumer] | None = None,
        identify: Callable[[], str | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.caught_up = False
        self.contact: float | None = None
        self.trouble: str | None = None
        self.unreadable = 0
        self.decisions = Decisions()
        self.topic = settings.topic("models")
        self._kafka = settings.kafka
        self._clock = clock
        self._make = make
        self._identify = identify or self._topic_id
        self._identity: str | None = None
        self._cluster: Cluster | None = None
        self._consumer: Consumer | None = None
        self._assigned: set[int] = set()
        #: Partitions that existed at the start and whose end was not reached yet.
        self._left: set[int] = set()
        self._probe_at = clock()

    def open(self) -> None:
        self._consumer = self._new()

    def _new(self) -> Consumer:
        config = {
            **confluent(self._kafka),
            "group.id": "kinstream-follower",
            "enable.auto.commit": False,
            # A re-created topic is read from its beginning.
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 2_000,
            "error_cb": self._on_error,
        }
        if self._make is None:
            from confluent_kafka import Consumer

            return Consumer(config)
        return self._make(config)

    def poll(self, seconds: float, learners: Iterable[str], stop: Event) -> list[Announcement]:
        from confluent_kafka import KafkaException

        assert self._consumer is not None
        if self._clock() >= self._probe_at:
            self._probe()
        wait = max(0.0, min(seconds, _WAIT_SECONDS))
        if not self._assigned:
            # Serves the callback for errors; a consumer without partitions has no records.
            self._consumer.poll(0)
            stop.wait(wait)
            return []
        try:
            records = arrived(self._consumer, _RECORDS, wait)
        except KafkaException as failed:
            self._begin_again(f"{self.topic}: {failed.args[0].str()}")
            return []
        found = []
        reader = self._consumer
        for record in records:
            if self._consumer is not reader:
                break  # the rest of the batch is read again
            announced = self._read(record)
            if announced is not None:
                found.append(announced)
        return found

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # ---- records ------------------------------------------------------------------------------------------------

    def _read(self, record: Any) -> Announcement | None:
        from confluent_kafka import KafkaError

        error = record.error()
        if error is not None:
            match error.code():
                case KafkaError._PARTITION_EOF:
                    self._answered()
                    self._left.discard(record.partition())
                    self.caught_up = self.caught_up or not self._left
                case KafkaError.GROUP_AUTHORIZATION_FAILED:
                    pass  # librdkafka looks for the coordinator of a group that is never joined
                case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    self._begin_again(str(denied(self._kafka, "READ", f"topic {self.topic}")), PROBE_SECONDS)
                case _:
                    self._begin_again(f"{self.topic}: {error.str()}")
            return None
        self._answered()
        value = record.value()
        if value is None:
            return None  # a tombstone announces nothing
        place = f"{self.topic} partition {record.partition()} offset {record.offset()}"
        try:
            found = decode(value, ModelVersion, GateDecision)
            if isinstance(found, GateDecision):
                self.decisions.take(found)
                return None
            note = Withheld.of_headers(record.headers() or ())
            return Announcement(cast(ModelVersion, found), place, note)
        except BadRecord as bad:
            log.warning("%s: left out: %s", place, hide(str(bad)))
        except Exception:
            log.exception("%s: left out", place)
        self.unreadable += 1
        return None

    def _answered(self) -> None:
        self.contact, self.trouble = self._clock(), None

    # ---- brokers ------------------------------------------------------------------------------------------------

    def _probe(self) -> None:
        """Request the topic's partitions, and read new ones."""
        from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

        assert self._consumer is not None
        self._probe_at = self._clock() + (PROBE_SECONDS if self._assigned else _AGAIN_SECONDS)
        try:
            view = self._consumer.list_topics(self.topic, timeout=_ANSWER_SECONDS).topics[self.topic]
        except KafkaException as failed:
            self._failed(failed.args[0])
            return
        if view.error is not None:
            if view.error.name() == "TOPIC_AUTHORIZATION_FAILED":
                self.trouble = str(denied(self._kafka, "READ", f"topic {self.topic}"))
            else:
                self.trouble = (
                    f"topic {self.topic}: {view.error.str()}; does it exist? kinstream topics create"
                )
            return
        self._answered()
        identity = self._identify()
        if identity is not None and self._identity not in (None, identity) and self._assigned:
            # Offsets of another topic are not valid in this one: its records may be before them.
            log.warning("%s was re-created: reading from its beginning", self.topic)
            self._renew()
        self._identity = identity or self._identity
        new = set(view.partitions) - self._assigned
        if new:
            self._consumer.incremental_assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in new])
            if not self.caught_up and not self._assigned:
                self._left = new
            self._assigned |= new
            self._probe_at = self._clock() + PROBE_SECONDS

    def _topic_id(self) -> str | None:
        if self._cluster is None:
            self._cluster = Cluster(self._kafka)
        try:
            return self._cluster.topic_id(self.topic)
        except KinstreamError as error:
            # The consumer reports its own errors.
            log.debug("%s: %s", self.topic, error)
            return None

    def _begin_again(self, text: str, pause: float = _AGAIN_SECONDS) -> None:
        """Read everything from the beginning, once the brokers answer for the topic again."""
        self._renew()
        self._probe_at = self._clock() + pause
        self.trouble = hide(text)

    def _renew(self) -> None:
        """Create another consumer: the old one caches a topic's metadata and would use it for a re-created topic."""
        assert self._consumer is not None
        self._consumer.close()
        self._consumer, self._assigned = self._new(), set()

    def _failed(self, error: Any) -> None:
        # A refused login in the callback is a better reason than a missing answer.
        if self.trouble is None or error.name() not in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"):
            self.trouble = hide(f"{self._kafka.bootstrap_servers}: {error.str()}")

    def _on_error(self, error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            self.trouble = str(refused_login(self._kafka, error.str()))
        else:
            self._failed(error)
