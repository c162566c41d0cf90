"""A cluster and its topics, as they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kinstream.streams.kafka.broker_errors import answer_of

#: An id of 128 zero bits.
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the cluster has it. `topic_id` is None if the brokers give none (the embedded broker)."""

    name: str
    topic_id: str | None
    partitions: int


def topic_id(found: Any) -> str | None:
    """The id in a description of confluent-kafka; None from brokers that have none."""
    return None if found.topic_id is None else known_id(str(found.topic_id))


def known_id(given: str | None) -> str | None:
    """An id as it was given or recorded; None for that of brokers without ids."""
    return None if given == _NO_ID else given


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster and some of its topics. `cluster_id` is None if the brokers give none."""

    cluster_id: str | None
    brokers: int
    topics: dict[str, TopicView]


def is_mock(cluster_id: str | None) -> bool:
    """Whether a cluster of that id is librdkafka's own, for tests and demonstrations."""
    return cluster_id is None or cluster_id.startswith("mockCluster")


def allowed(answer: Any, seconds: float) -> frozenset[str] | None:
    """The operations that a described topic or group allows, as `Cluster.operations` gives them.

    Raises
    ------
    KafkaException
        The brokers refuse for another reason, or do not answer in that many seconds.
    """
    from confluent_kafka import KafkaException

    try:
        operations = answer_of(answer, seconds).authorized_operations
    except KafkaException as error:
        name = error.args[0].name()
        if name.endswith("_AUTHORIZATION_FAILED"):
            return frozenset()
        if name in ("UNKNOWN_TOPIC_OR_PART", "GROUP_ID_NOT_FOUND", "_UNSUPPORTED_FEATURE"):
            return None
        raise
    return None if operations is None else frozenset(one.name for one in operations)
