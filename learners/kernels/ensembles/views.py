"""What members of a mixture see of vectors, in one pass: scaled within bounds, and directions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[Any]
Features = NDArray[np.float64]

#: Sums and maxima that run side by side, in a fixed order.
LANES: Final = 8


@compiled
def scaled(
    Z: Matrix, low: Features, high: Features, offset: Features, factor: Features, found: Matrix
) -> None:
    """Fill in found (n, d): (z + offset) * factor of vectors z (n, d) cut to [low, high]. NaN stays NaN."""
    for i in range(len(Z)):
        z, to = Z[i], found[i]
        for j in range(len(z)):
            value = np.float64(z[j])
            value = low[j] if value < low[j] else value
            value = high[j] if value > high[j] else value
            to[j] = (value + offset[j]) * factor[j]


@compiled
def directions(
    Z: Matrix, low: Features, high: Features, offset: Features, factor: Features, least: float, found: Matrix
) -> None:
    """Fill in found (n, d): what `scaled` would, divided by its length; 0 where no entry is larger than `least`."""
    d = Z.shape[1]
    whole = d - d % LANES
    one, lanes = np.empty((1, d)), np.empty(LANES)
    row = one[0]
    for i in range(len(Z)):
        scaled(Z[i : i + 1], low, high, offset, factor, one)
        lanes[:] = 0.0
        for j in range(0, whole, LANES):
            for u in range(LANES):
                size = abs(row[j + u])
                lanes[u] = size if size > lanes[u] else lanes[u]
        top = lanes.max()
        for j in range(whole, d):
            top = max(top, abs(row[j]))
        if not top > least:
            found[i] = 0.0
            continue
        # Dividing by the largest entry first keeps tiny and huge vectors from under- and overflow.
        lanes[:] = 0.0
        for j in range(d):
            row[j] /= top
        for j in range(0, whole, LANES):
            for u in range(LANES):
                lanes[u] += row[j + u] * row[j + u]
        total = lanes.sum()
        for j in range(whole, d):
            total += row[j] * row[j]
        share, to = 1.0 / np.sqrt(total), found[i]
        for j in range(d):
            to[j] = row[j] * share
