"""Queries a cluster: its id, its topics, where each partition begins and ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kinstream.streams.errors import BrokerUnavailable, KinstreamError, SettingsError
from kinstream.streams.kafka.broker_errors import (
    LEADER_SECONDS,
    NO_LEADER,
    NOT_KNOWN,
    REQUEST_SECONDS,
    answer_of,
    answers,
    broker_error,
    coordinated,
    repeated,
    unanswered,
)
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.kafka.cluster_view import ClusterView, TopicView, allowed, is_mock, topic_id
from kinstream.streams.kafka.connection_errors import denied, diagnose, refused_login
from kinstream.streams.kafka.tokens.source import have_token, source_of
from kinstream.streams.settings import KafkaSettings, Settings
from kinstream.streams.topics import CATALOGUE, Topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

log = logging.getLogger("kinstream.cluster")

#: Seconds for one request to a broker; waiting for an absent broker repeats it.
ANSWER_SECONDS: Final = 5.0
#: Seconds for a request about topics and groups where a broker has answered before: busy brokers are not absent.
PATIENCE_SECONDS: Final = 30.0
#: Seconds between two diagnoses of why no broker answers.
_DIAGNOSIS_SECONDS: Final = 30.0
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 10.0
T = TypeVar("T")


class Cluster:
    """Requests to the brokers, each with a deadline.

    Raises
    ------
    BrokerUnavailable : from every method, when the brokers do not answer.
    LoginRefused : they refuse the login of this client, or it does not trust them.
    AccessDenied : they do not allow it the request.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        # A callback for errors: without one librdkafka prints.
        self._config: dict[str, Any] = {**confluent(kafka), "log_level": 0, "error_cb": self._on_error}
        self._kafka, self._servers = kafka, kafka.bootstrap_servers
        self._refused: str | None = None
        self._diagnosed_at: float | None = None
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._answered = False

    @property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            have_token(self._kafka)
            self._admin = AdminClient(self._config)
        return self._admin

    @property
    def consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        if self._consumer is None:
            have_token(self._kafka)
            settings = {"group.id": "kinstream-questions", "enable.auto.commit": False}
            self._consumer = Consumer({**self._config, **settings})
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None

    # ---- refusals -----------------------------------------------------------------------------------------------

    def _on_error(self, error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            self._refused = error.str()

    def _failed(
        self, error: Any, place: str, operation: str = "DESCRIBE", resource: str | None = None
    ) -> KinstreamError:
        """The error that a KafkaException means: a missing permission, a refused login, or brokers that do not answer.

        Parameters
        ----------
        operation, resource : of the request; `resource` is the place by default.
        """
        cause = error.args[0]
        if cause.name().endswith("_AUTHORIZATION_FAILED"):
            return denied(self._kafka, operation, resource or place)
        refusal = self._refusal() if cause.code() < 0 else None
        if refusal is None and cause.name() in NOT_KNOWN and not answers(self.admin):
            return unanswered(self._kafka, place)
        return refusal or broker_error(self._kafka, cause, "" if place == self._servers else place)

    def _refusal(self) -> KinstreamError | None:
        """The reason for a refused connection, or for a token that cannot be renewed."""
        if self._kafka.by_token and (failure := source_of(self._kafka).failure) is not None:
            return failure
        for client in (self._admin, self._consumer):
            if client is not None:
                # Serves the callback for errors. No record can arrive: nothing is ever assigned.
                client.poll(0)
        if self._refused is not None:
            reason, self._refused, self._diagnosed_at = self._refused, None, None
            if not self._kafka.by_token:  # A token may have expired since: the diagnosis tries the newest.
                return refused_login(self._kafka, reason)
        now = time.monotonic()
        if self._diagnosed_at is not None and now - self._diagnosed_at < _DIAGNOSIS_SECONDS:
            return None
        found = diagnose(self._kafka)
        # After a refusal the next request tries again: the watchdog ends the process after two in a row.
        self._diagnosed_at = now if found is None else None
        return found

    # ---- waiting ------------------------------------------------------------------------------------------------

    def wait(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until a broker answers, with growing pauses, and log it once.

        Raises
        ------
        BrokerUnavailable : none answered in time.
        LoginRefused : one refuses the login of this client, and would refuse the next attempt too.
        """
        limit = time.monotonic() + seconds
        pause, patience, reported = _FIRST_WAIT, _FIRST_WAIT / 2, False
        while True:
            # Only a diagnosis shows a refusal, so the first attempts are short.
            patience = min(patience * 2, ANSWER_SECONDS)
            self._diagnosed_at = None
            try:
                self._metadata_within(None, min(patience, max(limit - time.monotonic(), 1.0)))
            except BrokerUnavailable as error:
                left = limit - time.monotonic()
                advice = "check KAFKA_BOOTSTRAP_SERVERS, the network and the brokers"
                about = f"No broker answers at {self._servers}"
                if self._kafka.by_token and error is source_of(self._kafka).failure:
                    about, advice = "No token for the brokers", str(error)
                if left <= 0:
                    raise BrokerUnavailable(f"{about} within {seconds:.0f} s: {advice}") from None
                if not reported:
                    log.warning("%s; trying for %.0f s", about, seconds)
                    reported = True
                sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_WAIT)
            else:
                if reported:
                    log.info("the brokers at %s answer again", self._servers)
                return

    def _metadata(self, topic: str | None) -> Any:
        limit = time.monotonic() + (PATIENCE_SECONDS if self._answered else 0.0)
        while True:
            try:
                return self._metadata_within(topic, ANSWER_SECONDS)
            except BrokerUnavailable:
                if time.monotonic() >= limit:
                    raise

    def _metadata_within(self, topic: str | None, seconds: float) -> Any:
        from confluent_kafka import KafkaException

        try:
            if topic is None:
                found = self.admin.list_topics(timeout=seconds)
            else:
                found = self.admin.list_topics(topic, timeout=seconds)
        except KafkaException as error:
            raise self._failed(error, self._servers, resource=topic and f"topic {topic}") from error
        self._answered = True
        return found

    # ---- describing ---------------------------------------------------------------------------------------------

    def view(self, topics: Iterable[str]) -> ClusterView:
        """Cluster id, and those of the topics that exist.

        Raises
        ------
        AccessDenied : this principal may not see one of them.
        """
        wanted = list(topics)
        found = self._metadata(None)
        known = {
            name: t for name, t in found.topics.items() if name in wanted and t.error is None and t.partitions
        }
        mock = is_mock(found.cluster_id)
        if not mock:
            self._refuse_hidden([name for name in wanted if name not in known])
        # The embedded broker does not answer the request for ids, and its timeout is long.
        ids = {} if mock else self._topic_ids(sorted(known))
        views = {name: TopicView(name, ids.get(name), len(t.partitions)) for name, t in known.items()}
        return ClusterView(None if mock else found.cluster_id, len(found.brokers), views)

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic that exists, which differs after the topic is re-created; None if the brokers give none."""
        mock = is_mock(self._metadata(topic).cluster_id)
        return None if mock else self._topic_ids([topic])[topic]

    def _topic_ids(self, names: list[str]) -> dict[str, str | None]:
        from confluent_kafka import KafkaException, TopicCollection

        ids: dict[str, str | None] = {}
        if names:
            answers = self.admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
            for name, future in answers.items():
                try:
                    ids[name] = topic_id(answer_of(future, PATIENCE_SECONDS))
                except KafkaException as error:
                    raise self._failed(error, f"topic {name}") from error
        return ids

    def _refuse_hidden(self, names: list[str]) -> None:
        """Of topics missing from the list of all topics: those that exist, or may exist, for other principals.

        Raises
        ------
        AccessDenied : the brokers do not answer this.
        """
        from confluent_kafka import KafkaException, TopicCollection

        if not names:
            return
        answers = self.admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
        for name, future in answers.items():
            try:
                answer_of(future, PATIENCE_SECONDS)
            except KafkaException as error:
                if error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED":
                    raise denied(self._kafka, "DESCRIBE", f"topic {name}") from error

    def operations(self, topics: Iterable[str], groups: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """What this principal may do: operations by `topic NAME` and `group NAME`.

        Empty if it may not even describe the resource. None if the brokers give none, or the topic does not exist.
        """
        from confluent_kafka import KafkaException, TopicCollection

        named_topics, named_groups = list(topics), list(groups)
        if is_mock(self._metadata(None).cluster_id):
            return dict.fromkeys(
                [f"topic {name}" for name in named_topics] + [f"group {name}" for name in named_groups]
            )
        asked: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": REQUEST_SECONDS}
        found: dict[str, frozenset[str] | None] = {}
        if named_topics:
            answers = self.admin.describe_topics(TopicCollection(named_topics), **asked)
            for name, future in answers.items():
                try:
                    found[f"topic {name}"] = allowed(future, PATIENCE_SECONDS)
                except KafkaException as error:
                    raise self._failed(error, f"topic {name}") from error
        for name in named_groups:

            def described(name: str = name) -> frozenset[str] | None:
                answer = self.admin.describe_consumer_groups([name], **asked)[name]
                return allowed(answer, ANSWER_SECONDS)

            found[f"group {name}"] = self._of_group(name, described)
        return found

    def _of_group(self, group: str, request: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return coordinated(self._kafka, self.admin, group, request)
        except KafkaException as error:
            raise self._failed(error, f"group {group}") from error

    def config_of(self, topic: str) -> dict[str, str | None]:
        """The configuration of a topic, as the brokers have it. The embedded broker has none."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin._config import ConfigResource

        if is_mock(self._metadata(None).cluster_id):
            return {}
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        answer = self.admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource]
        try:
            return {key: entry.value for key, entry in answer_of(answer, PATIENCE_SECONDS).items()}
        except KafkaException as error:
            raise self._failed(error, f"topic {topic}", "DESCRIBE_CONFIGS") from error

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset, and last stable offset (the next one to be written, without open transactions)."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(topic, partition)

        def asked() -> tuple[int, int]:
            low, high = self.consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)
            return int(low), int(high)

        return self._of_leader(asked, topic, partition)

    def _of_leader(self, request: Callable[[], T], topic: str, partition: int) -> T:
        """The answer of the leader of a partition, which may have none for a time."""
        from confluent_kafka import KafkaException

        try:
            return repeated(request, NO_LEADER, LEADER_SECONDS, lambda: answers(self.admin))
        except KafkaException as error:
            if error.args[0].name() == "_UNKNOWN_PARTITION":
                # librdkafka's form of the error if it may not describe the topic.
                self._refuse_hidden([topic])
            where = f"{topic} partition {partition}"
            raise self._failed(error, where, resource=f"topic {topic}") from error

    def retention_seconds(self, topic: str) -> float | None:
        """How long a topic keeps a record; None if it keeps records for ever or is only compacted.

        Raises
        ------
        AccessDenied : this client may not read the topic's configuration.
        """
        config = self.config_of(topic)
        kept_ms = int(config.get("retention.ms") or -1)
        kept_for_ever = kept_ms < 0 or "delete" not in (config["cleanup.policy"] or "")
        return None if kept_for_ever else kept_ms / 1000

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        """First offset whose record is not older than `time_ms`; None when all are older."""
        from confluent_kafka import KafkaException, TopicPartition

        def asked() -> int | None:
            place = TopicPartition(topic, partition, time_ms)
            (found,) = self.consumer.offsets_for_times([place], ANSWER_SECONDS)
            if found.error is not None:
                raise KafkaException(found.error)
            return None if found.offset < 0 else int(found.offset)

        return self._of_leader(asked, topic, partition)

    def group_members(self, group: str) -> int:
        """How many consumers are in a group; 0 if it does not exist."""
        return len(self.member_ids(group))

    def member_ids(self, group: str) -> list[str]:
        """The ids of the consumers in a group; none if it does not exist."""
        from confluent_kafka import KafkaException

        def ids() -> list[str]:
            answer = self.admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group]
            try:
                return [member.member_id for member in answer_of(answer, ANSWER_SECONDS).members]
            except KafkaException as error:
                if error.args[0].name() in ("GROUP_ID_NOT_FOUND", "_UNSUPPORTED_FEATURE"):
                    return []
                raise

        return self._of_group(group, ids)

    def groups(self, prefix: str) -> list[str]:
        """The consumer groups with that prefix, as far as this principal may describe them."""
        from confluent_kafka import KafkaException

        try:
            answer = self.admin.list_consumer_groups(request_timeout=REQUEST_SECONDS)
            found = answer_of(answer, PATIENCE_SECONDS).valid
        except KafkaException as error:
            raise self._failed(error, "the consumer groups") from error
        return sorted(group.group_id for group in found if group.group_id.startswith(prefix))

    def nobodys(self, group: str, topic: str, partitions: int) -> frozenset[int]:
        """Partitions that a settled group has assigned to none of its members; empty while it is rebalancing."""
        from confluent_kafka import ConsumerGroupState, KafkaException

        # This is asked again and again, and a request that is given up stays in the client.
        if not answers(self.admin):
            raise self._refusal() or unanswered(self._kafka, f"group {group}")
        try:
            answer = self.admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group]
            found = answer_of(answer, ANSWER_SECONDS)
        except KafkaException as error:
            raise self._failed(error, f"group {group}") from error
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
        from confluent_kafka import Consumer, TopicPartition

        # A consumer that never subscribes: librdkafka 2.16 crashes when an admin client asks for the offsets of a
        # group whose coordinator is not known yet (confluentinc/librdkafka pull request 5318).
        consumer = Consumer({**self._config, "group.id": group, "enable.auto.commit": False})
        places = [TopicPartition(topic, p) for p in range(partitions)]
        try:
            found = self._of_group(group, lambda: consumer.committed(places, timeout=ANSWER_SECONDS))
            return {tp.partition: tp.offset for tp in found if tp.offset >= 0}
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
        AccessDenied : this principal may not create it.
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
        for name, future in (
            self.admin.create_topics(new, request_timeout=REQUEST_SECONDS) if new else {}
        ).items():
            try:
                answer_of(future, deadline_seconds)
            except KafkaException as error:
                if error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED":
                    raise denied(self._kafka, "CREATE", f"topic {name}") from error
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise SettingsError(f"topic {name}: {error.args[0].str()}") from error
            created.append(name)
        self._wait_for(created, deadline_seconds)
        return created

    def grow(self, topics: Mapping[str, int], deadline_seconds: float = 30.0) -> None:
        """Raise each topic to this number of partitions, and return when each has a leader. None is ever removed.

        Raises
        ------
        SettingsError : the brokers refuse.
        AccessDenied : this principal may not alter a topic.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewPartitions

        new = [NewPartitions(name, partitions) for name, partitions in topics.items()]
        for name, future in (
            self.admin.create_partitions(new, request_timeout=REQUEST_SECONDS) if new else {}
        ).items():
            try:
                answer_of(future, deadline_seconds)
            except KafkaException as error:
                if error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED":
                    raise denied(self._kafka, "ALTER", f"topic {name}") from error
                raise SettingsError(f"topic {name}: {error.args[0].str()}") from error
        limit = time.monotonic() + deadline_seconds
        while True:
            found = self._metadata(None).topics
            led = {name: sum(p.leader >= 0 for p in found[name].partitions.values()) for name in topics}
            if all(led[name] >= partitions for name, partitions in topics.items()):
                return
            if time.monotonic() > limit:
                raise BrokerUnavailable(f"the new partitions have no leaders: {led}")
            time.sleep(0.2)

    def _wait_for(self, names: list[str], seconds: float) -> None:
        limit = time.monotonic() + seconds
        while len(self.view(names).topics) < len(names):
            if time.monotonic() > limit:
                raise BrokerUnavailable(f"topics {', '.join(names)} were created but do not appear")
            time.sleep(0.1)
