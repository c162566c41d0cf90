"""What the id of a randomised list says to everybody: which pairs of its places were drawn, and its items.

A service that randomises the list of one model swaps pairs of places, each with probability 1/2. Builders need to know
the pairs, and whether a list came back as it was shown, and need no key for that. Which of the pairs were swapped, and
the model, are encrypted: `kinstream.gate.lists.randomisation` reads them. Form of an id: `ki2.` and, in
base64url, time and nonce, kind, place, number of items, a hash of each item, the encrypted body, the tag.
"""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

#: Begins every id of a randomised list, and names the version of its form.
PREFIX: Final = "ki2."
#: Begins every id of a drafted list: `kinstream.gate.lists.list_id`.
DRAFTED_PREFIX: Final = "ki1."
#: Begins every id of a list that is shown as it was found: `kinstream.gate.lists.plain_id`.
PLAIN_PREFIX: Final = "ki3."
_PREFIXES: Final = (PREFIX, DRAFTED_PREFIX, PLAIN_PREFIX)
#: Bytes before the encrypted body: of the time, and of time and nonce.
TIME_BYTES: Final = 6
HEAD_BYTES: Final = 12
TAG_BYTES: Final = 10
MARK_BYTES: Final = 3
_FIXED: Final = HEAD_BYTES + 3
#: What base64 is written with, in either form.
_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "-_+/")


class DrawKind(IntEnum):
    """How pairs of places were chosen.

    `FAIR_PAIRS`: neighbours, from the first place or the second one on. `SWAPS`: the first place and another one.
    """

    FAIR_PAIRS = 0
    SWAPS = 1


@dataclass(frozen=True, slots=True)
class Drawn:
    """The readable part of an id.

    Parameters
    ----------
    place : the first place of the first pair, 0 or 1; of swaps, the other place, from 1.
    marks : of each place, a hash of its item (`mark_of`), in the order in which the list was shown.
    """

    kind: DrawKind
    place: int
    marks: tuple[int, ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The upper and the lower place of each pair that was swapped with probability 1/2."""
        count = len(self.marks)
        if self.kind is DrawKind.SWAPS:
            return ((0, self.place),) if 0 < self.place < count else ()
        return tuple((upper, upper + 1) for upper in range(self.place, count - 1, 2))


@dataclass(frozen=True, slots=True)
class Parts:
    """An id in parts; whether it is genuine is not known.

    Parameters
    ----------
    head : time and nonce.
    signed : all that the tag is of.
    """

    drawn: Drawn
    head: bytes
    body: bytes
    signed: bytes
    tag: bytes


def written(head: bytes, drawn: Drawn) -> bytes:
    """The bytes of an id before its encrypted body."""
    return head + bytes((drawn.kind, drawn.place, len(drawn.marks))) + bytes_of_marks(drawn.marks)


def id_of(signed: bytes, tag: bytes) -> str:
    """The id of these bytes."""
    return as_text(PREFIX, signed + tag)


def as_text(prefix: str, raw: bytes) -> str:
    """The one spelling of an id with these bytes."""
    return prefix + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def bytes_of(prefix: str, list_id: str) -> bytes | None:
    """The bytes of an id in its one spelling; None for any other text.

    Base64 has many spellings of the same bytes: with the other alphabet, with padding, with other spare bits. If they
    were accepted, a client with one id could send its list as many lists.
    """
    if not list_id.startswith(prefix):
        return None
    text = list_id[len(prefix) :]
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return raw if as_text(prefix, raw) == list_id else None


def time_of(list_id: str) -> int | None:
    """When a list with an id of a service was shown, by the service's clock; None for any other id.

    Whether the id is genuine is not known.
    """
    for prefix in _PREFIXES:
        raw = bytes_of(prefix, list_id)
        if raw is not None and len(raw) >= HEAD_BYTES:
            return int.from_bytes(raw[:TIME_BYTES], "big")
    return None


def one_spelling(list_id: str) -> str:
    """The id whose bytes a text spells, however it spells them; the id of another list as it is."""
    for prefix in _PREFIXES:
        if list_id.startswith(prefix) and bytes_of(prefix, list_id) is None:
            text = "".join(one for one in list_id[len(prefix) :] if one in _ALPHABET)
            try:
                return as_text(prefix, base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_"))
            except ValueError:
                return list_id
    return list_id


def parts_of(list_id: str) -> Parts | None:
    """The parts of an id; None if it is not the id of a randomised list, in its one spelling."""
    raw = bytes_of(PREFIX, list_id)
    if raw is None:
        return None
    signed, tag = raw[:-TAG_BYTES], raw[-TAG_BYTES:]
    if len(signed) < _FIXED:
        return None
    kind, place, count = signed[HEAD_BYTES:_FIXED]
    end = _FIXED + count * MARK_BYTES
    if kind not in DrawKind.__members__.values() or len(signed) < end:
        return None
    marks = marks_of_bytes(signed[_FIXED:end])
    return Parts(Drawn(DrawKind(kind), place, marks), signed[:HEAD_BYTES], signed[end:], signed, tag)


def bytes_of_marks(marks: Iterable[int]) -> bytes:
    """Hashes of items as an id has them."""
    return b"".join(mark.to_bytes(MARK_BYTES, "little") for mark in marks)


def marks_of_bytes(data: bytes) -> tuple[int, ...]:
    """The hashes in these bytes of an id."""
    return tuple(
        int.from_bytes(data[at : at + MARK_BYTES], "little") for at in range(0, len(data), MARK_BYTES)
    )


def mark_of(space: str, item: str) -> int:
    """The hash of an item: 24 bits."""
    data = item.encode("utf-8", "surrogatepass")
    found = hashlib.blake2b(data, digest_size=MARK_BYTES, salt=salt_of(space)).digest()
    return int.from_bytes(found, "little")


def salt_of(space: str) -> bytes:
    """The salt of hashes within a space."""
    return hashlib.blake2b(space.encode(), digest_size=16).digest()
