"""The catalogue of a space as of a place in the log, and the rankings of its items."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import ItemBlock, Vectors

#: How a store compares a mapped query with items.
PRODUCTS: Final = ("cosine", "dot")
_FIRST: Final = 1024


class LogCatalogue:
    """Items by name, each with a vector.

    Parameters
    ----------
    product : one of `PRODUCTS`.
    """

    def __init__(self, product: str = "cosine") -> None:
        self._product = product
        self.clear()

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forget all items."""
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._table: Vectors = np.empty((0, 0), np.float32)
        self._there: NDArray[np.bool_] = np.empty(0, np.bool_)

    def take(self, block: ItemBlock) -> None:
        """Items that enter, change or leave. Those of another dimension than the first ones are left out."""
        for name in block.tombstones:
            row = self._rows.pop(name, None)
            if row is not None:
                self._there[row] = False
        if not block.ids or len(block.tables) != 1:
            return
        vectors = block.tables[0].vectors
        if not self._names:
            self._table = np.empty((_FIRST, vectors.shape[1]), np.float32)
            self._there = np.zeros(_FIRST, np.bool_)
        if vectors.shape[1] != self._table.shape[1]:
            return
        if self._product == "cosine":
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
        for name, vector in zip(block.ids, vectors, strict=True):
            row = self._rows.get(name)
            if row is None:
                row = self._rows[name] = len(self._names)
                self._names.append(name)
                if row == len(self._table):
                    self._table = np.concatenate([self._table, np.empty_like(self._table)])
                    self._there = np.concatenate([self._there, np.zeros_like(self._there)])
            self._table[row], self._there[row] = vector, True

    def vector(self, name: str) -> Vectors | None:
        """The vector (d,) of an item, None if there is none. With cosine, it has length 1."""
        row = self._rows.get(name)
        return None if row is None else self._table[row]

    def similarities(self, query: Vectors) -> NDArray[np.float32]:
        """(n,) of a mapped query (d,) to each row; -inf for an item that has left."""
        count = len(self._names)
        found = self._table[:count] @ query
        return np.where(self._there[:count], found, np.float32(-np.inf))

    def fits(self, query: Vectors) -> bool:
        """Whether a query (d,) has as many features as the items."""
        return bool(self._rows) and query.shape == self._table.shape[1:]

    def best(self, similarities: NDArray[np.float32], size: int) -> list[str]:
        """The names of the nearest items, at most `size`. Equal ones in the order of their names."""
        size = min(size, len(self))
        if not size:
            return []
        least = np.partition(similarities, len(similarities) - size)[len(similarities) - size]
        rows = np.flatnonzero(similarities >= least).tolist()
        rows.sort(key=lambda row: (-float(similarities[row]), self._names[row]))
        return [self._names[row] for row in rows[:size]]

    def ranks(self, similarities: NDArray[np.float32], names: list[str]) -> NDArray[np.int64]:
        """(len(names),) ranks of items, from 1."""
        own = similarities[[self._rows[name] for name in names]]
        return np.asarray(1 + (similarities[None, :] > own[:, None]).sum(axis=1), np.int64)
