"""The compiled loops of RDML: with the projection, and with a step that stops at the border of the cone.

The border of A - c z z' is at c = 1 / (z'A+ z), A+ the pseudo-inverse, if z lies in the range of A, and at 0 if it
does not. Conjugate gradients on A v = z detect both. For most similar pairs A is singular and z lies outside. So the
last null vector found is kept: a z that is far from orthogonal to it lies outside, which takes d operations.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged, inner, measure
from kinstream.learners.kernels.matrices.eigenpair import Work, subtract
from kinstream.learners.kernels.matrices.psd_matrix import add, difference, product, square
from kinstream.learners.kernels.shared import Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled

OUTSIDE: Final = 0.0
UNKNOWN: Final = -1.0


@compiled
def tolerances(itemsize: int) -> tuple[float, float, float]:
    """For float64 and float32: largest residual of a solution of A v = z, largest curvature that counts as none, and
    smallest cosine that is clearly not orthogonal.

    The last is far above the root of the second, because a direction without curvature may differ that much from a null
    vector.
    """
    return (1e-8, 1e-12, 1e-4) if itemsize == 8 else (1e-5, 1e-6, 1e-2)


@compiled
def exact(
    A: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    group: int,
    rate: float,
    limit: float,
    space: Work,
    report: Report,
    judged: Judged,
) -> None:
    """RDML with A <- psd(A - rate s z z'); arguments as in `kinstream.learners.kernels.one_modality.pola.pairs`."""
    d = len(A)
    z, w = np.empty(d, A.dtype), np.empty(d, A.dtype)
    for t in range(len(index)):
        if not _begin(A, X, index, usable, signs, group, t, z, w, report, judged):
            continue
        if signs[t] > 0:
            finite, changed = subtract(A, rate, z, limit, space)
        else:
            finite, changed = add(A, rate, z, limit, w)
        _end(t, finite, changed, False, report)


@compiled
def capped(
    A: Matrix,
    null: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    group: int,
    rate: float,
    limit: float,
    report: Report,
    judged: Judged,
) -> None:
    """RDML with A <- A - min(rate, border) s z z'; `null` (d,) is a null vector or zero, changed in place."""
    d = len(A)
    z, w = np.empty(d, A.dtype), np.empty(d, A.dtype)
    v, r, p = np.empty(d, A.dtype), np.empty(d, A.dtype), np.empty(d, A.dtype)
    _, curved, clear = tolerances(A.itemsize)
    for t in range(len(index)):
        if not _begin(A, X, index, usable, signs, group, t, z, w, report, judged):
            continue
        across = inner(null, z)
        if signs[t] < 0:
            finite, changed = add(A, rate, z, limit, w)
            if changed and rate * across * across > 1e-4 * curved * _trace(A):
                null[:] = 0
            _end(t, finite, changed, False, report)
            continue
        if abs(across) > clear * np.sqrt(inner(z, z)):
            continue
        inverse = border(A, z, v, r, p, w)
        if not inverse > 0.0:
            if inverse == OUTSIDE:
                _keep(null, p)
            continue
        cut = rate * inverse >= 1.0
        finite, changed = add(A, -1.0 / inverse if cut else -rate, z, limit, w)
        if changed and cut:
            _keep(null, v)
        _end(t, finite, changed, cut, report)


@compiled
def _begin(
    A: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    group: int,
    t: int,
    z: Matrix,
    w: Matrix,
    report: Report,
    judged: Judged,
) -> bool:
    """Report on pair t as if it changed nothing; returns whether it is a mistake that needs a step."""
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    if len(ends) > 0 and ends[t] > 0:
        measure(A, True, X, index, usable, before[:0], t + group, ends[t], before, before[:0])
    mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
    utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
    if not usable[t]:
        return False
    other, sign = np.nan, int(signs[t])
    if group == 2 and t % 2 == 0:
        difference(X, index[t + 1], z)
        other = square(A, z, w)
    zz, flat = difference(X, index[t], z)
    found = square(A, z, w)
    margins[t] = other - found
    if not np.isfinite(zz + found):
        return False
    wrong = sign * (1.0 - found) <= 0.0
    rejected[t], degenerate[t] = False, flat
    loss[t] = max(sign * (found - 1.0), 0.0)
    if group == 1:
        mistake[t] = 1 if wrong else 0
    elif np.isfinite(other):
        mistake[t] = 1 if found >= other else 0
    return wrong and not flat


@compiled
def _end(t: int, finite: bool, changed: bool, cut: bool, report: Report) -> None:
    mistake, utilised, clipped, rejected, _, loss, _ = report
    utilised[t], clipped[t] = changed, changed and cut
    if not finite:
        mistake[t], rejected[t], loss[t] = -1, True, 0.0


@compiled
def _trace(A: Matrix) -> float:
    trace = 0.0
    for i in range(len(A)):
        trace += float(A[i, i])
    return trace


@compiled
def _keep(null: Matrix, v: Matrix) -> None:
    length = np.sqrt(inner(v, v))
    for i in range(len(v)):
        null[i] = float(v[i]) / length


@compiled
def border(A: Matrix, z: Matrix, v: Matrix, r: Matrix, p: Matrix, w: Matrix) -> float:
    """z'A+ z by conjugate gradients; OUTSIDE if z is not in the range, UNKNOWN if 2 d of them do not decide.

    Parameters
    ----------
    v, r, p, w : (d,) work space; v becomes A+ z, or, outside, p a direction without curvature.
    """
    d = len(z)
    near, curved, _ = tolerances(A.itemsize)
    size = 0.0
    for row in A:
        size += inner(row, row)
    flat = curved * np.sqrt(size)
    for i in range(d):
        v[i], r[i], p[i] = 0.0, z[i], z[i]
    zz = inner(z, z)
    rr = zz
    for _ in range(2 * d):
        product(A, p, w)
        curvature = inner(p, w)
        if not curvature > flat * inner(p, p):
            return OUTSIDE
        step = rr / curvature
        for i in range(d):
            v[i] = float(v[i]) + step * float(p[i])
            r[i] = float(r[i]) - step * float(w[i])
        after = inner(r, r)
        if after <= near * near * zz:
            return inner(z, v)
        share = after / rr
        for i in range(d):
            p[i] = float(r[i]) + share * float(p[i])
        rr = after
    return UNKNOWN
