"""What a cluster says of itself: its id, its topics, where each partition begins and ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streams.clients import confluent
from streams.errors import BrokerUnavailable, SettingsError
from streams.settings import KafkaSettings, Settings
from streams.topics import CATALOGUE, Topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

log = logging.getLogger("kinstream.cluster")

#: One question to a broker; waiting for a broker that is away repeats it.
ANSWER_SECONDS: Final = 5.0
#: Between two questions to a partition that nobody leads at the moment.
_MOVING_SECONDS: Final = 0.2
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 10.0
_COORDINATOR_LATER: Final = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the cluster has it. `topic_id` is None where the brokers do not say (the embedded broker)."""

    name: str
    topic_id: str | None
    partitions: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster and some of its topics. `cluster_id` is None where the brokers do not say."""

    cluster_id: str | None
    brokers: int
    topics: dict[str, TopicView]


class Cluster:
    """Questions to the brokers, each with a deadline.

    Raises
    ------
    BrokerUnavailable : from every method, when the brokers do not answer.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        # Callbacks for errors that the answers tell as well; without them librdkafka prints.
        self._config: dict[str, Any] = {**confluent(kafka), "log_level": 0, "error_cb": lambda error: None}
        self._servers = kafka.bootstrap_servers
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None

    @property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(self._config)
        return self._admin

    @property
    def consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        if self._consumer is None:
            settings = {"group.id": "kinstream-questions", "enable.auto.commit": False}
            self._consumer = Consumer({**self._config, **settings})
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None

    # ---- waiting ------------------------------------------------------------------------------------------------

    def wait(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until a broker answers, with growing pauses, and say so once."""
        limit = time.monotonic() + seconds
        pause = _FIRST_WAIT
        told = False
        while True:
            try:
                self._metadata(None, min(ANSWER_SECONDS, max(limit - time.monotonic(), 1.0)))
            except BrokerUnavailable:
                left = limit - time.monotonic()
                if left <= 0:
                    raise BrokerUnavailable(
                        f"no broker answered at {self._servers} within {seconds:.0f} s: "
                        "check KAFKA_BOOTSTRAP_SERVERS, the network and the brokers"
                    ) from None
                if not told:
                    log.warning("no broker answers at %s; trying for %.0f s", self._servers, seconds)
                    told = True
                sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_WAIT)
            else:
                if told:
                    log.info("the brokers at %s answer again", self._servers)
                return

    def _metadata(self, topic: str | None, seconds: float = ANSWER_SECONDS) -> Any:
        from confluent_kafka import KafkaException

        try:
            if topic is None:
                return self.admin.list_topics(timeout=seconds)
            return self.admin.list_topics(topic, timeout=seconds)
        except KafkaException as error:
            raise BrokerUnavailable(f"{self._servers}: {error.args[0].str()}") from error

    # ---- describing ---------------------------------------------------------------------------------------------

    def view(self, topics: Iterable[str]) -> ClusterView:
        """Cluster id, and those of the topics that exist."""
        wanted = list(topics)
        found = self._metadata(None)
        known = {
            name: t for name, t in found.topics.items() if name in wanted and t.error is None and t.partitions
        }
        mock = _is_mock(found.cluster_id)
        # The embedded broker does not answer the question for ids, and the wait for it is long.
        ids = {} if mock else self._topic_ids(sorted(known))
        views = {name: TopicView(name, ids.get(name), len(t.partitions)) for name, t in known.items()}
        return ClusterView(None if mock else found.cluster_id, len(found.brokers), views)

    def _topic_ids(self, names: list[str]) -> dict[str, str]:
        from confluent_kafka import KafkaException, TopicCollection

        ids = {}
        if names:
            answers = self.admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)
            for name, future in answers.items():
                try:
                    ids[name] = str(future.result(timeout=ANSWER_SECONDS * 2).topic_id)
                except KafkaException as error:
                    raise BrokerUnavailable(f"{name}: {error.args[0].str()}") from error
        return ids

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, and last stable offset (the next one to be written, without open transactions)."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        place = TopicPartition(topic, partition)
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                low, high = self.consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)
                return int(low), int(high)
            except KafkaException as error:
                # Right after a broker's start, or while a partition moves, nobody leads it for a moment.
                moving = error.args[0].code() in (
                    KafkaError.NOT_LEADER_FOR_PARTITION,
                    KafkaError.LEADER_NOT_AVAILABLE,
                )
                if not moving or time.monotonic() >= deadline:
                    told = f"{topic} partition {partition}: {error.args[0].str()}"
                    raise BrokerUnavailable(told) from error
            time.sleep(_MOVING_SECONDS)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        """First offset whose record is not older than `time_ms`; None when all are older."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = self.consumer.offsets_for_times(
                [TopicPartition(topic, partition, time_ms)], ANSWER_SECONDS
            )
        except KafkaException as error:
            raise BrokerUnavailable(f"{topic} partition {partition}: {error.args[0].str()}") from error
        return None if found[0].offset < 0 else int(found[0].offset)

    def group_members(self, group: str) -> int:
        """How many consumers are in a group; 0 where there is none."""
        from confluent_kafka import KafkaException

        try:
            answer = self.admin.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS)[group]
            return len(answer.result(timeout=ANSWER_SECONDS * 2).members)
        except KafkaException as error:
            if error.args[0].name() in ("GROUP_ID_NOT_FOUND", "_UNSUPPORTED_FEATURE"):
                return 0
            raise BrokerUnavailable(f"group {group}: {error.args[0].str()}") from error

    def nobodys(self, group: str, topic: str, partitions: int) -> frozenset[int]:
        """Partitions that a settled group has assigned to none of its members; empty while it is not settled."""
        from confluent_kafka import ConsumerGroupState, KafkaException

        try:
            answer = self.admin.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS)[group]
            found = answer.result(timeout=ANSWER_SECONDS * 2)
        except KafkaException as error:
            raise BrokerUnavailable(f"group {group}: {error.args[0].str()}") from error
        if found.state != ConsumerGroupState.STABLE:
            return frozenset()
        assigned = {
            tp.partition
            for member in found.members
            for tp in member.assignment.topic_partitions
            if tp.topic == topic
        }
        return frozenset(range(partitions)) - assigned

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """The offsets that a group has committed, by partition; empty for a group that never did."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        # A consumer that never subscribes: librdkafka 2.16 crashes when an admin client asks for the offsets of a
        # group whose coordinator is not known yet (confluentinc/librdkafka pull request 5318).
        consumer = Consumer({**self._config, "group.id": group, "enable.auto.commit": False})
        places = [TopicPartition(topic, p) for p in range(partitions)]
        limit = time.monotonic() + ANSWER_SECONDS * 2
        try:
            while True:
                try:
                    found = consumer.committed(places, timeout=ANSWER_SECONDS)
                    return {tp.partition: tp.offset for tp in found if tp.offset >= 0}
                except KafkaException as error:
                    # On a young cluster the first question is what makes the topic of the groups.
                    if error.args[0].name() not in _COORDINATOR_LATER or time.monotonic() > limit:
                        raise BrokerUnavailable(f"group {group}: {error.args[0].str()}") from error
                    time.sleep(_FIRST_WAIT)
        finally:
            consumer.close()

    # ---- creating -----------------------------------------------------------------------------------------------

    def create(
        self, topics: Iterable[Topic], settings: Settings, deadline_seconds: float = 30.0
    ) -> list[str]:
        """Create those of the topics that do not exist; returns their names.

        Raises
        ------
        SettingsError : the brokers refuse a topic.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        view = self.view(t.name(settings.topics.prefix) for t in CATALOGUE)
        replication = min(settings.topics.replication, view.brokers)
        missing = [t for t in topics if t.name(settings.topics.prefix) not in view.topics]
        new = [
            NewTopic(
                t.name(settings.topics.prefix),
                num_partitions=settings.topics.partitions,
                replication_factor=replication,
                config=t.config(replication),
            )
            for t in missing
        ]
        created = []
        for name, future in (self.admin.create_topics(new) if new else {}).items():
            try:
                future.result(timeout=deadline_seconds)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise SettingsError(f"topic {name}: {error.args[0].str()}") from error
            created.append(name)
        self._wait_for(created, deadline_seconds)
        return created

    def _wait_for(self, names: list[str], seconds: float) -> None:
        limit = time.monotonic() + seconds
        while len(self.view(names).topics) < len(names):
            if time.monotonic() > limit:
                raise BrokerUnavailable(f"topics {', '.join(names)} were created but do not appear")
            time.sleep(0.1)

    def replication_warning(self, settings: Settings) -> str | None:
        """What to tell someone whose cluster is too small for the recommended replication."""
        brokers = self.view([]).brokers
        if brokers >= settings.topics.replication:
            return None
        return f"{brokers} broker(s): topics get replication {brokers}, not {settings.topics.replication}"


def _is_mock(cluster_id: str | None) -> bool:
    return cluster_id is None or cluster_id.startswith("mockCluster")
