"""Records read from a log and written to it: the two values between the pure machines and any transport."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from kinstream.streams.records.identity import Headers

#: A partition: its topic, and its number.
PartitionName = tuple[str, int]
#: How far the clocks of brokers, services and workers may be apart; Kerberos has the same limit.
SKEW_MS: Final = 300_000


class Message(NamedTuple):
    """One record as read from the log.

    Parameters
    ----------
    timestamp_ms : of the record in its log; not above 0 where it has none.
    previous : offset that the client returned before this one on the partition, or the seek position less one.
    appended : whether the log has set the time (`LogAppendTime`); otherwise the producer has (`CreateTime`).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    previous: int
    appended: bool = True

    def checksum(self) -> int:
        """CRC-32 of key and value, kept in the manifest to detect another log under the same name."""
        return zlib.crc32(self.value or b"", zlib.crc32(self.key or b""))


@dataclass(frozen=True, slots=True)
class Output:
    """One record to write. `partition` is None if the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None


def log_time(before_ms: int, record_ms: int) -> int:
    """The time of a log after its next record.

    It does not go back with a record of a broker whose clock is a little behind. But a time that is more than `SKEW_MS`
    ahead of the next record was wrong, and is given up.

    Parameters
    ----------
    before_ms : before the record; -1 for none.
    record_ms : of the record, in its log; not above 0 where it has none.

    Examples
    --------
    >>> log_time(1_000, 2_000), log_time(2_000, 1_000), log_time(720_000_000, 1_000), log_time(1_000, -1)
    (2000, 2000, 1000, 1000)
    """
    wrong = record_ms > 0 and before_ms > record_ms + SKEW_MS
    return record_ms if wrong else max(before_ms, record_ms)
