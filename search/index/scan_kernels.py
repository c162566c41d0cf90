"""Distances in float64. One kernel computes all of them, so two vectors have one distance in any place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled, compiled_sum

Matrix = NDArray[np.float64]


@compiled_sum
def measure(rows: NDArray[np.float32], places: NDArray[np.int64], q: Matrix, out: Matrix) -> None:
    """|x - q|^2 of some rows.

    Parameters
    ----------
    rows : (n, d), places : (m,) of rows, q : (d,).
    out : (m,), written.
    """
    for place in range(len(places)):
        x = rows[places[place]]
        total = 0.0
        for i in range(len(q)):
            apart = np.float64(x[i]) - q[i]
            total += apart * apart
        out[place] = total


@compiled
def products(
    left: NDArray[Any], right: NDArray[Any], rows: NDArray[np.int64], columns: NDArray[np.int64], out: Matrix
) -> None:
    """left[rows[i]] . right[columns[i]] of some pairs of rows, summed from the first number to the last.

    Parameters
    ----------
    left : (n, d), right : (k, d), rows and columns : (m,).
    out : (m,), written.
    """
    for place in range(len(rows)):
        total = 0.0
        for i in range(left.shape[1]):
            total += left[rows[place], i] * right[columns[place], i]
        out[place] = total
