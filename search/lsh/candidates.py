"""Candidates of a query: the items that keys and lengths say are nearest."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from learners.kernels.threads import one_blas_thread
from search.lsh import kernels
from search.lsh.items import Items, Slots, grown
from search.lsh.keys import CHUNK, Keys
from search.lsh.metric import Metric

#: Lengths are calculated anew when the map has changed by this share of its norm.
_MOVED: Final = 0.1
#: To guess which values are the smallest, one of this many is looked at.
_GLANCE: Final = 16


class Candidates:
    """Looks at the keys of all items, which are bits, and picks those whose estimated distance is smallest.

    Keys tell the angle between the mapped query and item, not their distance. With the length |y| of the mapped item,
    as it was when the item was put or lengths were last calculated, the estimate is |y|^2 - 2 |y| |y_q| cos(angle).
    """

    def __init__(self, items: Items, metric: Metric, keys: Keys) -> None:
        self._items, self._metric, self._keys = items, metric, keys
        self._lengths = np.zeros(0, np.float32)
        self._seen = metric.recomputed
        self._G = metric.G
        bits = keys.bits
        self._cosines = (-2.0 * np.cos(np.pi * np.arange(bits + 1) / bits)).astype(np.float32)

    def enter(self, slots: Slots) -> None:
        """Note the lengths of items that were put."""
        if len(self._lengths) < self._items.slots:
            self._lengths = grown(self._lengths, self._items.slots, np.inf)
        if len(slots) == len(self._items):
            self._seen, self._G = self._metric.recomputed, self._metric.G
        self._calculate(slots)

    def refresh(self) -> None:
        """Calculate all lengths anew where the metric has become another one, looked at when P was recomputed."""
        if self._seen == self._metric.recomputed:
            return
        self._seen = self._metric.recomputed
        G = self._metric.G
        if G.shape != self._G.shape or np.linalg.norm(G - self._G) > _MOVED * np.linalg.norm(self._G):
            self._G = G
            self._calculate(self._items.taken())

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
        return foremost(places, values, budget)

    def _likely(
        self, query: NDArray[np.uint64], table: NDArray[np.float32], wanted: int
    ) -> tuple[Slots, NDArray[np.float32]]:
        """Slots whose estimates are among the smallest, and some more of them: mostly not many, and at worst all."""
        n = self._items.top
        told = self._keys.table, query, self._lengths, table
        glance = np.empty(-(-n // _GLANCE), np.float32)
        rank = _rank(wanted)
        if rank < len(glance):
            kernels.estimates(*told, _GLANCE, glance)
            room = 4 * _GLANCE * rank
            places, values = np.empty(room, np.int64), np.empty(room, np.float32)
            count = kernels.estimates_up_to(*told, n, np.partition(glance, rank)[rank], places, values)
            if wanted <= count <= room:
                return places[:count], values[:count]
        values = np.empty(n, np.float32)
        kernels.estimates(*told, 1, values)
        return np.arange(n), values

    def _calculate(self, slots: Slots) -> None:
        offset = self._metric.offset.astype(self._items.X.dtype)
        for first in range(0, len(slots), CHUNK):
            piece = slots[first : first + CHUNK]
            with one_blas_thread():
                mapped = self._metric.apply(self._items.rows(piece)) + offset
            self._lengths[piece] = np.sqrt(np.einsum("ij,ij->i", mapped, mapped))


def lowest(values: NDArray[np.float32], wanted: int) -> Slots:
    """Places of the smallest finite values in ascending order; of equal values the first ones."""
    places = np.arange(len(values))
    rank, sample = _rank(wanted), values[::_GLANCE]
    if rank < len(sample):
        likely = np.flatnonzero(values <= np.partition(sample, rank)[rank])
        if len(likely) >= wanted:
            places = likely
    return foremost(places, values[places], wanted)


def foremost(places: Slots, values: NDArray[np.float32], wanted: int) -> Slots:
    """Of some places those with the smallest finite values, in the order that they have; of equal values the first."""
    if wanted < len(places):
        bound = np.partition(values, wanted - 1)[wanted - 1]
        chosen = values < bound
        chosen[np.flatnonzero(values == bound)[: wanted - int(chosen.sum())]] = True
        places, values = places[chosen], values[chosen]
    return np.asarray(places[np.isfinite(values)])


def _rank(wanted: int) -> int:
    """Rank in the glance of a value that the last of so many smallest ones is, most often, not above, nor far below."""
    share = wanted / _GLANCE
    return int(share + 3.0 * np.sqrt(share)) + 4
