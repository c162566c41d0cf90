"""Items by the 128-bit hash of their name: a table of numbers instead of a table of strings.

Two names of a million share a hash with a probability below 10^-26. A Python dict would take about 200 bytes per item;
an index takes 24 bytes per place and a table 4, and a third to two thirds of the places are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

#: (n, 2) uint64.
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

_LEAST_PLACES: Final = 64
_EMPTY: Final = -1
_GONE: Final = -2


def hashes(ids: Sequence[str]) -> Hashes:
    """BLAKE2b-128 of each name, (n, 2) uint64; any string is allowed, even one that is not valid UTF-8."""
    joined = b"".join(
        [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest() for name in ids]
    )
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64).reshape(-1, 2)


def name_hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    """(n,) the first half of each hash: what learners know items by."""
    return np.ascontiguousarray(hashes(ids)[:, 0])


class HashIndex:
    """A map from 128-bit hashes to whole numbers of at least 0; its answers never depend on its layout."""

    def __init__(self) -> None:
        self._clear(_LEAST_PLACES)

    def _clear(self, places: int) -> None:
        self._keys = np.zeros((places, 2), np.uint64)
        self._values = np.full(places, _EMPTY, np.int64)
        self._live = self._used = 0

    def __len__(self) -> int:
        return self._live

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    def find(self, keys: Hashes) -> Numbers:
        """The value of each key, (n,) int64; -1 for unknown keys."""
        return _find(self._keys, self._values, _plain(keys))  # type: ignore[no-any-return]

    def set(self, keys: Hashes, values: Numbers) -> None:
        """Set the value of each key; for a repeated key, the last one counts."""
        self._make_room(len(keys))
        fresh, used = _set(self._keys, self._values, _plain(keys), np.ascontiguousarray(values, np.int64))
        self._live += fresh
        self._used += used

    def remove(self, keys: Hashes) -> Numbers:
        """Forget keys; returns the value of each, -1 if it was unknown."""
        found: Numbers = _remove(self._keys, self._values, _plain(keys))
        self._live -= int(np.count_nonzero(found >= 0))
        return found

    def _make_room(self, more: int) -> None:
        """Keep a third of the places free; places of removed keys are reclaimed when the table is rebuilt."""
        if 3 * (self._used + more) <= 2 * len(self._values):
            return
        keys, values = self._keys[self._values >= 0], self._values[self._values >= 0]
        places = _LEAST_PLACES
        while 3 * (len(values) + more) > 2 * places:
            places *= 2
        self._clear(places)
        fresh, used = _set(self._keys, self._values, keys, values)
        self._live += fresh
        self._used += used


class IdTable:
    """Numbers of items by first appearance: 0, 1, 2 ... A number is never used twice, even after a removal.

    The hashes lie in one array by number; the table of places holds numbers alone, four bytes each.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros((_LEAST_PLACES, 2), np.uint64)
        self._gone = np.zeros(_LEAST_PLACES, np.bool_)
        self._places = np.full(_LEAST_PLACES, _EMPTY, np.int32)
        self._used = self._live = 0
        self.numbered = 0

    def __len__(self) -> int:
        """Items that were not removed."""
        return self._live

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._gone.nbytes + self._places.nbytes

    def find(self, keys: Hashes) -> Numbers:
        """The number of each item; -1 for unknown items."""
        return _find_numbers(self._hashes, self._places, _plain(keys))  # type: ignore[no-any-return]

    def add(self, keys: Hashes) -> Numbers:
        """The number of each item; an unknown item gets the next number."""
        most = self.numbered + len(keys)
        if most > len(self._gone):
            more = max(most, 3 * len(self._gone) // 2) - len(self._gone)
            self._hashes = np.concatenate([self._hashes, np.zeros((more, 2), np.uint64)])
            self._gone = np.concatenate([self._gone, np.zeros(more, np.bool_)])
        self._make_room(len(keys))
        found = np.empty(len(keys), np.int64)
        before = self.numbered
        self.numbered, used = _add_numbers(self._hashes, self._places, _plain(keys), found, before)
        self._live += self.numbered - before
        self._used += used
        return found

    def remove(self, keys: Hashes) -> Numbers:
        """Forget items; returns the number of each, -1 if it was unknown."""
        found: Numbers = _remove_numbers(self._hashes, self._places, _plain(keys))
        had = found[found >= 0]
        self._gone[had] = True
        self._live -= len(had)
        return found

    def hashes_of(self, numbers: Numbers) -> Hashes:
        """The hashes of numbered items; zeros for one that was removed."""
        return self._hashes[numbers]

    def gone(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Which of the numbered items were removed."""
        return self._gone[numbers]

    def rows(self) -> tuple[Hashes, NDArray[np.bool_]]:
        """Hash of every number, and whether it was removed: all that `restore` needs."""
        return self._hashes[: self.numbered].copy(), self._gone[: self.numbered].copy()

    def restore(self, keys: Hashes, gone: NDArray[np.bool_]) -> None:
        """The inverse of `rows`."""
        places = max(len(keys), _LEAST_PLACES)
        self._hashes, self._gone = np.zeros((places, 2), np.uint64), np.zeros(places, np.bool_)
        self._hashes[: len(keys)], self._gone[: len(keys)] = keys, gone
        self.numbered = len(keys)
        self._live = int(np.count_nonzero(~self._gone[: len(keys)]))
        self._rebuild(0)

    def _make_room(self, more: int) -> None:
        if 3 * (self._used + more) > 2 * len(self._places):
            self._rebuild(more)

    def _rebuild(self, more: int) -> None:
        places = _LEAST_PLACES
        while 3 * (self._live + more) > 2 * places:
            places *= 2
        self._places = np.full(places, _EMPTY, np.int32)
        numbers = np.flatnonzero(~self._gone[: self.numbered])
        _note_numbers(self._hashes, self._places, numbers)
        self._used = len(numbers)


def _plain(keys: Hashes) -> Hashes:
    return np.ascontiguousarray(keys, np.uint64).reshape(-1, 2)


@compiled
def _place(keys, values, high, low):  # type: ignore[no-untyped-def]
    """The place of a key, or the place where it would go, as (place, found)."""
    mask = np.int64(len(values) - 1)
    at = np.int64(high & np.uint64(mask))
    free = np.int64(-1)
    while values[at] != _EMPTY:
        if values[at] == _GONE:
            if free < 0:
                free = at
        elif keys[at, 0] == high and keys[at, 1] == low:
            return at, True
        at = (at + 1) & mask
    return (at if free < 0 else free), False


@compiled
def _find(keys, values, wanted):  # type: ignore[no-untyped-def]
    found = np.empty(len(wanted), np.int64)
    for i in range(len(wanted)):
        at, known = _place(keys, values, wanted[i, 0], wanted[i, 1])
        found[i] = values[at] if known else -1
    return found


@compiled
def _set(keys, values, wanted, given):  # type: ignore[no-untyped-def]
    fresh = used = 0
    for i in range(len(wanted)):
        at, known = _place(keys, values, wanted[i, 0], wanted[i, 1])
        if not known:
            fresh += 1
            if values[at] == _EMPTY:
                used += 1
            keys[at, 0], keys[at, 1] = wanted[i, 0], wanted[i, 1]
        values[at] = given[i]
    return fresh, used


@compiled
def _remove(keys, values, wanted):  # type: ignore[no-untyped-def]
    found = np.empty(len(wanted), np.int64)
    for i in range(len(wanted)):
        at, known = _place(keys, values, wanted[i, 0], wanted[i, 1])
        found[i] = -1
        if known:
            found[i] = values[at]
            values[at] = _GONE
            keys[at, 0] = keys[at, 1] = 0
    return found


@compiled
def _place_of(held, places, high, low):  # type: ignore[no-untyped-def]
    """The place of a key's number, or the place where it would go, as (place, found)."""
    mask = np.int64(len(places) - 1)
    at = np.int64(high & np.uint64(mask))
    free = np.int64(-1)
    while places[at] != _EMPTY:
        number = places[at]
        if number == _GONE:
            if free < 0:
                free = at
        elif held[number, 0] == high and held[number, 1] == low:
            return at, True
        at = (at + 1) & mask
    return (at if free < 0 else free), False


@compiled
def _find_numbers(held, places, wanted):  # type: ignore[no-untyped-def]
    found = np.empty(len(wanted), np.int64)
    for i in range(len(wanted)):
        at, known = _place_of(held, places, wanted[i, 0], wanted[i, 1])
        found[i] = places[at] if known else -1
    return found


@compiled
def _add_numbers(held, places, wanted, found, following):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(len(wanted)):
        at, known = _place_of(held, places, wanted[i, 0], wanted[i, 1])
        if not known:
            if places[at] == _EMPTY:
                used += 1
            held[following, 0], held[following, 1] = wanted[i, 0], wanted[i, 1]
            places[at] = following
            following += 1
        found[i] = places[at]
    return following, used


@compiled
def _remove_numbers(held, places, wanted):  # type: ignore[no-untyped-def]
    found = np.empty(len(wanted), np.int64)
    for i in range(len(wanted)):
        at, known = _place_of(held, places, wanted[i, 0], wanted[i, 1])
        found[i] = -1
        if known:
            number = places[at]
            found[i] = number
            held[number, 0] = held[number, 1] = 0
            places[at] = _GONE
    return found


@compiled
def _note_numbers(held, places, numbers):  # type: ignore[no-untyped-def]
    for number in numbers:
        at, _ = _place_of(held, places, held[number, 0], held[number, 1])
        places[at] = number
