"""The id of a drafted list. It holds all that is needed to credit its clicks, and only the key's owners can read it.

A service gives a drafted list such an id as its `list_id`; the click event that comes back with it needs nothing else:
no other record, no join. It is encrypted, so that nobody can learn whose pick an item was, and it carries a tag, so
that a forged or changed id is detected. Form: `ki1.` and, in base64url, time and nonce, the encrypted body, the tag.
An id has one spelling; any other text that would decode to the same is refused.

Keys are changed without a gap: ids are made with one key, and read with that and with the one that retires.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kinstream.gate.lists.draft import SIDES, Draft, Side, credit, team_draft
from kinstream.gate.lists.varints import read_varint, varint
from kinstream.streams.records.gate import Version
from kinstream.streams.records.randomised_id import (
    DRAFTED_PREFIX,
    MARK_BYTES,
    TIME_BYTES,
    as_text,
    bytes_of,
    bytes_of_marks,
    marks_of_bytes,
    salt_of,
)
from kinstream.streams.records.randomised_id import mark_of as mark_of
from kinstream.streams.settings import Settings

#: Begins every id of a drafted list. Ids of other lists do not matter to the gate.
PREFIX: Final = DRAFTED_PREFIX
#: Most items of a drafted list.
MAX_ITEMS: Final = 255
NONCE_BYTES: Final = 6
_TAG_BYTES: Final = 10
_SERVING_EMPTY: Final = 1
_CANDIDATE_EMPTY: Final = 2
#: Items may be the pick of both sides. In drafts of earlier versions, a coin decided whose they were.
_SHARED: Final = 4
#: A newer model than the candidate follows the two models.
_NEWEST: Final = 8
_HEAD: Final = TIME_BYTES + NONCE_BYTES


class Keys:
    """The keys of one deployment, from its secret.

    Parameters
    ----------
    secret : of the key that ids are made with; at least 16 characters.
    retiring : of a key whose ids are still read; empty for none.
    """

    def __init__(self, secret: str, retiring: str = "") -> None:
        root = hashlib.blake2b(secret.encode(), digest_size=32, person=b"kinstream-gate").digest()
        self._tag, self._cipher, self._coin = (
            hashlib.blake2b(root, digest_size=32, person=name).digest()
            for name in (b"tag", b"cipher", b"coin")
        )
        self._retiring = Keys(retiring) if retiring else None

    def made(self, space: str, data: bytes, tag: bytes) -> Keys | None:
        """The key that has made the tag of an id's data in that space; None if it is none of these."""
        if hmac.compare_digest(tag, self.tag(space, data)):
            return self
        return None if self._retiring is None else self._retiring.made(space, data, tag)

    def tag(self, space: str, data: bytes) -> bytes:
        """The tag of an id's data in that space."""
        text = space.encode()
        whole = len(text).to_bytes(4, "little") + text + data
        return hashlib.blake2b(whole, digest_size=_TAG_BYTES, key=self._tag).digest()

    def mask(self, head: bytes, data: bytes) -> bytes:
        """The data, encrypted or decrypted, with a stream of the key and the id's own head."""
        size = len(data)
        blocks = b"".join(
            hashlib.blake2b(head + n.to_bytes(2, "little"), key=self._cipher).digest()
            for n in range(-(-size // 64))
        )
        return (int.from_bytes(data) ^ int.from_bytes(blocks[:size])).to_bytes(size)

    @property
    def seed(self) -> int:
        """Of the coins of drafts: without the key nobody can foresee them."""
        return int.from_bytes(self._coin[:8], "little", signed=True)

    def chosen(self, space: str, query: bytes, share: float) -> bool:
        """Whether a query is one of the share that gets drafted lists: always the same answer for the same query."""
        return self.among(space, query, 0.0, share)

    def among(self, space: str, query: bytes, low: float, high: float) -> bool:
        """Whether the hash of a query, as a share of all hashes, is `low` or more and below `high`."""
        data = hashlib.blake2b(
            query, digest_size=8, key=self._coin, person=b"share", salt=salt_of(space)
        ).digest()
        return low * 2.0**64 <= int.from_bytes(data, "little") < high * 2.0**64


@dataclass(frozen=True, slots=True)
class Impression:
    """A drafted list as its id holds it.

    Parameters
    ----------
    time_ms : when it was shown, by the service's clock.
    marks : of each place, a hash of its item (`mark_of`).
    picks : whose pick each item was.
    fresh : places of items that are new in the catalogue.
    empty : the sides whose ranking had no item.
    shared : whether an item that was the best one left of both rankings is the pick of both. In drafts of earlier
        versions a coin decided whose it was.
    newest : a newer model that the service could have drafted with in the place of the candidate; None without one.
    """

    time_ms: int
    serving: Version
    candidate: Version
    marks: tuple[int, ...]
    picks: tuple[Side, ...]
    fresh: frozenset[int] = frozenset()
    empty: frozenset[Side] = frozenset()
    shared: bool = True
    newest: Version | None = None

    @property
    def firsts(self) -> tuple[int, ...]:
        """The marks of the first pick of each side: they depend on the two rankings, and not on the coins."""
        wanted = ((side, Side.BOTH) for side in SIDES)
        found = (
            next((m for m, p in zip(self.marks, self.picks, strict=True) if p in ps), -1) for ps in wanted
        )
        return tuple(found)

    def outcome(self, space: str, clicked: Iterable[str]) -> tuple[float, frozenset[int]]:
        """The credit of the candidate, as `draft.credit`, and the marks of the shown items among the clicked ones."""
        shown = frozenset(self.marks)
        found = {mark_of(space, item) for item in clicked} & shown
        return credit(Draft(self.marks, self.picks), found), frozenset(found)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a service shows: the list, and the id to show with it."""

    list_id: str
    items: tuple[str, ...]


def show(
    keys: Keys,
    space: str,
    rankings: tuple[tuple[Version, Sequence[str]], tuple[Version, Sequence[str]]],
    size: int,
    *,
    time_ms: int,
    nonce: bytes,
    fresh: Collection[str] = (),
    newest: Version | None = None,
) -> Shown:
    """Draft a list from the serving and the candidate ranking, and give it its id.

    Parameters
    ----------
    rankings : the serving model and its items, best first, and then the candidate's.
    size : items to show, at most `MAX_ITEMS`.
    nonce : `NONCE_BYTES` random bytes.
    fresh : items that are new in the catalogue.
    newest : as in `Impression`.

    Examples
    --------
    >>> from kinstream.streams.records.gate import UNADAPTED
    >>> keys = Keys("a secret of a deployment")
    >>> rankings = (UNADAPTED, ["a", "b", "c"]), (Version(1, 0, 500), ["c", "a", "d"])
    >>> shown = show(keys, "docs", rankings, 3, time_ms=1_000, nonce=b"random")
    >>> read(keys, "docs", shown.list_id).candidate
    Version(generation=1, epoch=0, step=500)
    >>> read(keys, "other", shown.list_id) is None
    True
    """
    (serving, first), (candidate, second) = rankings
    head = time_ms.to_bytes(TIME_BYTES, "big") + nonce
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
    draft = team_draft(
        first, second, min(size, MAX_ITEMS), seed=keys.seed, impression=f"{space}/{head.hex()}"
    )
    empty = {side for side, ranking in ((Side.SERVING, first), (Side.CANDIDATE, second)) if not ranking}
    impression = Impression(
        time_ms,
        serving,
        candidate,
        tuple(mark_of(space, item) for item in draft.items),
        draft.picks,
        frozenset(n for n, item in enumerate(draft.items) if item in fresh),
        frozenset(empty),
        newest=newest,
    )
    return Shown(list_id_of(keys, space, impression, nonce), draft.items)


def list_id_of(keys: Keys, space: str, impression: Impression, nonce: bytes) -> str:
    """The id of an impression."""
    head = impression.time_ms.to_bytes(TIME_BYTES, "big") + nonce
    data = head + keys.mask(head, _body_of(impression))
    return as_text(PREFIX, data + keys.tag(space, data))


def read(keys: Keys, space: str, list_id: str) -> Impression | None:
    """The impression of an id; None for an id that was not made with these keys for this space, or was changed."""
    raw = bytes_of(PREFIX, list_id) or b""
    data, tag = raw[:-_TAG_BYTES], raw[-_TAG_BYTES:]
    maker = keys.made(space, data, tag) if len(data) >= _HEAD else None
    if maker is None:
        return None
    head, body = data[:_HEAD], maker.mask(data[:_HEAD], data[_HEAD:])
    try:
        found = _impression_of(int.from_bytes(head[:TIME_BYTES], "big"), body)
    except IndexError:
        found = None
    # The bytes of a randomised list's id, with `ki2.` before them, have a tag that is right, and are no such body.
    return found if found is not None and _body_of(found) == body else None


def keys_of(settings: Settings) -> Keys:
    """The keys of the settings."""
    return Keys(settings.gate_key.get_secret_value(), settings.gate_key_retiring.get_secret_value())


def _body_of(one: Impression) -> bytes:
    flags = (
        _SERVING_EMPTY * (Side.SERVING in one.empty)
        + _CANDIDATE_EMPTY * (Side.CANDIDATE in one.empty)
        + _SHARED * one.shared
        + _NEWEST * (one.newest is not None)
    )
    models = (one.serving, one.candidate) if one.newest is None else (one.serving, one.candidate, one.newest)
    numbers = b"".join(varint(n) for v in models for n in (v.generation, v.epoch + 1, v.step))
    count, base = len(one.marks), _base(one.shared)
    picks = sum(pick * base**n for n, pick in enumerate(one.picks))
    fresh = sum(1 << n for n in one.fresh)
    bits = b"".join(
        value.to_bytes(size, "little")
        for value, size in zip((picks, fresh), _sizes(count, base), strict=True)
    )
    return bytes((flags, count)) + numbers + bits + bytes_of_marks(one.marks)


def _base(shared: bool) -> int:
    """Of the number that holds the picks: a digit for each place."""
    return 3 if shared else 2


def _sizes(count: int, base: int) -> tuple[int, int]:
    """Bytes of the picks, and of a bit for each place."""
    return -(-(base**count - 1).bit_length() // 8), -(-count // 8)


def _impression_of(time_ms: int, body: bytes) -> Impression:
    flags, count = body[0], body[1]
    models, at = [], 2
    for _ in range(3 if flags & _NEWEST else 2):
        generation, at = read_varint(body, at)
        epoch, at = read_varint(body, at)
        step, at = read_varint(body, at)
        models.append(Version(generation, epoch - 1, step))
    shared = bool(flags & _SHARED)
    base = _base(shared)
    values = []
    for size in _sizes(count, base):
        values.append(int.from_bytes(body[at : at + size], "little"))
        at += size
    picks, fresh = values
    # Of a body that is too short, which is no draft's, the marks that are missing are 0.
    marks = marks_of_bytes(body[at : at + count * MARK_BYTES].ljust(count * MARK_BYTES, b"\0"))
    empty = {Side.SERVING: flags & _SERVING_EMPTY, Side.CANDIDATE: flags & _CANDIDATE_EMPTY}
    return Impression(
        time_ms,
        models[0],
        models[1],
        tuple(marks),
        tuple(Side(picks // base**n % base) for n in range(count)),
        frozenset(n for n in range(count) if fresh >> n & 1),
        frozenset(side for side, flag in empty.items() if flag),
        shared,
        models[2] if flags & _NEWEST else None,
    )
