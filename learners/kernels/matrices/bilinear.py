"""Shared by the compiled loops of bilinear learners."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Matrix
from kinstream.streams.compute.compilation import compiled

#: A scattered entry costs as much as this many in a row: with fewer than d / SCATTER non-zeros v is treated as sparse.
SCATTER: Final = 8


@compiled
def total(a: Matrix, b: Matrix, work: NDArray[np.float64]) -> float:
    """a.b in float64. The quarters are first added entry by entry, because one long sum cannot use vector instructions;
    long quarters are treated in the same way.

    `work` holds at least a quarter as many entries.
    """
    n = len(a)
    h = n // 4
    for j in range(h):
        work[j] = (float(a[j]) * float(b[j]) + float(a[j + h]) * float(b[j + h])) + (
            float(a[j + 2 * h]) * float(b[j + 2 * h]) + float(a[j + 3 * h]) * float(b[j + 3 * h])
        )
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    if h >= 64:
        q = h // 4
        for j in range(4 * q, h):
            s2 += work[j]
        for j in range(q):
            work[j] = (work[j] + work[j + q]) + (work[j + 2 * q] + work[j + 3 * q])
        whole, h = q - q % 4, q
    else:
        whole = h - h % 4
    for j in range(0, whole, 4):
        s0 += work[j]
        s1 += work[j + 1]
        s2 += work[j + 2]
        s3 += work[j + 3]
    for j in range(whole, h):
        s0 += work[j]
    for j in range(n - n % 4, n):
        s1 += float(a[j]) * float(b[j])
    return (s0 + s1) + (s2 + s3)


@compiled
def direction(X: Matrix, rows: Matrix, v: Matrix, work: NDArray[np.float64]) -> tuple[float, float, bool]:
    """Fill v = x+ - x-; returns x.x, v.v, and whether x or v vanishes."""
    x, y, z = X[rows[0]], X[rows[1]], X[rows[2]]
    for j in range(len(v)):
        v[j] = y[j] - z[j]
    xx, yy, vv = total(x, x, work), total(y, y, work), total(v, v, work)
    # |z| <= |y| + |v|, so z must be checked only if v is almost zero.
    if vv > 4.0 * NO_DIFFERENCE * (yy + vv) and vv > TINY and xx > TINY:
        return xx, vv, False
    none = max(NO_DIFFERENCE * max(yy, total(z, z, work)), TINY)
    return xx, vv, np.isfinite(none) and (vv <= none or xx <= TINY)


@compiled
def filled(v: Matrix, columns: NDArray[np.int64]) -> int:
    """Number of entries of v that are not zero. If v is sparse their places are the first of `columns` (d,)."""
    d, count = len(v), 0
    for j in range(d):
        count += 1 if v[j] != 0 else 0
    if count * SCATTER < d:
        k = 0
        for j in range(d):
            if v[j] != 0:
                columns[k] = j
                k += 1
    return count
