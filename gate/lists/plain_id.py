"""The id of a list that a service shows as it was found, and what the id of any list says to the owners of the key.

Form: `ki3.` and, in base64url, time and nonce, a hash of each item, the tag. So whoever has the key knows without any
memory that a list was shown, when, and which items it had. Lists of more than `MAX_ITEMS` items leave the hashes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kinstream.gate.lists import list_id as drafted
from kinstream.gate.lists import randomisation
from kinstream.gate.lists.list_id import MAX_ITEMS, NONCE_BYTES, Keys, mark_of
from kinstream.streams.records.randomised_id import (
    HEAD_BYTES,
    PLAIN_PREFIX,
    TAG_BYTES,
    TIME_BYTES,
    as_text,
    bytes_of,
    bytes_of_marks,
    marks_of_bytes,
)


class Known(NamedTuple):
    """What a genuine id says.

    Parameters
    ----------
    time_ms : when the list was shown, by the service's clock.
    marks : hashes of its items (`mark_of`); None if the id has none.
    """

    time_ms: int
    marks: tuple[int, ...] | None


def plain_id(keys: Keys, space: str, items: Sequence[str], *, time_ms: int, nonce: bytes) -> str:
    """The id of a list.

    Parameters
    ----------
    nonce : `NONCE_BYTES` random bytes.

    Examples
    --------
    >>> keys = Keys("a secret of a deployment")
    >>> made = plain_id(keys, "docs", ["a", "b"], time_ms=1_000, nonce=b"random")
    >>> known(keys, "docs", made).time_ms, known(keys, "other", made)
    (1000, None)
    """
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
    marks = [mark_of(space, item) for item in items] if len(items) <= MAX_ITEMS else []
    data = time_ms.to_bytes(TIME_BYTES, "big") + nonce
    data += bytes_of_marks(marks)
    return as_text(PLAIN_PREFIX, data + keys.tag(space, PLAIN_PREFIX.encode() + data))


def known(keys: Keys, space: str, list_id: str) -> Known | None:
    """What the id of any list says; None if it was not made with these keys for this space, or was changed."""
    raw = bytes_of(PLAIN_PREFIX, list_id)
    if raw is None:
        other = drafted.read(keys, space, list_id)
        if other is not None:
            return Known(other.time_ms, other.marks)
        found = randomisation.read(keys, space, list_id)
        return None if found is None else Known(found.time_ms, found.drawn.marks)
    data, tag = raw[:-TAG_BYTES], raw[-TAG_BYTES:]
    if len(data) < HEAD_BYTES or keys.made(space, PLAIN_PREFIX.encode() + data, tag) is None:
        return None
    return Known(int.from_bytes(data[:TIME_BYTES], "big"), marks_of_bytes(data[HEAD_BYTES:]) or None)
