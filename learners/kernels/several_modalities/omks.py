"""The compiled loop of OMKS. The support set is stored in columns, so products with all of it run over rows."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.several_modalities.modalities import Vector, Whole, charge
from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled

LINEAR: Final = 0
RBF: Final = 1
OLDEST: Final = 0
SMALLEST: Final = 1

#: Anchors, positives and negatives (D, B), and tau (experts, B).
Support = tuple[Matrix, Matrix, Matrix, Matrix]
#: For each expert (experts, B) kernels with the whole support set: of an anchor with anchors, and of a positive with
#: positives and negatives.
Kernels = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@compiled
def _pair(x: Matrix, y: Matrix) -> tuple[float, float, float, float]:
    """x.x, y.y, x.y and |x - y|^2."""
    xx, yy, xy, apart = 0.0, 0.0, 0.0, 0.0
    for j in range(len(x)):
        s, t = float(x[j]), float(y[j])
        xx += s * s
        yy += t * t
        xy += s * t
        apart += (s - t) * (s - t)
    return xx, yy, xy, apart


@compiled
def _against(kind: int, rate: float, Z: Matrix, x: Matrix, lo: int, count: int, k: Vector) -> None:
    """k = the kernel of x with each of the first columns of Z, from row `lo` on."""
    for s in range(count):
        k[s] = 0.0
    if kind == LINEAR:
        for j in range(len(x)):
            row, value = Z[lo + j], float(x[j])
            for s in range(count):
                k[s] += value * float(row[s])
    else:
        for j in range(len(x)):
            row, value = Z[lo + j], float(x[j])
            for s in range(count):
                apart = value - float(row[s])
                k[s] += apart * apart
        for s in range(count):
            k[s] = np.exp(-rate * k[s])


@compiled
def _place(tau: Matrix, born: Whole, count: int, newest: int, drop: int) -> int:
    """The column for the next triplet."""
    budget = tau.shape[1]
    if count < budget:
        return count
    if drop == OLDEST:
        return int((newest + 1) % budget)
    found, least = 0, np.inf
    for s in range(budget):
        total = 0.0
        for e in range(len(tau)):
            total += float(tau[e, s])
        if total < least or (total == least and born[s] < born[found]):
            found, least = s, total
    return found


@compiled
def _similarity(
    kind: int,
    rate: float,
    support: Support,
    expert: int,
    x: Matrix,
    y: Matrix,
    count: int,
    ka: Vector,
    kp: Vector,
    kn: Vector,
) -> float:
    """Similarity of x to y by one expert, from the kernels of x with the anchors, and of y with the others."""
    tau = support[3]
    _, _, xy, apart = _pair(x, y)
    found = xy if kind == LINEAR else np.exp(-rate * apart)
    for s in range(count):
        found += float(tau[expert, s]) * ka[s] * (kp[s] - kn[s])
    return float(found)


@compiled
def _shared(
    kind: int,
    rate: float,
    support: Support,
    known: Kernels,
    expert: int,
    x: Matrix,
    y: Matrix,
    lo: int,
    count: int,
) -> None:
    """Fill in an expert's rows of `known`, for the anchor x and the positive y."""
    _against(kind, rate, support[0], x, lo, count, known[0][expert])
    _against(kind, rate, support[1], y, lo, count, known[1][expert])
    _against(kind, rate, support[2], y, lo, count, known[2][expert])


@compiled
def _judge(
    support: Support,
    count: int,
    starts: Whole,
    modes: Whole,
    kinds: Whole,
    rates: Vector,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    theta: Vector,
    first: int,
    last: int,
    before: Vector,
    levels: Vector,
    known: Kernels,
) -> None:
    """Fill in before[first:last] with fused margins, and levels with losses. Shared vectors are measured once.

    Parameters
    ----------
    known : kernels of the row before `first`, if that is usable.
    """
    before[first:last], levels[first:last] = 0.0, 0.0
    own, kp, kn = np.empty(count), np.empty(count), np.empty(count)
    for e in range(len(theta)):
        lo, hi = starts[modes[e]], starts[modes[e] + 1]
        kind, rate = kinds[e], rates[e]
        ka, anchor, positive, near = known[0][e], -1, -1, 0.0
        if usable[first - 1]:
            anchor, positive = index[first - 1, 0], index[first - 1, 1]
            x, y = X[anchor, lo:hi], X[positive, lo:hi]
            near = _similarity(kind, rate, support, e, x, y, count, ka, known[1][e], known[2][e])
        for t in range(first, last):
            if not usable[t]:
                before[t] = np.nan
                continue
            x, y, z = X[index[t, 0], lo:hi], X[index[t, 1], lo:hi], X[index[t, 2], lo:hi]
            if index[t, 0] != anchor:
                ka = own
                _against(kind, rate, support[0], x, lo, count, ka)
            if index[t, 0] != anchor or index[t, 1] != positive:
                _against(kind, rate, support[1], y, lo, count, kp)
                _against(kind, rate, support[2], y, lo, count, kn)
                near = _similarity(kind, rate, support, e, x, y, count, ka, kp, kn)
            anchor, positive = index[t, 0], index[t, 1]
            _against(kind, rate, support[1], z, lo, count, kp)
            _against(kind, rate, support[2], z, lo, count, kn)
            far = _similarity(kind, rate, support, e, x, z, count, ka, kp, kn)
            before[t] += theta[e] * (near - far)
            levels[t] += theta[e] * max(1.0 - near + far, 0.0)


