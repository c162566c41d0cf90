"""Shared by kernels that keep a symmetric positive semi-definite matrix A.

A stays symmetric to the bit: every change adds products of two entries of one vector, and the same numbers are added
on both sides of the diagonal. So rows and columns are interchangeable, and no symmetrisation is needed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.learners.kernels.events import inner
from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Matrix
from kinstream.streams.compute.compilation import compiled

#: Size in bytes that exceeds a core's own cache: from here on only the part above the diagonal is read.
LARGE: Final = 3_500_000
_LANES: Final = 16


@compiled
def combine(M: Matrix, rows: int, x: Matrix, y: Matrix) -> None:
    """y = the first rows of M, weighted with x and added up."""
    d = len(y)
    y[:] = 0
    whole = rows - rows % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = M[j], M[j + 1], M[j + 2], M[j + 3]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for i in range(d):
            y[i] += (x0 * t0[i] + x1 * t1[i]) + (x2 * t2[i] + x3 * t3[i])
    for j in range(whole, rows):
        t, one = M[j], x[j]
        for i in range(d):
            y[i] += one * t[i]


@compiled
def product(A: Matrix, x: Matrix, y: Matrix) -> None:
    """y = A x for a symmetric A."""
    d = len(y)
    if d * d * A.itemsize < LARGE:
        combine(A, d, x, y)
        return
    y[:] = 0
    # Inner products of four rows with x, in lanes that are added up at the end of the rows.
    lanes = np.zeros((4, _LANES), A.dtype)
    s0, s1, s2, s3 = lanes[0], lanes[1], lanes[2], lanes[3]
    whole = d - d % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = A[j], A[j + 1], A[j + 2], A[j + 3]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for k in range(4):
            y[j + k] += (x0 * t0[j + k] + x1 * t1[j + k]) + (x2 * t2[j + k] + x3 * t3[j + k])
        for k in range(_LANES):
            s0[k], s1[k], s2[k], s3[k] = 0, 0, 0, 0
        i = j + 4
        end = i + (d - i) // _LANES * _LANES
        while i < end:
            for k in range(_LANES):
                one = x[i + k]
                y[i + k] += (x0 * t0[i + k] + x1 * t1[i + k]) + (x2 * t2[i + k] + x3 * t3[i + k])
                s0[k] += one * t0[i + k]
                s1[k] += one * t1[i + k]
                s2[k] += one * t2[i + k]
                s3[k] += one * t3[i + k]
            i += _LANES
        for i in range(end, d):
            one, k = x[i], i - end
            y[i] += (x0 * t0[i] + x1 * t1[i]) + (x2 * t2[i] + x3 * t3[i])
            s0[k] += one * t0[i]
            s1[k] += one * t1[i]
            s2[k] += one * t2[i]
            s3[k] += one * t3[i]
        for k in range(_LANES):
            y[j] += s0[k]
            y[j + 1] += s1[k]
            y[j + 2] += s2[k]
            y[j + 3] += s3[k]
    for j in range(whole, d):
        for i in range(whole, d):
            y[j] += A[j, i] * x[i]


@compiled
def against(M: Matrix, rows: int, x: Matrix, y: Matrix) -> None:
    """y = inner products of x with the first rows of M; four at a time, because no sum may be reordered."""
    d = len(x)
    zero = x.dtype.type(0)
    whole = rows - rows % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = M[j], M[j + 1], M[j + 2], M[j + 3]
        a, b, c, e = zero, zero, zero, zero
        for i in range(d):
            one = x[i]
            a += one * t0[i]
            b += one * t1[i]
            c += one * t2[i]
            e += one * t3[i]
        y[j], y[j + 1], y[j + 2], y[j + 3] = a, b, c, e
    for j in range(whole, rows):
        t, a = M[j], zero
        for i in range(d):
            a += x[i] * t[i]
        y[j] = a


@compiled
def difference(X: Matrix, rows: Matrix, z: Matrix) -> tuple[float, bool]:
    """Fill z = u - v; returns |z|^2, and whether it counts as zero (z is then zero)."""
    u, v = X[rows[0]], X[rows[1]]
    for i in range(len(z)):
        z[i] = u[i] - v[i]
    zz = inner(z, z)
    none = max(NO_DIFFERENCE * max(inner(u, u), inner(v, v)), TINY)
    if np.isfinite(none) and zz <= none:
        z[:] = 0
        return 0.0, True
    return zz, False


@compiled
def square(A: Matrix, z: Matrix, w: Matrix) -> float:
    """z'Az; w becomes A z."""
    product(A, z, w)
    return inner(z, w)


@compiled
def verdict(sign: int, found: float, threshold: float) -> int:
    """Mistake of a pair: similar and above the threshold, or dissimilar and not above it."""
    return 1 if (found > threshold) == (sign > 0) else 0


@compiled
def add(A: Matrix, c: float, z: Matrix, limit: float, w: Matrix) -> tuple[bool, bool]:
    """A += c z z', unless an entry would leave the finite numbers or every entry would stay as it is.

    Parameters
    ----------
    c : may be negative, if A stays positive semi-definite; then its largest entries are on the diagonal before and
        after, and only those have to be checked.
    limit : entries below it, in magnitude, are safe.
    w : (d,) work space.

    Returns
    -------
    tuple of bool and bool
        Whether the result is finite, and whether A changed.
    """
    d = len(z)
    root, sign = np.sqrt(abs(c)), z.dtype.type(1.0 if c > 0.0 else -1.0)
    changed = False
    for i in range(d):
        w[i] = root * float(z[i])
        before = A[i, i]
        after = before + sign * w[i] * w[i]
        if not abs(after) < limit:
            return False, False
        changed |= after != before
    for j in range(d):
        if changed:
            break
        t, x = A[j], sign * w[j]
        for i in range(d):
            changed |= t[i] + x * w[i] != t[i]
    if changed:
        for j in range(d):
            t, x = A[j], sign * w[j]
            for i in range(d):
                t[i] += x * w[i]
    return True, changed


@compiled
def deflate(A: Matrix, g: Matrix, h: Matrix, v: Matrix, limit: float) -> tuple[bool, bool]:
    """A -= g h' + h g' - v v' under the conditions of `add`, with the same results."""
    d = len(g)
    changed = False
    for i in range(d):
        after = (A[i, i] - (g[i] * h[i] + h[i] * g[i])) + v[i] * v[i]
        if not abs(after) < limit:
            return False, False
        changed |= after != A[i, i]
    for j in range(d):
        if changed:
            break
        t, x, y, u = A[j], g[j], h[j], v[j]
        for i in range(d):
            changed |= (t[i] - (x * h[i] + y * g[i])) + u * v[i] != t[i]
    if changed:
        for j in range(d):
            t, x, y, u = A[j], g[j], h[j], v[j]
            for i in range(d):
                t[i] = (t[i] - (x * h[i] + y * g[i])) + u * v[i]
    return True, changed
