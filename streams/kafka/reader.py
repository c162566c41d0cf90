"""Reads a range of a topic without a group: for replay, dead letters, models. It leaves no trace on the brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from operator import methodcaller
from typing import Any, Final, cast

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka.broker_errors import broker_error
from kinstream.streams.kafka.clients import confluent
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import denied
from kinstream.streams.records.message import Message
from kinstream.streams.settings import KafkaSettings

#: Longest wait for the next record while the end of the range is not reached.
PATIENCE_SECONDS = 30.0

#: A call that raises an error which the client has set beside a result. The interpreter does not check frequently
#: called methods for this, so the error would be raised at some later place.
_HEADERS: Final = methodcaller("headers")
#: As confluent-kafka's TIMESTAMP_LOG_APPEND_TIME, which takes the client to import.
_APPENDED: Final = 2


def arrived(consumer: Any, most: int, seconds: float) -> list[Any]:
    """Records as soon as there is one; none after so many seconds. `consume` alone waits that long for `most` of them.

    Raises
    ------
    KafkaException : as `consume`.
    """
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(most - 1, timeout=0)]


def ends(cluster: Cluster, topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of every partition; empty if there is no such topic."""
    view = cluster.view([topic]).topics.get(topic)
    return {} if view is None else {p: cluster.bounds(topic, p) for p in range(view.partitions)}


def read_range(
    kafka: KafkaSettings,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Message]:
    """Yield the records of each partition's [start, stop), partition by partition in its own order.

    Raises
    ------
    BrokerUnavailable : no record arrived for `patience` seconds before the end was reached.
    AccessDenied : this principal may not read the topic.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    left = {p: stop for p, (start, stop) in ranges.items() if start < stop}
    if not left:
        return
    consumer = Consumer(
        {
            **confluent(kafka),
            "group.id": "kinstream-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    previous = {p: ranges[p][0] - 1 for p in left}
    try:
        consumer.assign([TopicPartition(topic, p, ranges[p][0]) for p in left])
        last_progress = time.monotonic()
        while left:
            records = consumer.consume(500, timeout=0.2)
            if not records and time.monotonic() - last_progress > patience:
                raise BrokerUnavailable(
                    f"{topic}: the brokers at {kafka.bootstrap_servers} have sent nothing for {patience:.0f} s"
                )
            for record in cast(list[Any], records):
                p = -1 if record.partition() is None else int(record.partition())
                error = record.error()
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # librdkafka looks for the coordinator of a group that is never joined.
                    continue
                if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise denied(kafka, "READ", f"topic {topic}")
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise broker_error(kafka, error, f"topic {topic}")
                last_progress = time.monotonic()
                if p not in left:
                    continue
                if error is not None:
                    # The end of the partition: the remaining offsets up to `stop` are transaction markers.
                    if record.offset() >= left[p]:
                        del left[p]
                    continue
                if record.offset() < left[p]:
                    yield message_of(record, previous[p])
                    previous[p] = record.offset()
                if record.offset() >= left[p] - 1:
                    del left[p]
    finally:
        consumer.close()


def headers_of(r: Any) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a record of confluent-kafka; none if a name is not UTF-8, as in `odd_headers`."""
    try:
        return tuple(_HEADERS(r) or ())
    except (UnicodeDecodeError, SystemError) as error:
        if isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError):
            return ()
        raise


def message_of(r: Any, previous: int) -> Message:
    """A record of confluent-kafka; `previous` is the offset of the one before it in its partition."""
    kind, timestamp_ms = r.timestamp()
    return Message(
        r.topic(),
        r.partition(),
        r.offset(),
        timestamp_ms,
        r.key(),
        r.value(),
        headers_of(r),
        previous,
        kind == _APPENDED,
    )
