"""The compiled loop of LOMDML. `T` holds the transposed maps (d, r) of all modalities, one after the other."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.several_modalities.modalities import (
    Vector,
    Whole,
    charge,
    differences,
    judge,
    vanishes,
)
from kinstream.learners.kernels.shared import CLEAR, Flags, Matrix, Report, map_two
from kinstream.streams.compute.compilation import compiled

#: Largest eta |a|^2 that the guard allows: a step then never raises the value that it should lower.
SAFE: Final = 0.5


@compiled
def _add_two(T: Matrix, step: Matrix, a: Matrix, b: Matrix, p: Matrix, q: Matrix) -> bool:
    """W -= step (p a' - q b'); returns whether that changes it."""
    d, r = T.shape
    changed = False
    for j in range(d):
        t, x, y = T[j], step * a[j], step * b[j]
        if changed:
            for i in range(r):
                t[i] += y * q[i] - x * p[i]
        else:
            for i in range(r):
                old = t[i]
                t[i] = old + (y * q[i] - x * p[i])
                changed |= t[i] != old
    return changed


@compiled
def _length_after(T: Matrix, step: Matrix, a: Matrix, b: Matrix, p: Matrix, q: Matrix) -> float:
    """|W| after `_add_two`; not finite if an entry would not be."""
    total = 0.0
    for j in range(len(a)):
        t, x, y = T[j], step * a[j], step * b[j]
        for i in range(len(p)):
            value = float(t[i] + (y * q[i] - x * p[i]))
            total += value * value
    return float(np.sqrt(total))


@compiled
def triplets(
    T: Matrix,
    starts: Whole,
    ranks: Whole,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    eta: float,
    safe: float,
    cap: float,
    own: bool,
    beta: float,
    most: int,
    margin: float,
    behind: Whole,
    theta: Vector,
    bound: Vector,
    limit: float,
    report: Report,
    judged: Judged,
    start: int,
    stop: int,
) -> None:
    """LOMDML, one triplet after the other.

    Parameters
    ----------
    T : the maps; changed in place.
    starts, ranks : (m + 1,) the start of each modality in a vector, and (m,) the rows of each W.
    X : (n, D) vectors, of T's type.
    index, usable : as in `kinstream.learners.kernels.one_modality.opml.triplets`.
    eta, safe : step size, and the largest eta |a|^2; infinity for no guard.
    cap : largest Frobenius norm of a map; infinity for none.
    own : whether a modality with a margin of 1 takes no step.
    beta, most, behind, theta : see `kinstream.learners.kernels.several_modalities.modalities`.
    margin : of the fused score.
    bound : (m,) at least the norm of each map; negative for unknown.
    limit : an entry below it is safely a number of the type.
    report : outcome arrays.
    judged : see `kinstream.learners.kernels.events`.
    start, stop : which of the m triplets to learn.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, sums = judged
    # The model is that of the event's start up to this row.
    same = 0
    modes, D = len(ranks), starts[len(ranks)]
    a, b = np.empty(D, X.dtype), np.empty(D, X.dtype)
    p, q = np.empty(ranks.sum(), X.dtype), np.empty(ranks.sum(), X.dtype)
    f, steps, shrink, tops = np.empty(modes), np.empty(modes), np.empty(modes), np.empty(modes)
    wrong = np.empty(modes, np.bool_)
    for t in range(start, stop):
        if len(ends) > 0 and ends[t] > 0:
            judge(T, starts, ranks, False, X, index, usable, theta, t + 1, ends[t], before, sums)
            same = ends[t]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        if t < same and ends[t] == 0 and before[t] - margin > CLEAR * sums[t]:
            # The hinge is closed under any rounding: there is nothing to learn.
            rejected[t], mistake[t], margins[t] = False, 0, before[t]
            continue
        x, y, z = X[index[t, 0]], X[index[t, 1]], X[index[t, 2]]
        fused, none, cut = 0.0, True, False
        at, row = 0, 0
        for i in range(modes):
            lo, hi, r = starts[i], starts[i + 1], ranks[i]
            aa, bb, minus, plus, _ = differences(x[lo:hi], y[lo:hi], z[lo:hi], a[lo:hi], b[lo:hi])
            W = T[at : at + (hi - lo) * r].reshape(hi - lo, r)
            map_two(W, a[lo:hi], b[lo:hi], p[row : row + r], q[row : row + r])
            near, far = 0.0, 0.0
            for k in range(row, row + r):
                near += float(p[k]) * float(p[k])
                far += float(q[k]) * float(q[k])
            f[i] = near - far
            fused += theta[i] * f[i]
            steps[i] = 0.0
            if not vanishes(minus, plus):
                none = False
                if f[i] + 1.0 > 0.0 or not own:
                    steps[i] = eta
                    if eta * aa > safe:
                        steps[i] = safe / aa
                    # By how much the step can lengthen the map.
                    tops[i] = 2.0 * steps[i] * (np.sqrt(near) * np.sqrt(aa) + np.sqrt(far) * np.sqrt(bb))
            at += (hi - lo) * r
            row += r
        margins[t] = 0.0 - fused
        if not np.isfinite(fused):
            continue
        if none:
            mistake[t], loss[t], degenerate[t], rejected[t] = 1, margin, True, False
            continue
        if fused + margin > 0.0:
            fits = True
            at, row = 0, 0
            for i in range(modes):
                lo, hi, r = starts[i], starts[i + 1], ranks[i]
                wrong[i], shrink[i] = f[i] > 0.0, 1.0
                if steps[i] > 0.0:
                    tops[i] += bound[i]
                    if not (bound[i] >= 0.0 and tops[i] < min(cap, limit)):
                        W = T[at : at + (hi - lo) * r].reshape(hi - lo, r)
                        step = X.dtype.type(2.0 * steps[i])
                        tops[i] = _length_after(
                            W, step, a[lo:hi], b[lo:hi], p[row : row + r], q[row : row + r]
                        )
                        fits &= bool(np.isfinite(tops[i]))
                        if tops[i] > cap:
                            shrink[i], tops[i] = cap / tops[i], cap
                at += (hi - lo) * r
                row += r
            if not fits:
                continue
            same = 0
            changed = charge(wrong, behind, most, beta, theta)
            at, row = 0, 0
            for i in range(modes):
                lo, hi, r = starts[i], starts[i + 1], ranks[i]
                n = (hi - lo) * r
                if steps[i] > 0.0:
                    step = X.dtype.type(2.0 * steps[i])
                    W = T[at : at + n].reshape(hi - lo, r)
                    earlier = T[:0]
                    if shrink[i] < 1.0:
                        earlier = T[at : at + n].copy()
                    moved = _add_two(W, step, a[lo:hi], b[lo:hi], p[row : row + r], q[row : row + r])
                    if shrink[i] < 1.0:
                        factor, moved = X.dtype.type(shrink[i]), False
                        for k in range(n):
                            T[at + k] *= factor
                            moved |= T[at + k] != earlier[k]
                    if moved:
                        cut |= steps[i] < eta or shrink[i] < 1.0
                        bound[i] = tops[i]
                        changed = True
                at += n
                row += r
            utilised[t], clipped[t] = changed, changed and cut
        rejected[t] = False
        mistake[t] = 1 if fused >= 0.0 else 0
        loss[t] = max(fused + margin, 0.0)
