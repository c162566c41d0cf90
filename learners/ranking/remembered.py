"""What was chosen for a query: numbers of a model that do not change. It needs numpy alone."""

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
#: Bits in which two vectors may differ that are of one query. Rounding to half precision stays below it, and nearly
#: always rounding to bytes; by five bits a cosine is .9995. Other queries that are near are left to the map: embedders
#: differ in how near texts of different meaning are.
SAME: Final = 4
#: Looks at an item that its rate is drawn to 0 by.
DOUBT: Final = 1.0
_SEED: Final = 20
#: Directions and queries as whole numbers, so that their products are exact in any order.
_STEPS: Final = 32.0
_LARGEST: Final = 32_767.0
#: Words that are compared for all queries, so many of these at a time; for those that may be the same, the rest.
_FIRST: Final = 2
_TOGETHER: Final = 16_384
#: For readers of an exported file.
USE: Final = (
    "known_weights and known_scales of known_signals rank a query whose bits differ from one row of remembered_bits by "
    f"{SAME} at most; remembered is clicks / (1 + seen) of the items of the nearest row"
)
#: Arrays of a file begin with it.
_PREFIX: Final = "remembered_"
_ARRAYS: Final = ("bits", "items", "clicks", "seen")


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
    """What is remembered for a query: its row of `Remembered`.

    Parameters
    ----------
    items, clicks, seen : (p,) each.
    """

    items: Keys
    clicks: NDArray[np.float32]
    seen: NDArray[np.float32]

    def rates(self, names: Keys) -> Values:
        """(n,) of items by the hashes of their names: clicks by looks and one more; 0 for what nobody chose."""
        return self._of(names, self.clicks.astype(np.float64) / (DOUBT + self.seen.astype(np.float64)))

    def times(self, names: Keys) -> Values:
        """(n,) how often items were chosen."""
        return self._of(names, self.clicks.astype(np.float64))

    def _of(self, names: Keys, values: Values) -> Values:
        # Items of a query are different, but for those that are none.
        found: Values = ((names[:, None] == self.items) * values).max(axis=1, initial=0.0)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """Queries and what was chosen for each. It never changes, and any thread may ask.

    Parameters
    ----------
    bits : (m, `WORDS`) of queries.
    items, clicks, seen : (m, p) hashes of items, 0 for none, and sums of clicks and of looks.

    Raises
    ------
    ValueError
        The arrays do not fit each other.
    """

    bits: Keys
    items: Keys
    clicks: NDArray[np.float32]
    seen: NDArray[np.float32]
    _columns: Keys | None = None

    def __post_init__(self) -> None:
        m, shape = len(self.bits), self.items.shape
        if self.bits.shape != (m, WORDS) or len(shape) != 2 or len(self.items) != m:
            raise ValueError(f"remembered queries of shape {self.bits.shape}, with items of shape {shape}")
        if self.bits.dtype != np.uint64 or self.items.dtype != np.uint64:
            raise ValueError("remembered queries and items are uint64")
        for one in (self.clicks, self.seen):
            if one.shape != shape or one.dtype.kind != "f" or not (np.isfinite(one) & (one >= 0.0)).all():
                raise ValueError(f"sums of what is remembered are finite numbers of shape {shape}")
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
        """What is remembered for a query (d,), of any length but 0; None if it is none of those remembered."""
        own = bits_of(query[None])[0]
        assert self._columns is not None
        if not own.any():
            return None
        may = [
            begin + np.flatnonzero(_apart(self._columns[:, begin : begin + _TOGETHER], own) <= SAME)
            for begin in range(0, len(self), _TOGETHER)
        ]
        rows = np.concatenate(may) if may else np.empty(0, np.int64)
        if not len(rows):
            return None
        apart = np.bitwise_count(self.bits[rows] ^ own).sum(axis=1, dtype=np.int64)
        nearest = int(np.argmin(apart))
        if apart[nearest] > SAME:
            return None
        row = int(rows[nearest])
        return Recalled(self.items[row], self.clicks[row], self.seen[row])
