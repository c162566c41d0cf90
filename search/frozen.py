"""Indexes over vectors that are mapped already: the exact scan, and FAISS for metrics that change rarely.

They hold what a model makes of the items, so a new model needs a new index: it is built beside the old one.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from search.items import Slots
from streams.errors import PackageMissing, SettingsError

Mapped = NDArray[np.float32]

EXACT: Final = "exact"
FLAT: Final = "faiss-flat"
HNSW: Final = "faiss-hnsw"
KINDS: Final = (EXACT, FLAT, HNSW)

#: Distances that a scan holds at a time.
_MOST_CELLS: Final = 8_000_000
#: The scan subtracts large numbers in float32: so many more candidates are measured again.
_MORE: Final = 16
_LEAST_SLOTS: Final = 1024


class Found(NamedTuple):
    """The nearest of q queries.

    Parameters
    ----------
    slots : (q, k) int64, nearest first; -1 where there are fewer.
    distances : (q, k) float64 squared distances; infinity where there are fewer.
    examined : (q,) int64, items whose distance was computed.
    """

    slots: Slots
    distances: NDArray[np.float64]
    examined: NDArray[np.int64]


class FrozenIndex(Protocol):
    """Mapped items by slot. Searches may run beside each other, not beside a change."""

    def put(self, slots: Slots, Z: Mapped) -> None:
        """Add or replace (m,) items, (m, k) float32."""

    def drop(self, slots: Slots) -> None:
        """Remove items; unknown ones are passed over."""

    def search(self, Q: Mapped, k: int) -> Found:
        """The k nearest of each query (q, k') float32."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""


def create(kind: str, dimension: int, *, neighbours: int = 32, depth: int = 64) -> FrozenIndex:
    """An empty index.

    Parameters
    ----------
    dimension : of the mapped vectors.
    neighbours, depth : of HNSW: links of an item, and candidates that a query keeps (M and efSearch).

    Raises
    ------
    SettingsError : no such kind, or FAISS is not installed.
    """
    if kind == EXACT:
        return Exact(dimension)
    if kind in KINDS:
        return Faiss(kind, dimension, neighbours, depth)
    raise SettingsError(f"index must be one of {', '.join(KINDS)}, not {kind!r}")


class Exact:
    """Every item is measured. The scan is one matrix product in float32; the best are measured again in float64."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._rows: Mapped = np.zeros((0, dimension), np.float32)
        #: Squared lengths; infinite in slots that hold nothing, so that they are never near.
        self._lengths: NDArray[np.float32] = np.zeros(0, np.float32)
        self._live = 0

    def __len__(self) -> int:
        return self._live

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._lengths.nbytes

    def put(self, slots: Slots, Z: Mapped) -> None:
        if not len(slots):
            return
        self._reserve(int(slots.max()) + 1)
        self._live -= int(np.isfinite(self._lengths[slots]).sum())
        lengths = np.einsum("ij,ij->i", Z, Z)
        # What is too long to be measured is as far away as what is not there.
        measurable = np.isfinite(lengths)
        self._rows[slots] = np.where(measurable[:, None], Z, 0.0)
        self._lengths[slots] = np.where(measurable, lengths, np.inf)
        self._live += int(measurable.sum())

    def drop(self, slots: Slots) -> None:
        slots = slots[slots < len(self._lengths)]
        self._live -= int(np.isfinite(self._lengths[slots]).sum())
        self._rows[slots] = 0.0
        self._lengths[slots] = np.inf

    def search(self, Q: Mapped, k: int) -> Found:
        k = min(k, self._live)
        slots = np.full((len(Q), k), -1, np.int64)
        distances = np.full((len(Q), k), np.inf)
        if k:
            many = max(1, _MOST_CELLS // len(self._lengths))
            for start in range(0, len(Q), many):
                part = slice(start, start + many)
                slots[part], distances[part] = self._nearest(Q[part], k)
        return Found(slots, distances, np.full(len(Q), self._live, np.int64))

    def _nearest(self, Q: Mapped, k: int) -> tuple[Slots, NDArray[np.float64]]:
        near = Q @ self._rows.T
        near *= -2.0
        near += self._lengths
        wanted = min(k + max(k, _MORE), self._live)
        if wanted < near.shape[1]:
            chosen = np.argpartition(near, wanted - 1, axis=1)[:, :wanted]
        else:
            chosen = np.broadcast_to(np.arange(near.shape[1]), near.shape).copy()
        return measured(Q, self._rows, chosen, np.isfinite(self._lengths[chosen]), k)

    def _reserve(self, wanted: int) -> None:
        held = len(self._lengths)
        if wanted > held:
            size = max(wanted, held + held // 2, _LEAST_SLOTS)
            rows = np.zeros((size, self._dimension), np.float32)
            rows[:held] = self._rows
            lengths = np.full(size, np.inf, np.float32)
            lengths[:held] = self._lengths
            self._rows, self._lengths = rows, lengths


def measured(
    Q: Mapped, rows: Mapped, chosen: NDArray[np.int64], usable: NDArray[np.bool_], k: int
) -> tuple[Slots, NDArray[np.float64]]:
    """The k nearest among the chosen of each query, measured in float64; equal distances by slot.

    Parameters
    ----------
    Q : (q, d).
    chosen : (q, c) rows; `usable` (q, c) is false where one is no item.
    """
    slots = np.full((len(Q), k), -1, np.int64)
    distances = np.full((len(Q), k), np.inf)
    for row, query in enumerate(Q.astype(np.float64)):
        some = chosen[row][usable[row]]
        apart = rows[some].astype(np.float64) - query
        far = np.einsum("ij,ij->i", apart, apart)
        order = np.lexsort((some, far))[:k]
        slots[row, : len(order)], distances[row, : len(order)] = some[order], far[order]
    return slots, distances


class Faiss:
    """FAISS: the flat scan, or HNSW, which examines a small part of the items.

    HNSW cannot forget: a replaced or removed item stays in the graph, is passed over in the answers, and vanishes with
    the next build. The squared distances of the answers are exact ones of what was found.
    """

    def __init__(self, kind: str, dimension: int, neighbours: int, depth: int) -> None:
        self._faiss = faiss = _faiss()
        self._kind, self._depth = kind, depth
        self._exact = Exact(dimension)
        self._index: Any = None
        if kind == HNSW:
            self._index = faiss.IndexHNSWFlat(dimension, neighbours)
            self._index.hnsw.efSearch = depth
        else:
            self._index = faiss.IndexIDMap2(faiss.IndexFlatL2(dimension))
        #: HNSW numbers what it is given: slot of each number, and the number that a slot has now.
        self._slot_of: NDArray[np.int64] = np.empty(0, np.int64)
        self._number_of: dict[int, int] = {}
        self._live: NDArray[np.uint8] = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        graph = self._index.ntotal * (self._exact._dimension * 4 + 280) if self._kind == HNSW else 0
        return self._exact.nbytes + graph

    def put(self, slots: Slots, Z: Mapped) -> None:
        if not len(slots):
            return
        self._forget(slots)
        self._exact.put(slots, Z)
        if self._kind == FLAT:
            self._index.add_with_ids(np.ascontiguousarray(Z), slots)
            return
        first = self._index.ntotal
        self._index.add(np.ascontiguousarray(Z))
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

    def search(self, Q: Mapped, k: int) -> Found:
        k = min(k, len(self._exact))
        if not k:
            return Found(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0)), np.zeros(len(Q), np.int64))
        Q = np.ascontiguousarray(Q)
        if self._kind == FLAT:
            wanted = min(k + max(k, _MORE), len(self._exact))
            _, chosen = self._index.search(Q, wanted)
            examined = np.full(len(Q), len(self._exact), np.int64)
        else:
            keep = self._faiss.IDSelectorBitmap(np.packbits(self._live, bitorder="little"))
            options = self._faiss.SearchParametersHNSW(sel=keep, efSearch=max(self._depth, 2 * k))
            wanted = min(max(self._depth, k), len(self._exact))
            _, numbers = self._index.search(Q, wanted, params=options)
            chosen = np.where(numbers >= 0, self._slot_of[numbers], -1)
            examined = (numbers >= 0).sum(axis=1)
        slots, distances = measured(Q, self._exact._rows, chosen, chosen >= 0, k)
        return Found(slots, distances, examined)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise PackageMissing(
            "an index of FAISS needs the package faiss-cpu: pip install 'kinstream[search]'"
        ) from None
    return faiss
