"""What was chosen for queries that are like a query: numbers of a model that do not change. It needs numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Keys = NDArray[np.uint64]
Rows = NDArray[np.floating[Any]]
Values = NDArray[np.float64]

#: Bits of a query: the signs of its products with so many random directions.
BITS: Final = 512
WORDS: Final = BITS // 64
#: Width of the kernel exp(-(1 - cosine) / width), and its least value that counts.
WIDTH: Final = 0.03
LEAST: Final = 0.01
#: Looks at an item that its rate is drawn to 0 by, and lists of near queries from which a query is known, of each of
#: them at most so many: else one that is asked often makes others known that are near to it by little.
DOUBT: Final = 1.0
ENOUGH: Final = 0.9
COUNTED: Final = 2.0
_SEED: Final = 20
#: Directions and queries as whole numbers, so that their products are exact in any order.
_STEPS: Final = 32.0
_LARGEST: Final = 32_767.0
#: Words that are compared for all queries, so many of these at a time; for those that may be near, the rest. Of queries
#: that have nothing in common, one in ten million may be near by 256 bits.
_FIRST: Final = 4
_TOGETHER: Final = 16_384
#: For readers of an exported file.
USE: Final = (
    "known_weights and known_scales of known_signals rank queries of which remembered_asked, at most 2 each, weighed "
    "by exp((cosine - 1) / .03), adds up to .9 and more; remembered is clicks / (1 + seen) of sums that are weighed so"
)
#: Arrays of a file begin with it.
_PREFIX: Final = "remembered_"
_ARRAYS: Final = ("bits", "items", "clicks", "seen", "asked")


def _kernel() -> Values:
    """What a query counts by the number of bits in which it differs, up to the last number that counts."""
    cosines = np.cos(np.pi * np.arange(BITS + 1) / BITS)
    found = np.exp((cosines - 1.0) / WIDTH)
    return np.ascontiguousarray(found[found > LEAST])


KERNEL: Final = _kernel()


@lru_cache(8)
def _directions(d: int) -> Values:
    draw = np.random.Generator(np.random.Philox(key=[_SEED, d]))
    found: Values = draw.standard_normal((d, BITS))
    found *= _STEPS
    np.rint(np.clip(found, -127.0, 127.0, out=found), out=found)
    found.setflags(write=False)
    return found


def bits_of(queries: Rows) -> Keys:
    """(n, `WORDS`) of queries (n, d) of any length: whether their products with random directions are above 0.

    The share of bits in which two queries differ estimates the angle between them in units of pi (Charikar: Similarity
    estimation techniques from rounding algorithms. STOC 2002).
    """
    rows = np.asarray(queries, np.float64)
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    with np.errstate(all="ignore"):
        whole = np.nan_to_num(np.rint(rows / largest * _LARGEST))
    signs = whole @ _directions(rows.shape[1]) > 0.0
    return np.packbits(signs, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _apart(columns: Keys, own: Keys) -> NDArray[np.uint8]:
    """In how many of the first bits queries (`_FIRST`, n) differ from one; if in all, 0."""
    found: NDArray[np.uint8] = np.bitwise_count(columns[0] ^ own[0])
    for word in range(1, len(columns)):
        found += np.bitwise_count(columns[word] ^ own[word])
    return found


class Recalled(NamedTuple):
    """What is remembered for a query.

    Parameters
    ----------
    near : (r,) what each query that is near counts.
    items, clicks, seen : (r, p) of these, as of `Remembered`.
    """

    near: Values
    items: Keys
    clicks: NDArray[np.float32]
    seen: NDArray[np.float32]

    def rates(self, names: Keys) -> Values:
        """(n,) of items by the hashes of their names: clicks by looks and one more; 0 for what nobody chose."""
        clicks, looks = self._sums(names)
        return clicks / (DOUBT + looks)

    def times(self, names: Keys) -> Values:
        """(n,) how often items were chosen."""
        return self._sums(names)[0]

    def _sums(self, names: Keys) -> tuple[Values, Values]:
        if not len(names):
            return np.zeros(0), np.zeros(0)
        own, of = np.unique(names, return_inverse=True)
        place = np.minimum(np.searchsorted(own, self.items), len(own) - 1)
        # In the order of the queries, as the learner adds them.
        row, slot = np.nonzero(own[place] == self.items)
        at, near = place[row, slot], self.near[row]
        sums: list[Values] = [
            np.asarray(np.bincount(at, near * one[row, slot].astype(np.float64), len(own)), np.float64)[of]
            for one in (self.clicks, self.seen)
        ]
        return sums[0], sums[1]


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """Queries and what was chosen for each. It never changes, and any thread may ask.

    Parameters
    ----------
    bits : (m, `WORDS`) of queries.
    items, clicks, seen : (m, p) hashes of items, 0 for none, and sums of clicks and of looks.
    asked : (m,) lists of each query.

    Raises
    ------
    ValueError
        The arrays do not fit each other.
    """

    bits: Keys
    items: Keys
    clicks: NDArray[np.float32]
    seen: NDArray[np.float32]
    asked: NDArray[np.float32]
    _columns: Keys | None = None

    def __post_init__(self) -> None:
        m, shape = len(self.bits), self.items.shape
        if self.bits.shape != (m, WORDS) or len(shape) != 2 or len(self.items) != m:
            raise ValueError(f"remembered queries of shape {self.bits.shape}, with items of shape {shape}")
        if self.bits.dtype != np.uint64 or self.items.dtype != np.uint64:
            raise ValueError("remembered queries and items are uint64")
        for one, wanted in ((self.clicks, shape), (self.seen, shape), (self.asked, (m,))):
            if one.shape != wanted or one.dtype.kind != "f" or not (np.isfinite(one) & (one >= 0.0)).all():
                raise ValueError(f"sums of what is remembered are finite numbers of shape {wanted}")
        object.__setattr__(self, "_columns", np.ascontiguousarray(self.bits[:, :_FIRST].T))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a file: by name."""
        return {_PREFIX + name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def of(cls, arrays: Arrays) -> Self | None:
        """Of a file; None if it has none.

        Raises
        ------
        KeyError, ValueError
            Some are missing, or they do not fit each other.
        """
        if _PREFIX + _ARRAYS[0] not in arrays:
            return None
        return cls(*(arrays[_PREFIX + name] for name in _ARRAYS))

    def __len__(self) -> int:
        """How many queries."""
        return len(self.bits)

    def recall(self, query: Rows) -> Recalled | None:
        """What is remembered for a query (d,), of any length but 0; None if too little is."""
        own = bits_of(query[None])[0]
        assert self._columns is not None
        if not own.any():
            return None
        limit = len(KERNEL) - 1
        may = [
            begin + np.flatnonzero(_apart(self._columns[:, begin : begin + _TOGETHER], own) <= limit)
            for begin in range(0, len(self), _TOGETHER)
        ]
        rows = np.concatenate(may) if may else np.empty(0, np.int64)
        apart = np.bitwise_count(self.bits[rows] ^ own).sum(axis=1, dtype=np.int64)
        rows, apart = rows[apart <= limit], apart[apart <= limit]
        near = KERNEL[apart]
        if not sum((near * np.minimum(self.asked[rows].astype(np.float64), COUNTED)).tolist()) >= ENOUGH:
            return None
        return Recalled(near, self.items[rows], self.clicks[rows], self.seen[rows])
