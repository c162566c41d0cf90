"""Lengths of vectors in float64, summed in a fixed order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

#: Number of parallel sums in a loop, which a processor adds at once.
LANES: Final = 32


def lengths(rows: NDArray[Any]) -> NDArray[np.float64]:
    """The Euclidean norm of each row."""
    squared = np.empty(len(rows))
    squared_lengths(np.ascontiguousarray(rows), squared)
    return np.asarray(np.sqrt(squared))


@compiled
def squared_lengths(rows: NDArray[Any], out: NDArray[np.float64]) -> None:
    """|x|^2 in float64 of each row (n, d), summed in a fixed order."""
    n, d = rows.shape
    whole = d - d % LANES
    lanes = np.empty(LANES)
    for row in range(n):
        lanes[:] = 0.0
        for first in range(0, whole, LANES):
            for i in range(LANES):
                value = np.float64(rows[row, first + i])
                lanes[i] += value * value
        total = 0.0
        for i in range(LANES):
            total += lanes[i]
        for i in range(whole, d):
            value = np.float64(rows[row, i])
            total += value * value
        out[row] = total
