"""FAISS over mapped vectors, for metrics that change rarely."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.exact import (
    EPS,
    LONGEST,
    Exact,
    First,
    Mapped,
    NearestSlots,
    first_slots,
    lengths,
    nearest,
)
from kinstream.search.index.items import Slots
from kinstream.streams.extras import importing

FLAT: Final = "faiss-flat"
HNSW: Final = "faiss-hnsw"

#: FAISS is queried for this many more: its distances are rounded.
_MORE: Final = 16


class Faiss:
    """FAISS: the flat scan, or HNSW, which examines a small part of the items.

    FAISS computes in float32, about a centre from the first items. If the rounding could have cost the flat scan one of
    the nearest items, or if equally near items are at the cut, `Exact` answers the query. HNSW cannot delete: a
    replaced or removed item stays in the graph, is left out of the answers, and disappears with the next build. The
    squared distances in answers are exact for the found items.
    """

    def __init__(self, kind: str, dimension: int, neighbours: int, depth: int) -> None:
        self._faiss = faiss = _faiss()
        self._kind, self._depth = kind, depth
        self._exact = Exact(dimension)
        self._index: Any = None
        self._centre: Mapped | None = None
        #: At least the greatest length of an item about the centre.
        self._longest = 0.0
        if kind == HNSW:
            self._index = faiss.IndexHNSWFlat(dimension, neighbours)
            self._index.hnsw.efSearch = depth
        else:
            self._index = faiss.IndexIDMap2(faiss.IndexFlatL2(dimension))
        #: HNSW numbers its items: the slot of each number, and the current number of each slot.
        self._slot_of: NDArray[np.int64] = np.empty(0, np.int64)
        self._number_of: dict[int, int] = {}
        self._live: NDArray[np.uint8] = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        graph = self._index.ntotal * (self._exact.rows.shape[1] * 4 + 280) if self._kind == HNSW else 0
        return self._exact.nbytes + graph

    def put(self, slots: Slots, Z: Mapped) -> None:
        if not len(slots):
            return
        self._forget(slots)
        self._exact.put(slots, Z)
        finite = np.isfinite(Z).all(axis=1)
        slots = slots[finite]
        if not len(slots):
            return
        moved = self._moved(Z[finite])
        self._longest = max(self._longest, float(lengths(moved).max()))
        if self._kind == FLAT:
            self._index.add_with_ids(moved, np.ascontiguousarray(slots))
            return
        first = self._index.ntotal
        self._index.add(moved)
        self._slot_of = np.concatenate([self._slot_of, slots])
        self._live = np.concatenate([self._live, np.ones(len(slots), np.uint8)])
        self._number_of.update(zip(slots.tolist(), range(first, first + len(slots)), strict=True))

    def drop(self, slots: Slots) -> None:
        self._forget(slots)
        self._exact.drop(slots)

    def _forget(self, slots: Slots) -> None:
        if self._kind == FLAT:
            self._index.remove_ids(np.ascontiguousarray(slots))
            return
        for slot in slots.tolist():
            number = self._number_of.pop(slot, None)
            if number is not None:
                self._live[number] = 0

    def _moved(self, Z: Mapped) -> Mapped:
        if self._centre is None:
            self._centre = self._exact.centre
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(Z - self._centre)

    def search(self, Q: Mapped, k: int, first: First = first_slots) -> NearestSlots:
        count = len(self._exact)
        k = min(k, count)
        if not k:
            return NearestSlots(
                np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0)), np.zeros(len(Q), np.int64)
            )
        if self._kind == HNSW:
            return self._searched(Q, k, first)
        found = NearestSlots(
            np.empty((len(Q), k), np.int64), np.empty((len(Q), k)), np.full(len(Q), count, np.int64)
        )
        moved = self._moved(Q)
        wanted = min(k + max(k, _MORE), count)
        least, chosen = self._index.search(moved, wanted)
        unsure = []
        for row, (query, length) in enumerate(zip(Q, lengths(moved).tolist(), strict=True)):
            if chosen[row, -1] < 0 or not length + self._longest < LONGEST:
                unsure.append(row)
                continue
            far = self._exact.measured(query, chosen[row])
            found.slots[row], found.distances[row] = nearest(chosen[row], far, k, first)
            if wanted < count and not self._beyond(
                float(least[row, -1]), float(found.distances[row, -1]), length
            ):
                unsure.append(row)
        if unsure:
            found.slots[unsure], found.distances[unsure], _ = self._exact.search(Q[unsure], k, first)
        return found

    def _beyond(self, squared: float, edge: float, length: float) -> bool:
        """Whether items that FAISS places at least this far away are truly farther than the edge.

        FAISS adds up differences, or lengths and products where there are many queries: both are off by less than
        (d + 8) 2^-24 (l + P)^2, in the notation of `kinstream.search.index.exact`.
        """
        d = self._exact.rows.shape[1]
        both = length + self._longest
        off = (d + 8) * EPS / (1.0 - (d + 8) * EPS) * both * both + d * 2.0**-125 * (1.0 + both)
        reach = np.sqrt(edge) * (1.0 + (d + 16) * 2.0**-52) + 2.0 * EPS * both
        return bool(squared - off > reach * reach)

    def _searched(self, Q: Mapped, k: int, first: First) -> NearestSlots:
        """By the graph of HNSW."""
        keep = self._faiss.IDSelectorBitmap(np.packbits(self._live, bitorder="little"))
        options = self._faiss.SearchParametersHNSW(sel=keep, efSearch=max(self._depth, 2 * k))
        wanted = min(max(self._depth, k), len(self._exact))
        _, numbers = self._index.search(self._moved(Q), wanted, params=options)
        slots = np.full((len(Q), k), -1, np.int64)
        distances = np.full((len(Q), k), np.inf)
        for row, query in enumerate(Q):
            near = self._slot_of[numbers[row][numbers[row] >= 0]]
            near, far = nearest(near, self._exact.measured(query, near), k, first)
            slots[row, : len(near)], distances[row, : len(near)] = near, far
        return NearestSlots(slots, distances, (numbers >= 0).sum(axis=1))


def _faiss() -> Any:
    with importing("an index of FAISS"):
        import faiss
    return faiss
