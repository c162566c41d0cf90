"""The compiled loop of learners that score constraints under a map that is constant between fits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import (
    NO_DIFFERENCE,
    TINY,
    Flags,
    Matrix,
    Report,
    map_two,
    two_differences,
)
from kinstream.streams.compute.compilation import compiled


@compiled
def _difference(X: Matrix, rows: Matrix, z: Matrix) -> bool:
    """Fill z = u - v; returns whether that counts as zero."""
    u, v = X[rows[0]], X[rows[1]]
    zz, uu, vv = 0.0, 0.0, 0.0
    for i in range(len(z)):
        z[i] = u[i] - v[i]
        s, x, y = float(z[i]), float(u[i]), float(v[i])
        zz += s * s
        uu += x * x
        vv += y * y
    return zz <= max(NO_DIFFERENCE * max(uu, vv), TINY)


@compiled
def _squares(p: Matrix, q: Matrix) -> tuple[float, float]:
    """|p|^2 and |q|^2."""
    pp, qq = 0.0, 0.0
    for i in range(len(p)):
        pp += float(p[i]) * float(p[i])
        qq += float(q[i]) * float(q[i])
    return pp, qq


@compiled
def constraints(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    threshold: float,
    group: int,
    first: int,
    since: int,
    every: int,
    report: Report,
) -> tuple[int, int, bool]:
    """Score constraints up to the one after which a fit is due.

    Parameters
    ----------
    T : (d, d) the map transposed, or (0, 0) for the identity.
    X : (n, d) vectors, of T's type.
    index, usable, signs, group : see `kinstream.learners.base.one_modality.Batch`. The two rows of a triplet are
        reported as one constraint in its first row.
    threshold : squared distance above which a similar pair is a mistake, and up to which a dissimilar one is.
    first : row to begin with.
    since : constraints since the last fit.
    every : a fit is due at the first constraint with a loss and a direction from the `every`-th on.
    report : outcome arrays of length m.

    Returns
    -------
    tuple of int, int and bool
        The row after the last one scored, constraints since the last fit, and whether a fit is due.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    d = X.shape[1]
    a, b = np.zeros(d, X.dtype), np.zeros(d, X.dtype)
    p, q = np.zeros(d, X.dtype), np.zeros(d, X.dtype)
    rows = np.empty(3, np.int32)
    for t in range(first, len(index), group):
        for k in range(t, t + group):
            mistake[k], loss[k], margins[k] = -1, 0.0, np.nan
            utilised[k], clipped[k], degenerate[k], rejected[k] = False, False, False, True
        if not usable[t]:
            continue
        if group == 2:
            rows[0], rows[1], rows[2] = index[t, 0], index[t, 1], index[t + 1, 1]
            flat = two_differences(X, rows, 1.0, a, b)[3]
        else:
            flat = _difference(X, index[t], a)
        if len(T):
            map_two(T, a, b, p, q)
            near, far = _squares(p, q)
        else:
            near, far = _squares(a, b)
        if group == 2:
            margins[t] = far - near
        if not np.isfinite(near - far):
            continue
        if group == 2:
            wrong, lost = near >= far, 1.0 + (near - far)
        elif signs[t] > 0:
            wrong, lost = near > threshold, near - threshold
        else:
            wrong, lost = near <= threshold, threshold - near
        for k in range(t, t + group):
            rejected[k], degenerate[k] = False, flat
        mistake[t], loss[t] = 1 if wrong else 0, max(lost, 0.0)
        since += 1
        if since >= every and lost > 0.0 and not flat:
            return t + group, since, True
    return len(index), since, False
