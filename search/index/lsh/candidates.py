"""Candidates of a query: the items that are nearest by keys and lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.lsh import kernels
from kinstream.search.index.lsh.keys import Keys
from kinstream.search.index.online.metric import Metric
from kinstream.search.index.online.vectors import CHUNK, Slots, VectorSlots, grown
from kinstream.streams.compute.blas_threads import one_blas_thread

#: Lengths are checked when the map, or the hyperplanes on their way, have moved by this share of their norm.
_MOVED: Final = 0.1
#: Number of items whose lengths are compared with the stored ones.
_COMPARED: Final = 256
#: Stored lengths with errors above this, and above those of lengths by hyperplanes, are replaced by the latter.
_WRONG: Final = 0.05
#: To estimate the smallest values, one of this many is sampled.
_GLANCE: Final = 16


class Candidates:
    """Compares the keys (bits) of all items, and picks items with the smallest estimated distance.

    Keys give the angle between the mapped query and item, not their distance. With the length |y| of the mapped item,
    as of its insertion or the last update of lengths, the estimate is |y|^2 - 2 |y| |y_q| cos(angle). If the metric has
    moved far since, the mean square of y's products with the hyperplanes is a better length.
    """

    def __init__(self, items: VectorSlots, metric: Metric, keys: Keys) -> None:
        self._items, self._metric, self._keys = items, metric, keys
        self._lengths = np.zeros(0, np.float32)
        self._seen = metric.recomputed
        self._G, self._path = metric.G, metric.path.copy()
        bits = keys.bits
        self._cosines = (-2.0 * np.cos(np.pi * np.arange(bits + 1) / bits)).astype(np.float32)

    def enter(self, slots: Slots) -> None:
        """Store the lengths of new items."""
        if len(self._lengths) < self._items.slots:
            self._lengths = grown(self._lengths, self._items.slots, np.inf)
        if len(slots) == len(self._items):
            self._seen = self._metric.recomputed
            self._begin(self._metric.G)
        self._calculate(slots, self._exact)

    def refresh(self) -> None:
        """Improve the lengths if the metric has moved far. This depends on the metric alone."""
        metric = self._metric
        if self._seen != metric.recomputed:
            self._seen, G = metric.recomputed, metric.G
            if G.shape != self._G.shape or np.linalg.norm(G - self._G) > _MOVED * np.linalg.norm(self._G):
                self._begin(G)
                self._calculate(self._items.taken(), self._exact)
                return
        if (metric.path - self._path).mean() > _MOVED * np.linalg.norm(metric.P, axis=1).mean():
            self._path = metric.path.copy()
            self._compare()

    def _begin(self, G: NDArray[np.float64]) -> None:
        self._G, self._path = G, self._metric.path.copy()

    def _compare(self) -> None:
        """Take lengths from the hyperplanes if the stored ones have larger errors in a sample of items."""
        taken = self._items.taken()
        sample = taken[:: max(1, len(taken) // _COMPARED)]
        true = self._exact(sample)
        known = true > 0.0
        if not known.any():
            return
        error = float(np.median(np.abs(self._lengths[sample][known] / true[known] - 1.0)))
        # The median error of lengths by hyperplanes is 2/3 of their standard deviation, root of 1 / (2 bits).
        if not error <= max(_WRONG, 1.0 / np.sqrt(2.0 * self._keys.bits)):
            self._calculate(taken, self._rough)

    def _rough(self, slots: Slots) -> NDArray[Any]:
        """|y| of items (m,) from their products with the hyperplanes.

        The mean of (r_j'y)^2 over b normal vectors r_j is |y|^2 with a relative standard deviation of the root of
        2 / b (Johnson and Lindenstrauss 1984).
        """
        dtype = self._items.X.dtype
        with one_blas_thread():
            products = self._items.rows(slots) @ self._metric.narrowed(dtype).T
        products += self._metric.thresholds.astype(dtype)
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", products, products) / self._keys.bits))

    def leave(self, slots: Slots) -> None:
        """Forget items."""
        self._lengths[slots] = np.inf

    def of(self, q: NDArray[np.float64], budget: int) -> Slots:
        """At most `budget` items (at least 1) for one query (d,), in ascending order of slots."""
        with one_blas_thread():
            mapped = self._metric.apply(q[None].astype(self._items.X.dtype))[0]
            query = self._keys.of_query(q, self._metric)
        table = self._cosines * np.float32(np.linalg.norm(mapped + self._metric.offset))
        places, values = self._likely(query, table, budget)
        return smallest(places, values, budget)

    def _likely(
        self, query: NDArray[np.uint64], table: NDArray[np.float32], wanted: int
    ) -> tuple[Slots, NDArray[np.float32]]:
        """Slots with the smallest estimates, and some more: usually few, at worst all."""
        n = self._items.top
        arguments = self._keys.table, query, self._lengths, table
        glance = np.empty(-(-n // _GLANCE), np.float32)
        rank = _rank(wanted)
        if rank < len(glance):
            kernels.estimates(*arguments, _GLANCE, glance)
            room = 4 * _GLANCE * rank
            places, values = np.empty(room, np.int64), np.empty(room, np.float32)
            count = kernels.estimates_up_to(*arguments, n, np.partition(glance, rank)[rank], places, values)
            if wanted <= count <= room:
                return places[:count], values[:count]
        values = np.empty(n, np.float32)
        kernels.estimates(*arguments, 1, values)
        return np.arange(n), values

    def _calculate(self, slots: Slots, lengths: Callable[[Slots], NDArray[Any]]) -> None:
        for first in range(0, len(slots), CHUNK):
            piece = slots[first : first + CHUNK]
            self._lengths[piece] = lengths(piece)

    def _exact(self, slots: Slots) -> NDArray[Any]:
        offset = self._metric.offset.astype(self._items.X.dtype)
        with one_blas_thread():
            mapped = self._metric.apply(self._items.rows(slots)) + offset
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", mapped, mapped)))


def lowest(values: NDArray[np.float32], wanted: int) -> Slots:
    """Places of the smallest finite values in ascending order; of equal values the first ones."""
    places = np.arange(len(values))
    rank, sample = _rank(wanted), values[::_GLANCE]
    if rank < len(sample):
        likely = np.flatnonzero(values <= np.partition(sample, rank)[rank])
        if len(likely) >= wanted:
            places = likely
    return smallest(places, values[places], wanted)


def smallest(places: Slots, values: NDArray[np.float32], wanted: int) -> Slots:
    """The places with the smallest finite values, in their order; of equal values the first."""
    if wanted < len(places):
        bound = np.partition(values, wanted - 1)[wanted - 1]
        chosen = values < bound
        chosen[np.flatnonzero(values == bound)[: wanted - int(chosen.sum())]] = True
        places, values = places[chosen], values[chosen]
    return np.asarray(places[np.isfinite(values)])


def _rank(wanted: int) -> int:
    """Rank in the sample of a value that is usually a close upper bound of this many smallest values."""
    share = wanted / _GLANCE
    return int(share + 3.0 * np.sqrt(share)) + 4
