"""The clock of this machine beside those of the brokers: what is said where they are too far apart."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from kinstream.streams.records.message import SKEW_MS, Message

_LOG_APPEND_TIME: Final = 2
#: The stamp of every record on librdkafka's mock cluster, the embedded broker: it is of no clock.
_EMBEDDED_MS: Final = 1234
_MEND: Final = "set the clock that is wrong, as by NTP"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def apart(delivered: Any) -> str | None:
    """How far this machine's clock is from a broker's that has stamped a delivered record; None if that is not far.

    The broker has stamped it after it was handed over and before it was confirmed, however long both took.
    """
    kind, stamped = delivered.timestamp()
    if kind != _LOG_APPEND_TIME or stamped == _EMBEDDED_MS:
        return None
    confirmed = _now_ms()
    handed_over = confirmed - int((delivered.latency() or 0.0) * 1000)
    ahead, behind = handed_over - stamped, stamped - confirmed
    if max(ahead, behind) <= SKEW_MS:
        return None
    how = f"{ahead / 1000:,.0f} s ahead of" if ahead > 0 else f"{behind / 1000:,.0f} s behind"
    return (
        f"the clock of this machine says {_text(confirmed)}, and is {how} that of the broker of {delivered.topic()} "
        f"partition {delivered.partition()}: {_MEND}"
    )


def is_of_time(name: str, text: str) -> bool:
    """Whether a broker has rejected a record for its time, by librdkafka's name of the error or by its text.

    Of a batch, all records are reported as invalid ones; ours have no other fault that a broker looks for.
    """
    return name in ("INVALID_TIMESTAMP", "INVALID_RECORD") or "Invalid timestamp" in text


def rejected_for_its_time(text: str) -> str:
    """What is said of such a rejection."""
    return (
        f"{text}. The clock of this machine, which says {_text(_now_ms())}, and that of the broker are too far apart "
        f"for the topic: {_MEND}. With message.timestamp.type=LogAppendTime, as new topics have, brokers stamp the "
        "records themselves: kinstream check names the command"
    )


def later(record: Message) -> str | None:
    """What is said of a record in the log that is of a later time than now; None if it is of none."""
    ahead = record.timestamp_ms - _now_ms()
    if ahead <= SKEW_MS:
        return None
    return (
        f"{record.topic} partition {record.partition} offset {record.offset} is of a time that is "
        f"{ahead / 1000:,.0f} s after this machine's clock, which says {_text(_now_ms())}: this clock is behind, or "
        "that of the broker or of the writer was ahead. What is stamped by a clock that is behind may be past its "
        f"retention at once: {_MEND}"
    )


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
