"""Requests about consumer groups. On a new cluster the first of them creates the topic that a coordinator keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka.unanswered import answers
from kinstream.streams.settings import KafkaSettings

T = TypeVar("T")
#: Seconds that a coordinator may take to be there, and between two requests.
WAIT_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.5
_LATER: Final = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})
#: How librdkafka ends a request for whose coordinator it has waited itself.
_WAITED: Final = frozenset({"_TIMED_OUT", "_WAIT_COORD"})


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

    limit = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return request()
        except KafkaException as error:
            name = error.args[0].name()
            if name not in _LATER and not (name in _WAITED and answers(admin)):
                raise
            if time.monotonic() >= limit:
                raise BrokerUnavailable(
                    f"The brokers at {kafka.bootstrap_servers} answer, but none coordinates the group {group} yet: try "
                    "again in a minute. If that does not help, they cannot create the topic __consumer_offsets: "
                    "compare offsets.topic.replication.factor with the number of brokers"
                ) from error
            time.sleep(_AGAIN_SECONDS)
