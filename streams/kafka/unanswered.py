"""What it means that brokers do not answer, in our words: those of the client library say nothing to a user."""

from __future__ import annotations

from typing import Any, Final

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.settings import KafkaSettings

#: Names of librdkafka's own errors that mean: no answer.
_SILENT: Final = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_RESOLVE",
    }
)
#: What it says of a partition that is gone, and of every partition while no broker tells it of any.
NOT_KNOWN: Final = frozenset({"_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})
_SHORTLY_SECONDS: Final = 2.0


def answers(admin: Any) -> bool:
    """Whether a broker answers at all, asked once and shortly."""
    from confluent_kafka import KafkaException

    try:
        admin.list_topics(timeout=_SHORTLY_SECONDS)
    except KafkaException:
        return False
    return True


def unanswered(kafka: KafkaSettings, about: str = "") -> BrokerUnavailable:
    """The error of a question that no broker answers.

    Parameters
    ----------
    about : what was asked for, such as "topic kinstream.events".
    """
    asked = f" (asked about {about})" if about else ""
    return BrokerUnavailable(
        f"No broker answers at {kafka.bootstrap_servers}{asked}: check KAFKA_BOOTSTRAP_SERVERS, the network and the "
        "brokers"
    )


def broker_error(kafka: KafkaSettings, error: Any, about: str = "") -> BrokerUnavailable:
    """What a KafkaError means that is about neither login nor permission."""
    if error.name() in _SILENT:
        return unanswered(kafka, about)
    place = f"{about}: " if about else ""
    return BrokerUnavailable(f"{place}the brokers at {kafka.bootstrap_servers} answer: {_bare(error.str())}")


def _bare(text: str) -> str:
    """Without librdkafka's word for where an error comes from."""
    for origin in ("Broker: ", "Local: "):
        text = text.removeprefix(origin)
    return text
