"""Errors for brokers that do not answer, with advice that the client library's messages lack."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

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
_SHORTLY_SECONDS: Final = 5.0
T = TypeVar("T")
#: Seconds that a coordinator may take to be there: the first request about groups on a new cluster creates its topic.
COORDINATOR_SECONDS: Final = 30.0
#: Seconds that a partition may have no leader: while a busy broker makes files, after a broker's start, while it moves.
LEADER_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.2
#: Seconds of an administrative request. librdkafka 2.16 aborts the process if one ends before its coordinator is known,
#: and a broker answers later (confluentinc/librdkafka issue 4605): `answer_of` waits for a shorter time.
REQUEST_SECONDS: Final = 600.0
NO_COORDINATOR: Final = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)
NO_LEADER: Final = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"})
#: How librdkafka ends a request for whose coordinator or leader it has waited itself.
_WAITED: Final = frozenset({"_TIMED_OUT", "_WAIT_COORD"})


def answers(admin: Any) -> bool:
    """Whether a broker answers at all, by one request with a short timeout."""
    from confluent_kafka import KafkaException

    try:
        admin.list_topics(timeout=_SHORTLY_SECONDS)
    except KafkaException:
        return False
    return True


def answer_of(future: Any, seconds: float) -> Any:
    """The answer to an administrative request of `REQUEST_SECONDS`.

    Raises
    ------
    KafkaException
        The brokers refuse, or do not answer in that many seconds.
    """
    from confluent_kafka import KafkaError, KafkaException

    try:
        return future.result(timeout=seconds)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


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


def comes(error: Any, later: frozenset[str], answered: Callable[[], bool]) -> bool:
    """Whether a KafkaException says that nobody leads or coordinates yet what a request is about.

    Parameters
    ----------
    later : names of the errors that say so.
    answered : whether the brokers answer another request: then a timeout says so too.
    """
    name = error.args[0].name()
    return name in later or (name in _WAITED and answered())


def repeated(
    request: Callable[[], T], later: frozenset[str], seconds: float, answered: Callable[[], bool]
) -> T:
    """The answer of a request that is repeated while nobody leads or coordinates what it is about, as `comes` says.

    Raises
    ------
    KafkaException
        Of the request, for another reason or after that many seconds.
    """
    from confluent_kafka import KafkaException

    limit = time.monotonic() + seconds
    while True:
        try:
            return request()
        except KafkaException as error:
            if time.monotonic() >= limit or not comes(error, later, answered):
                raise
            time.sleep(_AGAIN_SECONDS)


def coordinated(kafka: KafkaSettings, admin: Any, group: str, request: Callable[[], T]) -> T:
    """The answer of a request about a group, after its coordinator is there.

    Raises
    ------
    BrokerUnavailable
        The brokers answer, and none coordinates the group.
    KafkaException
        Of the request, for another reason.
    """
    from confluent_kafka import KafkaException

    def answered() -> bool:
        return answers(admin)

    try:
        return repeated(request, NO_COORDINATOR, COORDINATOR_SECONDS, answered)
    except KafkaException as error:
        if not comes(error, NO_COORDINATOR, answered):
            raise
        raise BrokerUnavailable(
            f"The brokers at {kafka.bootstrap_servers} answer, but none coordinates the group {group} yet: try again "
            "in a minute. If that does not help, they cannot create the topic __consumer_offsets: compare "
            "offsets.topic.replication.factor with the number of brokers"
        ) from error
