"""Squared Euclidean distances between many vectors, and how much they differ."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Matrix = NDArray[np.float64]

#: Distances that differ by less than this share of them are all the same.
_NOTHING: Final = 1e-9


def squared_distances(rows: Matrix) -> Matrix:
    """Those between any two of the rows (n, k), as (n, n); of rows that are the same 0 but for rounding."""
    centred = rows - rows.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    return np.asarray(squares[:, None] + squares - 2.0 * (centred @ centred.T))


def spread(mapped: Matrix) -> float:
    """Standard deviation of the squared distances from a row to the others, the mean over the rows (n, k)."""
    with one_blas_thread():
        apart = squared_distances(mapped)
    others = apart[~np.eye(len(mapped), dtype=np.bool_)].reshape(len(mapped), -1)
    found, mean = float(others.std(axis=1).mean()), float(others.mean())
    return found if found > _NOTHING * mean else 0.0


def between(left: Rows, right: Rows) -> Rows:
    """Squared distances (m, n) of the rows of both."""
    squares = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    return np.asarray(np.maximum(squares - 2.0 * (left @ right.T), 0.0))
