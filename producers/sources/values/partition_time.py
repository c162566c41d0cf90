"""The time of a partition of a source, from the Kafka times of its records: no one producer can move it for all."""

from __future__ import annotations

from typing import Final

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.message import Message

#: How far the time in a record may be ahead of the time of its Kafka record.
MAX_AHEAD_MS: Final = 300_000
#: Kafka records were not written before 2000.
_EARLIEST_MS: Final = 946_684_800_000
#: Queries whose newest records say the time, where producers set the times of records.
QUERIES: Final = 32
#: A time has come when all but this share of them have reached it.
_BEHIND: Final = 4


def stamp_of(message: Message) -> int | None:
    """The time of a Kafka record; None where it has none, or one before 2000, such as seconds for milliseconds."""
    return message.timestamp_ms if message.timestamp_ms >= _EARLIEST_MS else None


def not_ahead(time_ms: int, message: Message, where: str) -> int:
    """The time of a field, which is data: it must not be ahead of the log.

    Parameters
    ----------
    where : begins the refusal.

    Raises
    ------
    BadRecord : it is more than `MAX_AHEAD_MS` ahead of the time of its Kafka record, if that has one.
    """
    log_ms = stamp_of(message)
    if log_ms is not None and time_ms > log_ms + MAX_AHEAD_MS:
        raise BadRecord(
            Reason.AHEAD_OF_LOG,
            f"{where}: {(time_ms - log_ms) // 1000} s ahead of its Kafka record; {MAX_AHEAD_MS // 1000} s are allowed",
        )
    return time_ms


class PartitionTime:
    """The time of a partition, a function of its log.

    Where the log stamps records (`LogAppendTime`), it is the time of the last one: if the clock of a broker was wrong,
    the next record corrects it. Where producers stamp them (`CreateTime`), the newest records of the last `QUERIES`
    queries count, one for each query, and the time is one that three in four of them have reached. So neither a
    producer whose clock is wrong, nor a burst of its records for one query, moves it.

    Examples
    --------
    >>> time = PartitionTime()
    >>> for query, at in (("a", 1000), ("b", 9_000_000), ("c", 1002), ("d", 1003)):
    ...     time.take(query, at, appended=False)
    >>> time.now_ms, time.latest_ms
    (1002, 9000000)
    """

    def __init__(self) -> None:
        self._recent: dict[str, int] = {}

    def take(self, query: str, time_ms: int, *, appended: bool) -> None:
        """Take the Kafka time of a record of a query.

        Parameters
        ----------
        appended : whether the log has set it.
        """
        if appended:
            self._recent.clear()
        self._recent.pop(query, None)
        self._recent[query] = time_ms
        if len(self._recent) > QUERIES:
            del self._recent[next(iter(self._recent))]

    @property
    def now_ms(self) -> int:
        """The time; -1 before the first record."""
        times = sorted(self._recent.values())
        return times[len(times) // _BEHIND] if times else -1

    @property
    def latest_ms(self) -> int:
        """The largest time that still counts; -1 before the first record."""
        return max(self._recent.values(), default=-1)

    def state(self) -> list[tuple[str, int]]:
        """The times that count, by query."""
        return list(self._recent.items())

    def restore(self, state: list[tuple[str, int]]) -> None:
        """Continue from what `state` returned."""
        self._recent = {query: time_ms for query, time_ms in state}
