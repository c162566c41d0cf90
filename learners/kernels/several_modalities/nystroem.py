"""Coordinates of vectors in the span of landmarks under a Gaussian kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import Matrix
from kinstream.streams.compute.compilation import compiled_map


@compiled_map
def embed(
    X: Matrix,
    lo: int,
    landmarks: NDArray[np.float64],
    rate: float,
    factor: NDArray[np.float64],
    out: Matrix,
    at: int,
) -> None:
    """Columns of `out` from `at` on become factor' k(x), k(x) the kernel of a row with each landmark.

    Each row separately, always in the same order, so its coordinates do not depend on other rows.

    Parameters
    ----------
    X : (n, D), used from column `lo` on.
    landmarks : (d, l), in columns.
    rate : factor of -|x - y|^2.
    factor : (l, r).
    """
    d, many = landmarks.shape
    r = factor.shape[1]
    k, coordinates = np.empty(many), np.empty(r)
    for n in range(len(X)):
        for s in range(many):
            k[s] = 0.0
        for j in range(d):
            row, value = landmarks[j], float(X[n, lo + j])
            for s in range(many):
                apart = value - row[s]
                k[s] += apart * apart
        for c in range(r):
            coordinates[c] = 0.0
        for s in range(many):
            row, value = factor[s], np.exp(-rate * k[s])
            for c in range(r):
                coordinates[c] += value * row[c]
        for c in range(r):
            out[n, at + c] = coordinates[c]
