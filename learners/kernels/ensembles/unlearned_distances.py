"""Distances of pairs of rows under the metrics that learn nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

Features = NDArray[np.float64]


@compiled
def distances(
    X: Features, left: NDArray[Any], right: NDArray[Any], scales: Features, found: NDArray[np.float64]
) -> None:
    """Fill in found (5, n): squared Euclidean distances of rows as they are, of their directions, of scaled rows, of
    the directions of those, and of rows divided by their ranges.

    The direction of a row without length is 0.

    Parameters
    ----------
    X : (k, D)
    left, right : (n,) rows of X.
    scales : (3, D) shift and factor of the scaled rows, and the factor by ranges.
    """
    k, D = X.shape
    scaled = np.empty((k, D))
    plain, own = np.empty(k), np.empty(k)
    for i in range(k):
        for j in range(D):
            scaled[i, j] = (X[i, j] - scales[0, j]) * scales[1, j]
        plain[i], own[i] = _inverse_length(X[i]), _inverse_length(scaled[i])
    for t in range(len(left)):
        x, y, u, v = X[left[t]], X[right[t]], scaled[left[t]], scaled[right[t]]
        p, q, r, s = plain[left[t]], plain[right[t]], own[left[t]], own[right[t]]
        a = b = c = d = e = 0.0
        for j in range(D):
            moved, turned = x[j] - y[j], x[j] * p - y[j] * q
            further, around = u[j] - v[j], u[j] * r - v[j] * s
            ranged = moved * scales[2, j]
            a += moved * moved
            b += turned * turned
            c += further * further
            d += around * around
            e += ranged * ranged
        found[0, t], found[1, t], found[2, t], found[3, t], found[4, t] = a, b, c, d, e


@compiled
def _inverse_length(x: Features) -> float:
    found = 0.0
    for j in range(len(x)):
        found += x[j] * x[j]
    return float(1.0 / np.sqrt(found)) if found != 0.0 else 0.0
