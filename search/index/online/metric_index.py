"""The base of all search modes: checks of arguments, the items and the metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.online.base import Counters, First, NearestItems
from kinstream.search.index.online.metric import HELD, Metric
from kinstream.search.index.online.ranking import nearest
from kinstream.search.index.online.settings import Settings
from kinstream.search.index.online.vectors import Slots, VectorSlots, vectors


class MetricIndex(ABC):
    """An index under a changing metric, see `kinstream.search.index.online.base.Index`. d is settled by the first
    vectors or metric."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stats = Counters()
        self._d: int | None = None

    def __len__(self) -> int:
        return 0 if self._d is None else len(self.items)

    def put(self, ids: Sequence[str], X: NDArray[Any]) -> None:
        """See `kinstream.search.index.online.base.Index.put`."""
        X = vectors(X, self._d, "X", self.settings.dtype)
        if len(ids) != len(X):
            raise ValueError(f"{len(ids)} ids for {len(X)} rows of X")
        if len(X):
            self._begin(X.shape[1])
            self._entered(self.items.put(ids, X))

    def drop(self, ids: Sequence[str]) -> None:
        """See `kinstream.search.index.online.base.Index.drop`."""
        if self._d is not None:
            self._left(self.items.drop(ids))

    def remap(self, matrix: NDArray[Any], offset: NDArray[Any] | None = None) -> None:
        """See `kinstream.search.index.online.base.Index.remap`."""
        matrix = vectors(matrix, self._d, "matrix")
        k = len(matrix)
        if k == 0:
            raise ValueError("matrix has no rows")
        offset = np.zeros(k) if offset is None else vectors(np.reshape(offset, (1, -1)), k, "offset")[0]
        self._begin(matrix.shape[1])
        begun = perf_counter()
        self._remapped(matrix, offset)
        self.stats.update_seconds += perf_counter() - begun

    def step(self, U: NDArray[Any], V: NDArray[Any]) -> None:
        """See `kinstream.search.index.online.base.Index.step`."""
        if self._d is None:
            raise ValueError("a step needs a metric or items first")
        U, V = np.asarray(U), vectors(V, None, "V")
        if len(V):
            U = vectors(U, len(V), "U")
        if V.shape[1] not in (self._d, self._d + 1):
            raise ValueError(f"V must have {self._d} or {self._d + 1} columns, not {V.shape[1]}")
        if len(U) != self.metric.k:
            raise ValueError(f"U must have {self.metric.k} rows, not {len(U)}")
        if not len(V):
            return
        begun = perf_counter()
        self._stepped(U, V)
        self.stats.update_seconds += perf_counter() - begun

    def search(self, Q: NDArray[Any], k: int, first: First | None = None) -> NearestItems:
        """See `kinstream.search.index.online.base.Index.search`."""
        Q = vectors(Q, self._d, "Q")
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        m = len(Q)
        found = NearestItems([[] for _ in range(m)], np.full((m, k), np.inf), np.zeros(m, np.int64))
        self.stats.searches += m
        if not m or not len(self):
            return found
        for row, (slots, squared, examined) in enumerate(self._searched(Q, k)):
            slots, squared = nearest(slots, squared, self.items, k, first)
            found.ids[row].extend(self.items.ids[slot] for slot in slots)
            found.distances[row, : len(slots)] = squared
            found.examined[row] = examined
        self.stats.examined += int(found.examined.sum())
        return found

    def _begin(self, d: int) -> None:
        if self._d is not None:
            return
        self._d = d
        self.items = VectorSlots(d, self.settings.dtype)
        self.metric = Metric(d, self.settings.bits, self.settings.seed, self.stats, self._hold(d))
        self._begun()

    def _hold(self, d: int) -> int:
        """Sum of the ranks of steps that are kept beside the metric's base."""
        return HELD

    def _remapped(self, matrix: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
        self.metric.remap(matrix, offset)

    def _stepped(self, U: NDArray[np.float64], V: NDArray[np.float64]) -> None:
        self.metric.step(U, V)

    @abstractmethod
    def _begun(self) -> None:
        """Called when items and metric have been created."""

    @abstractmethod
    def _entered(self, slots: Slots) -> None:
        """Called when items were put into these slots."""

    @abstractmethod
    def _left(self, slots: Slots) -> None:
        """Called when items were removed from these slots."""

    @abstractmethod
    def _searched(self, Q: NDArray[np.float64], k: int) -> list[tuple[Slots, NDArray[np.float64], int]]:
        """For each query, items that include the k nearest, their squared distances, and how many were examined."""
