"""Candidates of a query: the items that keys and lengths say are nearest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from search.lsh import kernels
from search.lsh.items import Items, Slots, grown
from search.lsh.keys import Keys
from search.lsh.metric import Metric


class Candidates:
    """Looks at the keys of all items, which are bits, and picks those whose estimated distance is smallest.

    Keys tell the angle between the mapped query and item, not their distance. With the length |y| of the mapped item,
    as it was when the item was put or lengths were last computed, the estimate is |y|^2 - 2 |y| |y_q| cos(angle).
    """

    def __init__(self, items: Items, metric: Metric, keys: Keys) -> None:
        self._items, self._metric, self._keys = items, metric, keys
        self._lengths = np.zeros(0, np.float32)

    def enter(self, slots: Slots) -> None:
        """Note the lengths of items that were put."""
        if len(self._lengths) < self._items.slots:
            self._lengths = grown(self._lengths, self._items.slots, np.inf)
        mapped = self._metric.apply(self._items.rows(slots)) + self._metric.offset
        self._lengths[slots] = np.sqrt(np.einsum("ij,ij->i", mapped, mapped))

    def leave(self, slots: Slots) -> None:
        """Forget items."""
        self._lengths[slots] = np.inf

    def of(self, q: NDArray[np.float64], budget: int) -> Slots:
        """At most `budget` items (at least 1) for one query (d,), in ascending order of slots."""
        top = self._items.top
        length = float(np.linalg.norm(self._metric.apply(q[None])[0] + self._metric.offset))
        bits = self._keys.bits
        table = (-2.0 * length * np.cos(np.pi * np.arange(bits + 1) / bits)).astype(np.float32)
        rough = np.empty(top, np.float32)
        query = self._keys.of_query(q, self._metric)
        kernels.estimates(self._keys.table, query, self._lengths, table, rough)
        return lowest(rough, budget)


def lowest(values: NDArray[np.float32], wanted: int) -> Slots:
    """Places of the smallest finite values in ascending order; of equal values the first ones."""
    if wanted < len(values):
        bound = np.partition(values, wanted - 1)[wanted - 1]
        below = np.flatnonzero(values < bound)
        equal = np.flatnonzero(values == bound)[: wanted - len(below)]
        found = np.sort(np.concatenate([below, equal]))
    else:
        found = np.arange(len(values))
    return np.asarray(found[np.isfinite(values[found])])
