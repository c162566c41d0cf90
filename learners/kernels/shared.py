"""Shared by many kernels: the arrays that they change, and passes over a map."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.equal_vectors import NO_DIFFERENCE as NO_DIFFERENCE
from kinstream.learners.kernels.equal_vectors import TINY as TINY
from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[Any]
Flags = NDArray[np.bool_]
#: mistake, utilised, clipped, rejected, degenerate, loss, margin: the arrays of `Outcomes`, changed in place.
Report = tuple[NDArray[np.int8], Flags, Flags, Flags, Flags, NDArray[np.float64], NDArray[np.float64]]

#: A margin above 1 by this share of the terms of its difference is above 1 under any rounding.
CLEAR: Final = 1e-3


@compiled
def slot_of(hashes: NDArray[np.uint64], used: int, wanted: np.uint64) -> int:
    """The place of a vector among the first `used`, by its hash; -1 if it is missing."""
    for i in range(used):
        if hashes[i] == wanted:
            return i
    return -1


@compiled
def set_bit(bits: NDArray[np.uint8], own: np.uint64) -> bool:
    """Set the bit of a hash; returns whether it was not set before."""
    bit = own % np.uint64(8 * len(bits))
    byte, mask = np.int64(bit >> np.uint64(3)), np.uint8(1 << np.int64(bit & np.uint64(7)))
    if bits[byte] & mask != 0:
        return False
    bits[byte] |= mask
    return True


@compiled
def largest(T: Matrix) -> float:
    """Largest absolute entry."""
    top = 0.0
    for row in T:
        for value in row:
            top = max(top, abs(float(value)))
    return top


@compiled
def map_two(T: Matrix, a: Matrix, b: Matrix, p: Matrix, q: Matrix) -> None:
    """p = W a and q = W b in one pass over T (d, r), the transpose of W."""
    d, r = T.shape
    p[:] = 0
    q[:] = 0
    whole = d - d % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = T[j], T[j + 1], T[j + 2], T[j + 3]
        a0, a1, a2, a3 = a[j], a[j + 1], a[j + 2], a[j + 3]
        b0, b1, b2, b3 = b[j], b[j + 1], b[j + 2], b[j + 3]
        for i in range(r):
            p[i] += (a0 * t0[i] + a1 * t1[i]) + (a2 * t2[i] + a3 * t3[i])
            q[i] += (b0 * t0[i] + b1 * t1[i]) + (b2 * t2[i] + b3 * t3[i])
    for j in range(whole, d):
        t, x, y = T[j], a[j], b[j]
        for i in range(r):
            p[i] += x * t[i]
            q[i] += y * t[i]


@compiled
def two_differences(
    X: Matrix, rows: Matrix, scale: float, a: Matrix, b: Matrix
) -> tuple[float, float, float, bool]:
    """Fill a = x - x+ and b = x - x-; returns a.a, b.b, a.b and whether a = b or a = -b."""
    x, y, z = X[rows[0]], X[rows[1]], X[rows[2]]
    one = a.dtype.type(scale)
    aa, bb, ab, minus, plus = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(x)):
        a[i] = (x[i] - y[i]) * one
        b[i] = (x[i] - z[i]) * one
    for i in range(len(x)):
        s, t = float(a[i]), float(b[i])
        aa += s * s
        bb += t * t
        ab += s * t
        minus += (s - t) * (s - t)
        plus += (s + t) * (s + t)
    none = max(NO_DIFFERENCE * max(aa, bb), TINY)
    return aa, bb, ab, np.isfinite(none) and (minus <= none or plus <= none)