@compiled
def triplets(
    support: Support,
    counts: Whole,
    born: Whole,
    starts: Whole,
    modes: Whole,
    kinds: Whole,
    rates: Vector,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    aggressiveness: float,
    beta: float,
    most: int,
    drop: int,
    behind: Whole,
    theta: Vector,
    report: Report,
    judged: Judged,
) -> None:
    """OMKS, one triplet after the other.

    Parameters
    ----------
    support : changed in place.
    counts : (2,) triplets in the support set, and the column of the newest.
    born : (B,) a number for each triplet, larger for newer ones.
    starts : (m + 1,) the start of each modality in a vector.
    modes, kinds, rates : (e,) the modality of each expert, LINEAR or RBF, and the factor of -|x - y|^2 in RBF.
    X : (n, D) vectors, of the support set's type.
    index, usable : as in `kinstream.learners.kernels.one_modality.opml.triplets`.
    aggressiveness : the largest tau.
    beta, most, behind, theta : of the experts, see `kinstream.learners.kernels.several_modalities.modalities`.
    drop : which triplet is dropped from a full support set, OLDEST or SMALLEST (of equal ones the oldest).
    report : outcome arrays.
    judged : see `kinstream.learners.kernels.events`; the level is the fused loss.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, levels = judged
    A, P, N, tau = support
    experts, budget = tau.shape
    known = np.empty((experts, budget)), np.empty((experts, budget)), np.empty((experts, budget))
    # The vectors that they belong to, from the start of an event until the support set changes; -1 for none.
    anchor, positive = -1, -1
    far_p, far_n = np.empty(budget), np.empty(budget)
    taus = np.empty(experts)
    wrong = np.empty(experts, np.bool_)
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            anchor, positive = (index[t, 0], index[t, 1]) if usable[t] else (-1, -1)
            for e in range(experts if usable[t] else 0):
                lo, hi = starts[modes[e]], starts[modes[e] + 1]
                _shared(
                    kinds[e], rates[e], support, known, e, X[anchor, lo:hi], X[positive, lo:hi], lo, counts[0]
                )
            _judge(
                support, counts[0], starts, modes, kinds, rates, X, index, usable, theta, t + 1, ends[t], before,
                levels, known,
            )  # fmt: skip
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        x, y, z = X[index[t, 0]], X[index[t, 1]], X[index[t, 2]]
        margin, total, none, grows = 0.0, 0.0, True, False
        count = counts[0]
        if index[t, 0] != anchor or index[t, 1] != positive:
            anchor, positive = -1, -1
        for e in range(experts):
            ka, near_p, near_n = known[0][e], known[1][e], known[2][e]
            lo, hi = starts[modes[e]], starts[modes[e] + 1]
            kind, rate = kinds[e], rates[e]
            xx, yy, xy, to_y = _pair(x[lo:hi], y[lo:hi])
            _, zz, xz, to_z = _pair(x[lo:hi], z[lo:hi])
            _, _, _, apart = _pair(y[lo:hi], z[lo:hi])
            same = apart <= max(NO_DIFFERENCE * max(yy, zz), TINY)
            if kind == LINEAR:
                near, far, square = xy, xz, xx * apart
                same |= xx <= TINY
            else:
                near, far, square = np.exp(-rate * to_y), np.exp(-rate * to_z), -2.0 * np.expm1(-rate * apart)
            none &= same
            if anchor < 0:
                _shared(kind, rate, support, known, e, x[lo:hi], y[lo:hi], lo, count)
            _against(kind, rate, P, z[lo:hi], lo, count, far_p)
            _against(kind, rate, N, z[lo:hi], lo, count, far_n)
            for s in range(count):
                weight = float(tau[e, s]) * ka[s]
                near += weight * (near_p[s] - near_n[s])
                far += weight * (far_p[s] - far_n[s])
            hinge = 1.0 - near + far
            wrong[e] = near <= far
            margin += theta[e] * (near - far)
            total += theta[e] * max(hinge, 0.0)
            taus[e] = (
                min(aggressiveness, hinge / square) if hinge > 0.0 and square > 0.0 and not same else 0.0
            )
            grows |= taus[e] > 0.0
        margins[t] = margin
        if not (np.isfinite(margin) and np.isfinite(total)):
            continue
        rejected[t], loss[t], mistake[t] = False, total, 1 if margin <= 0.0 else 0
        if none:
            degenerate[t] = True
            continue
        changed = charge(wrong, behind, most, beta, theta)
        if grows:
            s = _place(tau, born, count, counts[1], drop)
            born[s] = born[counts[1]] + 1
            counts[0], counts[1] = max(count, s + 1), s
            anchor, positive = -1, -1
            for j in range(len(x)):
                A[j, s], P[j, s], N[j, s] = x[j], y[j], z[j]
            for e in range(experts):
                tau[e, s] = taus[e]
        utilised[t] = changed or grows
