"""An index that does everything the slow way: what the real ones are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class Plain:
    """Vectors by id in the order in which ids were first put, and a metric."""

    def __init__(self, d: int) -> None:
        self.rows: dict[str, Matrix] = {}
        self.G, self.offset = np.eye(d), np.zeros(d)

    def put(self, ids: list[str], X: NDArray[Any]) -> None:
        for name, x in zip(ids, X, strict=True):
            self.rows[name] = x.astype(np.float64)

    def drop(self, ids: list[str]) -> None:
        for name in ids:
            self.rows.pop(name, None)

    def remap(self, matrix: Matrix, offset: Matrix) -> None:
        self.G, self.offset = matrix.copy(), offset.copy()

    def step(self, U: Matrix, V: Matrix) -> None:
        d = self.G.shape[1]
        self.G = self.G + U @ V[:, :d]
        if V.shape[1] > d:
            self.offset = self.offset + U @ V[:, d]

    def search(self, q: Matrix, k: int) -> tuple[list[str], Matrix]:
        """The k nearest ids, of equal distances the first, and the squared distances."""
        if not self.rows:
            return [], np.empty(0)
        names = list(self.rows)
        mapped = (q - np.stack(list(self.rows.values()))) @ self.G.T
        squared = np.sum(mapped**2, axis=1)
        order = np.argsort(squared, kind="stable")[:k]
        return [names[row] for row in order], squared[order]


def steps(draw: np.random.Generator, d: int, size: float, r: int = 1) -> tuple[Matrix, Matrix]:
    """U (d, r) and V (r, d) of a random change of about that relative size."""
    return size * draw.normal(size=(d, r)) / np.sqrt(d), draw.normal(size=(r, d))
