"""The messages of a replay: a range of a topic, read without a group.

Nothing here commits, joins or writes anything: the running system is not affected by a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.message import Message
from kinstream.streams.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a log: an offset, or a time in milliseconds since the epoch."""

    offset: int | None = None
    time_ms: int | None = None


def parse_point(text: str) -> Point:
    """An offset, or an ISO 8601 time; one without a zone is UTC.

    Raises
    ------
    SettingsError : the text is neither.

    Examples
    --------
    >>> parse_point("1200").offset, parse_point("2024-05-01T12:00").time_ms
    (1200, 1714564800000)
    """
    if text.isascii() and text.isdigit():
        return Point(offset=int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"{text!r} is neither an offset nor an ISO 8601 time such as 2026-05-01T12:00"
        ) from None
    return Point(time_ms=int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The range of a topic to read, and the start of its log.

    Parameters
    ----------
    ranges : [start, stop) of each partition.
    log_starts : first offset that each partition still holds.
    """

    topic: str
    ranges: Mapping[int, tuple[int, int]]
    log_starts: Mapping[int, int]

    @property
    def starts(self) -> dict[int, int]:
        return {p: start for p, (start, _) in self.ranges.items()}

    @property
    def stops(self) -> dict[int, int]:
        return {p: stop for p, (_, stop) in self.ranges.items()}

    def size(self) -> int:
        """Offsets to go through, transaction markers included."""
        return sum(max(0, stop - start) for start, stop in self.ranges.values())

    def messages(self, kafka: KafkaSettings) -> Iterator[Message]:
        """The records, each partition in its order.

        Raises
        ------
        BrokerUnavailable : no record arrived for too long before the end was reached.
        """
        return read_range(kafka, self.topic, self.ranges)


def topic_range(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Point | None = None,
    end: Point | None = None,
    births: Mapping[int, int] | None = None,
    stops: Mapping[int, int] | None = None,
) -> TopicRange:
    """Find the offsets of a range; without an end, up to the current last stable offset.

    Parameters
    ----------
    births : where a partition begins without `start`; by default at the log's start.
    stops : end offsets in addition to `end`.

    Raises
    ------
    SettingsError : there is no such topic or partition.
    BrokerUnavailable : the brokers do not answer.
    """
    bounds = ends(cluster, topic)
    if not bounds:
        raise SettingsError(f"there is no topic {topic}: kinstream topics create, or another topics.prefix")
    wanted = sorted(bounds if partitions is None else set(partitions))
    if unknown := [p for p in wanted if p not in bounds]:
        raise SettingsError(f"{topic} has partitions 0 to {max(bounds)}, not {unknown[0]}")
    ranges = {}
    for p in wanted:
        low, high = bounds[p]
        first = (births or {}).get(p, low) if start is None else _offset(cluster, topic, p, start, high)
        last = high if end is None else _offset(cluster, topic, p, end, high)
        stop = min(last, high, (stops or {}).get(p, high))
        begin = max(low, first)
        ranges[p] = (begin, max(begin, stop))
    return TopicRange(topic, ranges, {p: bounds[p][0] for p in wanted})


def _offset(cluster: Cluster, topic: str, partition: int, point: Point, end: int) -> int:
    if point.offset is not None:
        return point.offset
    found = cluster.offset_at(topic, partition, point.time_ms or 0)
    return end if found is None else found
