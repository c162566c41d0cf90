"""The form of a dead letter and of its redrive: the original bytes, and headers with the reason and the place.

A redrive goes back to the consumer's own input topic and names the consumer and the refused identity. The consumer
applies it only if its state still holds those parts as refused, so a redrive that is sent twice counts once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from kinstream.streams.agents.refusals import Rows, parse_rows, rows_text
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.identity import Headers
from kinstream.streams.records.message import Message, Output

CONSUMER: Final = "kinstream-dead-consumer"
REASON: Final = "kinstream-dead-reason"
DETAIL: Final = "kinstream-dead-detail"
REFUSED: Final = "kinstream-dead-refused"
ROWS: Final = "kinstream-dead-rows"
SIZE: Final = "kinstream-dead-size"
DIGEST: Final = "kinstream-dead-sha256"
_OWN: Final = frozenset({CONSUMER, REASON, DETAIL, REFUSED, ROWS, SIZE, DIGEST})

REDRIVE_CONSUMER: Final = "kinstream-redrive-consumer"
REDRIVE_REFUSED: Final = "kinstream-redrive-refused"
REDRIVE_ROWS: Final = "kinstream-redrive-rows"
REDRIVE_REASON: Final = "kinstream-redrive-reason"
_REDRIVE: Final = frozenset({REDRIVE_CONSUMER, REDRIVE_REFUSED, REDRIVE_ROWS})

#: A record too large even for the dead-letter topic keeps this much of its value, its digest and its place.
TRUNCATED_BYTES: Final = 64 * 1024
MAX_VALUE_BYTES: Final = 960_000
MAX_HEADER_BYTES: Final = 24 * 1024
#: Bytes that Kafka adds to a header: the lengths of its name and value.
_HEADER_OVERHEAD: Final = 6


@dataclass(frozen=True, slots=True)
class Redrive:
    """The consumer and the refusal that a redriven record belongs to."""

    consumer: str
    topic: str
    partition: int
    offset: int
    rows: Rows


def dead_letter(
    message: Message, consumer: str, reason: Reason, detail: str, rows: Rows, topic: str
) -> Output:
    """The dead letter of a refused message, for `topic`."""
    value = message.value
    added = [
        (CONSUMER, consumer),
        (REASON, reason.value),
        (DETAIL, detail[:1000]),
        (REFUSED, f"{message.topic}/{message.partition}/{message.offset}"),
        (ROWS, rows_text(rows)),
    ]
    if value is not None and len(value) > MAX_VALUE_BYTES:
        added += [(SIZE, str(len(value))), (DIGEST, hashlib.sha256(value).hexdigest())]
        value = value[:TRUNCATED_BYTES]
    # A detail may repeat content of the record, and no content may stop the refusal of its own record.
    own = tuple((name, text.encode("utf-8", "backslashreplace")) for name, text in added)
    return Output(topic, _bounded_key(message.key), value, (*_bounded(message.headers), *own))


def _bounded(headers: tuple[tuple[str, bytes | None], ...]) -> Headers:
    kept: list[tuple[str, bytes]] = []
    size = 0
    for name, value in headers:
        if name in _OWN or name in _REDRIVE or name == REDRIVE_REASON:
            continue
        size += len(name.encode("utf-8", "backslashreplace")) + len(value or b"") + _HEADER_OVERHEAD
        if size > MAX_HEADER_BYTES:
            break
        kept.append((name, value or b""))
    return tuple(kept)


def _bounded_key(key: bytes | None) -> bytes | None:
    return None if key is None else key[: 8 * 1024]


def redrive_of(message: Message) -> Redrive | None:
    """The redrive that a message is, or None for an ordinary one.

    Raises
    ------
    BadRecord : it has redrive headers that cannot be read.
    """
    if not message.headers:
        return None
    found = dict(message.headers)
    if REDRIVE_CONSUMER not in found:
        return None
    try:
        text = {name: (found[name] or b"").decode() for name in _REDRIVE}
        topic, partition, offset = text[REDRIVE_REFUSED].rsplit("/", 2)
        return Redrive(
            text[REDRIVE_CONSUMER], topic, int(partition), int(offset), parse_rows(text[REDRIVE_ROWS])
        )
    except (KeyError, ValueError) as error:
        raise BadRecord(Reason.BAD_IDENTITY, f"redrive headers that cannot be read: {error}") from error


def redriven_reason(message: Message) -> str | None:
    """Why the record of a redrive was refused; None for an ordinary message, and for redrives of earlier versions."""
    found = dict(message.headers).get(REDRIVE_REASON)
    return None if found is None else found.decode("utf-8", "replace")


def redrive(letter: Message) -> Output:
    """The redrive of a dead letter: its original key, value and headers, for the partition it came from.

    Raises
    ------
    BadRecord : the letter's headers cannot be read, or its value was too large to keep whole.
    """
    found = dict(letter.headers)
    if SIZE in found:
        raise BadRecord(
            Reason.TOO_LARGE, "only the first part of this record was kept; send it again from its source"
        )
    try:
        text = {name: (found[name] or b"").decode() for name in (CONSUMER, REFUSED, ROWS)}
        topic, partition, _ = text[REFUSED].rsplit("/", 2)
        place = int(partition)
    except (KeyError, ValueError) as error:
        raise BadRecord(Reason.BAD_IDENTITY, f"not a dead letter: {error}") from error
    original = tuple((name, value or b"") for name, value in letter.headers if name not in _OWN)
    added = (
        (REDRIVE_CONSUMER, text[CONSUMER].encode()),
        (REDRIVE_REFUSED, text[REFUSED].encode()),
        (REDRIVE_ROWS, text[ROWS].encode()),
        (REDRIVE_REASON, found.get(REASON) or b""),
    )
    return Output(topic, letter.key, letter.value, (*original, *added), place)
