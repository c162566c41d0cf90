"""Squared Euclidean distances between many vectors, and how much they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Matrix = NDArray[np.float64]

#: Distances count as equal if they differ by less than this share.
_NOTHING: Final = 1e-9


def squared_distances(rows: Matrix) -> Matrix:
    """Squared distances (n, n) between the rows (n, k); 0 up to rounding for equal rows."""
    centred = rows - rows.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    return np.asarray(squares[:, None] + squares - 2.0 * (centred @ centred.T))


def spread(mapped: Matrix) -> float:
    """Standard deviation of the squared distances from a row to the others, averaged over the rows (n, k)."""
    with one_blas_thread():
        apart = squared_distances(mapped)
    others = apart[~np.eye(len(mapped), dtype=np.bool_)].reshape(len(mapped), -1)
    found, mean = float(others.std(axis=1).mean()), float(others.mean())
    return found if found > _NOTHING * mean else 0.0


def between(left: Rows, right: Rows) -> Rows:
    """Squared distances (m, n) between the rows of both."""
    squares = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    return np.asarray(np.maximum(squares - 2.0 * (left @ right.T), 0.0))


def of_embedded(embed: Callable[[Rows], Rows], X: Rows, Y: Rows) -> Rows:
    """Squared distances (n,) between the images of the rows of X and of those of Y under a map.

    Raises
    ------
    ValueError
        The tables are not of one shape.
    """
    left, right = embed(X), embed(Y)
    if left.shape != right.shape:
        raise ValueError(f"expected two tables of the same shape, got {np.shape(X)} and {np.shape(Y)}")
    moved = left - right
    return np.asarray(np.einsum("ij,ij->i", moved, moved))
