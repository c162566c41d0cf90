"""The exact scan: the ids and distances of a scan in float64, for any offset and scale of the vectors.

Few queries are measured against all items in float64. For many at once, one product in float32 decides which items can
be among the k nearest, and these are measured in float64. A bound of the product's rounding decides which items it may
exclude:

Let eps = 2^-24, c the centre, y = fl(x - c) and p = fl(q - c), l = |y| and P = |p|. One subtraction rounds each
number of y and p once, so |(y - p) - (x - q)| <= 2 eps (l + P). A product of d terms, summed in any order, is off by at
most g l P with g = d eps / (1 - d eps), and by d 2^-126 (1 + l + P) where it underflows. So

    s = l^2 + P^2 - 2 fl(y.p)   is off from |y - p|^2 by at most   b = 2 g l P + d 2^-125 (1 + l + P) + w (l + P)^2,

where w = (d + 16) 2^-52 stands for what is calculated in float64. An item at most t away from q therefore has

    s <= (t + 2 eps (l + P))^2 + b.

t is the largest measured distance of the k items with the smallest s: at least k items are that near, so every one of
the k nearest satisfies this. The centre is about the middle of the items, which keeps l, P and the bound small if the
items are far from the origin; it stays 0, at no cost, if that makes little difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.items import Slots
from kinstream.search.index.scan_kernels import measure

Mapped = NDArray[np.float32]
Distances = NDArray[np.float64]
#: Chooses m of the slots whose items are equally near, in any order: (slots, m) -> (m,).
First = Callable[[Slots, int], Slots]

#: Number of products that a scan holds at a time.
_MOST_CELLS: Final = 8_000_000
#: From this number of queries, one product is faster than measuring all items in float64.
_MANY: Final = 8
#: Number of items shifted by the centre at a time.
_CHUNK: Final = 4096
_LEAST_SLOTS: Final = 1024
#: Number of items whose mean is the centre.
_SAMPLE: Final = 512
#: The rounding unit of float32.
EPS: Final = 2.0**-24
#: Products of longer vectors could overflow float32.
LONGEST: Final = 1e18


class NearestSlots(NamedTuple):
    """The nearest of q queries.

    Parameters
    ----------
    slots : (q, k) int64, nearest first; -1 if there are fewer.
    distances : (q, k) float64 squared distances; infinity if there are fewer.
    examined : (q,) int64, items whose distance was computed.
    """

    slots: Slots
    distances: Distances
    examined: NDArray[np.int64]


def first_slots(slots: Slots, m: int) -> Slots:
    """The m smallest slots."""
    return np.sort(slots)[:m]


class Exact:
    """Measures every item; of equally near ones it finds the first, also at the cut."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._rows: Mapped = np.zeros((0, dimension), np.float32)
        self._live: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._count = 0
        #: Lengths of the items about the centre; NaN in empty slots, which are then never near.
        self._lengths: Distances = np.zeros(0)
        #: At least the greatest length of an item.
        self._longest = 0.0
        self._centre: Mapped = np.zeros(dimension, np.float32)
        self._puts = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._lengths.nbytes + self._live.nbytes

    @property
    def rows(self) -> Mapped:
        """The items by slot (slots, d); zeros in empty slots."""
        return self._rows

    @property
    def centre(self) -> Mapped:
        """(d,), about the middle of the items; 0 if they are near the origin."""
        return self._centre

    @property
    def longest(self) -> float:
        """No item is farther from the centre."""
        return self._longest

    def put(self, slots: Slots, Z: Mapped) -> None:
        """Add or replace items; an item that is not finite is left out."""
        if not len(slots):
            return
        self._reserve(int(slots.max()) + 1)
        finite = np.asarray(np.isfinite(Z).all(axis=1))
        self._count += int(finite.sum()) - int(self._live[slots].sum())
        self._rows[slots] = np.where(finite[:, None], Z, np.float32(0.0))
        self._live[slots] = finite
        self._puts += len(slots)
        if 2 * self._puts >= self._count:
            self._settle()
        else:
            self._lengthen(slots)

    def drop(self, slots: Slots) -> None:
        slots = slots[slots < len(self._live)]
        self._count -= int(self._live[slots].sum())
        self._rows[slots] = 0.0
        self._live[slots] = False
        self._lengths[slots] = np.nan

    def search(self, Q: Mapped, k: int, first: First = first_slots) -> NearestSlots:
        k = min(k, self._count)
        slots = np.full((len(Q), k), -1, np.int64)
        distances = np.full((len(Q), k), np.inf)
        if k:
            there = np.flatnonzero(self._live)
            many = max(1, _MOST_CELLS // (int(there[-1]) + 1))
            for at in range(0, len(Q), many):
                for row, near in enumerate(self._candidates(Q[at : at + many], k, there), at):
                    slots[row], distances[row] = nearest(near, self.measured(Q[row], near), k, first)
        return NearestSlots(slots, distances, np.full(len(Q), self._count, np.int64))

    def measured(self, query: Mapped, slots: Slots) -> Distances:
        """Squared distances in float64 of items in these slots; infinite if they are NaN."""
        return measured(self._rows, slots, query)

    def _candidates(self, Q: Mapped, k: int, there: Slots) -> Iterator[Slots]:
        """For each query, slots of items that include the k nearest."""
        if len(Q) < _MANY or k == self._count or not self._longest < LONGEST:
            yield from (there for _ in Q)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            P = Q - self._centre
            products = self._products(P, int(there[-1]) + 1)
        for query, length, row in zip(Q, lengths(P).tolist(), products, strict=True):
            # Written so that items with NaN are measured.
            yield self._near(query, length, row, k) if length < LONGEST else there

    def _products(self, P: Mapped, top: int) -> Mapped:
        """y.p of every query and slot (q, top)."""
        if not self._centre.any():
            return np.asarray(P @ self._rows[:top].T)
        found = np.empty((len(P), top), np.float32)
        for at in range(0, top, _CHUNK):
            moved = self._rows[at : min(at + _CHUNK, top)] - self._centre
            found[:, at : at + len(moved)] = P @ moved.T
        return found

    def _near(self, query: Mapped, length: float, products: Mapped, k: int) -> Slots:
        own = self._lengths[: len(products)]
        sums = own * own
        sums -= 2.0 * products
        sums += length * length
        best = np.flatnonzero(sums <= np.partition(sums, k - 1)[k - 1])[:k]
        # In float64 a distance is off by less than this part of itself, too.
        t = np.sqrt(self.measured(query, best).max()) * (1.0 + (self._dimension + 16) * 2.0**-52)
        return np.flatnonzero(sums <= _bound(t, own, length, self._dimension))

    def _settle(self) -> None:
        """A new centre, and all lengths about it."""
        self._puts = 0
        there = np.flatnonzero(self._live)
        self._centre = _centre(self._rows[there[:: len(there) // _SAMPLE + 1]])
        self._longest = 0.0
        for at in range(0, len(there), _CHUNK):
            self._lengthen(there[at : at + _CHUNK])

    def _lengthen(self, slots: Slots) -> None:
        live = self._live[slots]
        with np.errstate(over="ignore"):
            moved = self._rows[slots] - self._centre
        found = lengths(moved)
        self._lengths[slots] = np.where(live, found, np.nan)
        self._longest = float(np.max(found, initial=self._longest, where=live))

    def _reserve(self, wanted: int) -> None:
        held = len(self._live)
        if wanted > held:
            size = max(wanted, held + held // 2, _LEAST_SLOTS)
            rows = np.zeros((size, self._dimension), np.float32)
            rows[:held] = self._rows
            far = np.full(size, np.nan)
            far[:held] = self._lengths
            live = np.zeros(size, np.bool_)
            live[:held] = self._live
            self._rows, self._lengths, self._live = rows, far, live


def _centre(rows: Mapped) -> Mapped:
    """The mean of some rows (n, d), n at least 0, if that is farther from the origin than they are from it."""
    zero = np.zeros(rows.shape[1], np.float32)
    if not len(rows):
        return zero
    middle = np.median(rows, axis=0).astype(np.float32)
    apart = rows.astype(np.float64) - middle
    far = np.median(np.einsum("ij,ij->i", apart, apart))
    return middle if float(np.square(middle, dtype=np.float64).sum()) > far else zero


def lengths(rows: Mapped) -> Distances:
    """The Euclidean length in float64 of each row (n, d)."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))


def _bound(t: float, own: Distances, length: float, dimension: int) -> Distances:
    """The greatest s, see above, of items at most t away from a query; own: l of the items, length: P of the query."""
    both = own + length
    g = dimension * EPS / (1.0 - dimension * EPS)
    off = 2.0 * g * length * own + dimension * 2.0**-125 * (1.0 + both)
    return np.asarray((t + 2.0 * EPS * both) ** 2 + off + (dimension + 16) * 2.0**-52 * both * both)


def measured(rows: Mapped, slots: Slots, query: Mapped) -> Distances:
    """Squared distances (m,) in float64 of the rows in these slots; infinite if they are NaN."""
    found = np.empty(len(slots))
    measure(rows, slots, query.astype(np.float64), found)
    return np.where(np.isnan(found), np.inf, found)


def nearest(
    slots: Slots, distances: Distances, k: int, first: First = first_slots
) -> tuple[Slots, Distances]:
    """The k nearest of some slots, nearest first, equal distances by slot; at the cut, those that `first` selects.

    Parameters
    ----------
    slots : (m,), distances : (m,), m at least k.
    """
    if len(slots) > k:
        edge = np.partition(distances, k - 1)[k - 1]
        inside, tied = distances < edge, distances == edge
        left = k - int(inside.sum())
        chosen = slots[tied]
        if len(chosen) > left:
            chosen = first(chosen, left)
        slots = np.concatenate([slots[inside], chosen])
        distances = np.concatenate([distances[inside], np.full(left, edge)])
    order = np.lexsort((slots, distances))
    return slots[order], distances[order]
