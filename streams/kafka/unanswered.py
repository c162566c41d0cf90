"""Errors for brokers that do not answer, with advice that the client library's messages lack."""

from __future__ import annotations

from typing import Any, Final

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.settings import KafkaSettings

#: Names of librdkafka's own errors that mean no answer.
_SILENT: Final = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_RESOLVE",
    }
)
#: Its error for a missing partition, and for every partition while no broker describes any.
NOT_KNOWN: Final = frozenset({"_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})
_SHORTLY_SECONDS: Final = 2.0


def answers(admin: Any) -> bool:
    """Whether a broker answers at all, by one request with a short timeout."""
    from confluent_kafka import KafkaException

    try:
        admin.list_topics(timeout=_SHORTLY_SECONDS)
    except KafkaException:
        return False
    return True


def unanswered(kafka: KafkaSettings, about: str = "") -> BrokerUnavailable:
    """The error for a request that no broker answers.

    Parameters
    ----------
    about : the subject of the request, such as "topic kinstream.events".
    """
    asked = f" (request for {about})" if about else ""
    return BrokerUnavailable(
        f"No broker answers at {kafka.bootstrap_servers}{asked}: check KAFKA_BOOTSTRAP_SERVERS, the network and the "
        "brokers"
    )


def broker_error(kafka: KafkaSettings, error: Any, about: str = "") -> BrokerUnavailable:
    """The error for a KafkaError about neither login nor permission."""
    if error.name() in _SILENT:
        return unanswered(kafka, about)
    place = f"{about}: " if about else ""
    return BrokerUnavailable(f"{place}the brokers at {kafka.bootstrap_servers} answer: {_bare(error.str())}")


def _bare(text: str) -> str:
    """The text without librdkafka's note on the origin of the error."""
    for origin in ("Broker: ", "Local: "):
        text = text.removeprefix(origin)
    return text
