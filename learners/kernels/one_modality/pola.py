"""The compiled loop of POLA. Scalars of a step are float64 for any type of the model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged, measure
from kinstream.learners.kernels.matrices.eigenpair import Work, subtract
from kinstream.learners.kernels.matrices.psd_matrix import add, difference, square, verdict
from kinstream.learners.kernels.shared import CLEAR, Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled


@compiled
def pairs(
    A: Matrix,
    b: float,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    group: int,
    cap: float,
    limit: float,
    space: Work,
    report: Report,
    judged: Judged,
) -> float:
    """POLA, one pair after the other.

    Parameters
    ----------
    A : (d, d) the matrix; changed in place.
    b : the threshold.
    X : (n, d) vectors, of A's type.
    index, usable, signs, group : see `kinstream.learners.base.one_modality.Batch`.
    cap : largest step size.
    limit : see `kinstream.learners.kernels.matrices.psd_matrix.add`.
    space : from `kinstream.learners.kernels.matrices.eigenpair.work`.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.

    Returns
    -------
    float
        The threshold afterwards.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, levels = judged
    d = len(A)
    z, w = np.empty(d, A.dtype), np.empty(d, A.dtype)
    # A and b are those of the event's start up to this row.
    same = 0
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            measure(A, True, X, index, usable, before[:0], t + group, ends[t], before, before[:0])
            levels[t : ends[t]] = b
            same = ends[t]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        other, sign = np.nan, int(signs[t])
        if t < same and -sign * (before[t] - b) - 1.0 > CLEAR * (before[t] + b + 1.0):
            # A and b are still those of the event's start, and the hinge is closed under any rounding.
            zz, flat = difference(X, index[t], z)
            if np.isfinite(zz):
                degenerate[t], rejected[t] = flat, False
                continue
        if group == 2 and t % 2 == 0:
            difference(X, index[t + 1], z)
            other = square(A, z, w)
        zz, flat = difference(X, index[t], z)
        found = square(A, z, w)
        margins[t] = other - found
        lost = max(sign * (found - b) + 1.0, 0.0)
        if not np.isfinite(zz + lost):
            continue
        old = b
        if lost > 0.0 and not flat:
            alpha = lost / (zz * zz + 1.0)
            cut = alpha > cap
            alpha = min(alpha, cap)
            if sign > 0:
                finite, changed = subtract(A, alpha, z, limit, space)
            else:
                finite, changed = add(A, alpha, z, limit, w)
            if not finite:
                continue
            b = max(1.0, b + sign * alpha)
            same = 0
            utilised[t] = changed or b != old
            clipped[t] = utilised[t] and cut
        rejected[t], degenerate[t], loss[t] = False, flat, lost
        if group == 1:
            mistake[t] = verdict(sign, found, old)
        elif np.isfinite(other):
            mistake[t] = 1 if found >= other else 0
    return b
