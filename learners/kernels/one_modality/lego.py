"""The compiled loop of LEGO and ITML-Online. `T` stands for G transposed: row j of T is column j of G.

Both change the map by (sqrt(rho) - 1) / yhat w g' with w = G z and g = G' w; they differ only in rho. Scalars of a step
are float64 for any type of the model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged, measure
from kinstream.learners.kernels.shared import CLEAR, NO_DIFFERENCE, TINY, Flags, Matrix, Report, largest
from kinstream.streams.compute.compilation import compiled

#: How rho is found: LEGO's closed form, or ITML-Online's step with its cap.
EXACT: Final = 0
CAPPED: Final = 1
#: Range of rho, the factor of the determinant in one step.
LEAST_RHO: Final = 1e-12
MOST_RHO: Final = 1e12


@compiled
def step_size(rule: int, eta: float, kappa: float, found: float, target: float) -> tuple[float, float, bool]:
    """Rank-one factor of one constraint, and its derivation.

    Parameters
    ----------
    found, target : squared distance before the step, above 0, and the wanted one.

    Returns
    -------
    tuple of float, float and bool
        (sqrt(rho) - 1) / found, the step size taken, and whether a guard acted. The first is NaN if no step is defined.
    """
    gap = found - target
    clipped = False
    # `change` is rho - 1, in a form that keeps its digits if rho is close to 1.
    if rule == EXACT:
        k = 1.0 - eta * target * found
        q = np.sqrt(k * k + 4.0 * eta * found * found)
        rho = 2.0 / (k + q) if k >= 0.0 else (q - k) / (2.0 * eta * found * found)
        change = -rho * (2.0 * eta * found * gap / (2.0 - k + q))
    else:
        if gap < 0.0 and eta * -gap * found > kappa:
            eta, clipped = kappa / (-gap * found), True
        shrink = eta * gap * found
        rho = 1.0 / (1.0 + shrink)
        change = -rho * shrink
    if rho < LEAST_RHO:
        rho, change, clipped = LEAST_RHO, LEAST_RHO - 1.0, True
    elif rho > MOST_RHO:
        rho, change, clipped = MOST_RHO, MOST_RHO - 1.0, True
    return change / ((np.sqrt(rho) + 1.0) * found), eta, clipped


@compiled
def judge(sign: int, squared: bool, found: float, target: float) -> tuple[float, bool]:
    """Loss of a pair, and whether it needs a step."""
    gap = found - target
    if squared:
        return 0.5 * gap * gap, gap != 0.0
    return (0.5 * gap * gap, True) if sign * gap > 0.0 else (0.0, False)


@compiled
def _rests(sign: int, squared: bool, found: float, target: float) -> bool:
    """Whether a pair needs no step under any rounding of its squared distance; false for NaN."""
    gap = found - target
    return not squared and np.isfinite(gap * gap) and -sign * gap > CLEAR * (found + target)


@compiled
def verdict(sign: int, found: float, threshold: float) -> int:
    """Mistake of a pair: 1 or 0, -1 if the threshold is not known."""
    if np.isnan(threshold):
        return -1
    return 1 if (found > threshold) == (sign > 0) else 0


@compiled
def difference(X: Matrix, rows: Matrix, z: Matrix) -> bool:
    """Fill z = u - v; zeros, and True, if that counts as zero."""
    u, v = X[rows[0]], X[rows[1]]
    zz, uu, vv = 0.0, 0.0, 0.0
    for i in range(len(z)):
        z[i] = u[i] - v[i]
        s, x, y = float(z[i]), float(u[i]), float(v[i])
        zz += s * s
        uu += x * x
        vv += y * y
    flat = np.isfinite(zz) and zz <= max(NO_DIFFERENCE * max(uu, vv), TINY)
    if flat:
        z[:] = 0
    return flat


@compiled
def square(v: Matrix) -> float:
    """|v|^2, as four sums so that one addition need not wait for the other."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(v) - len(v) % 4
    for i in range(0, whole, 4):
        p, q, r, s = float(v[i]), float(v[i + 1]), float(v[i + 2]), float(v[i + 3])
        a += p * p
        b += q * q
        c += r * r
        d += s * s
    for i in range(whole, len(v)):
        a += float(v[i]) * float(v[i])
    return (a + b) + (c + d)


@compiled
def _map(T: Matrix, z: Matrix, w: Matrix) -> float:
    """w = G z; returns |w|^2."""
    d = len(z)
    w[:] = 0
    whole = d - d % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = T[j], T[j + 1], T[j + 2], T[j + 3]
        z0, z1, z2, z3 = z[j], z[j + 1], z[j + 2], z[j + 3]
        for i in range(d):
            w[i] += (z0 * t0[i] + z1 * t1[i]) + (z2 * t2[i] + z3 * t3[i])
    for j in range(whole, d):
        t, x = T[j], z[j]
        for i in range(d):
            w[i] += x * t[i]
    return square(w)


@compiled
def _map_back(T: Matrix, w: Matrix, g: Matrix) -> float:
    """g = G' w; returns |g|^2. Four rows at a time, because a sum must not be reordered within a row."""
    d = len(w)
    whole = d - d % 4
    zero = w.dtype.type(0)
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = T[j], T[j + 1], T[j + 2], T[j + 3]
        a, b, c, e = zero, zero, zero, zero
        for i in range(d):
            x = w[i]
            a += x * t0[i]
            b += x * t1[i]
            c += x * t2[i]
            e += x * t3[i]
        g[j], g[j + 1], g[j + 2], g[j + 3] = a, b, c, e
    for j in range(whole, d):
        t, a = T[j], zero
        for i in range(d):
            a += w[i] * t[i]
        g[j] = a
    return square(g)


@compiled
def _add(T: Matrix, c: Matrix, w: Matrix) -> bool:
    """G += w c'; returns whether any entry is another one now."""
    d = len(w)
    changed = False
    for j in range(d):
        t, x = T[j], c[j]
        if changed:
            for i in range(d):
                t[i] += x * w[i]
        else:
            for i in range(d):
                after = t[i] + x * w[i]
                changed |= after != t[i]
                t[i] = after
    return changed


@compiled
def _commit(T: Matrix, c: Matrix, w: Matrix, bound: float, limit: float) -> tuple[float, bool]:
    """Apply the update unless an entry would leave the finite numbers.

    `bound` is at least the largest absolute entry that T can have afterwards. Only when it is near the type's limit
    is the candidate computed and checked.

    Returns
    -------
    tuple of float and bool
        The bound, -1 when refused; and whether an entry changed.
    """
    if bound < limit:
        return bound, _add(T, c, w)
    candidate = T.copy()
    changed = _add(candidate, c, w)
    for row in candidate:
        for value in row:
            if not np.isfinite(value):
                return -1.0, False
    for j in range(len(T)):
        t, value = T[j], candidate[j]
        for i in range(len(T)):
            t[i] = value[i]
    return largest(T), changed


@compiled
def pairs(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    targets: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    group: int,
    rule: int,
    squared: bool,
    eta: float,
    kappa: float,
    limit: float,
    bound: float,
    report: Report,
    judged: Judged,
    start: int,
    stop: int,
) -> tuple[float, int, float]:
    """LEGO or ITML-Online, one pair after the other.

    Parameters
    ----------
    T : (d, d) the map transposed; changed in place.
    X : (n, d) vectors, of T's type.
    index, usable, signs, targets, thresholds, group : see `kinstream.learners.base.one_modality.Batch`.
    rule, eta, kappa : EXACT or CAPPED, step size, and the share of the cap (read by CAPPED only).
    squared : every pair is learned; otherwise only those on the wrong side of their target.
    limit, bound : see `_commit`, before the first pair; a negative bound is unknown.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.
    start, stop : which of the m pairs to learn; `start` is even where `group` is 2.

    Returns
    -------
    tuple of float, int and float
        The bound for the next call, the number of pairs that changed the map, and the sum of their step sizes.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    d = T.shape[0]
    z, w, g = np.empty(d, T.dtype), np.empty(d, T.dtype), np.empty(d, T.dtype)
    # The map is that of the event's start up to this row.
    same, steps, total = 0, 0, 0.0
    if bound < 0.0:
        bound = largest(T)
    for t in range(start, stop):
        if len(ends) > 0 and ends[t] > 0:
            measure(T, False, X, index, usable, thresholds[:0], t + group, ends[t], before, before[:0])
            same = ends[t]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        if t < same and _rests(signs[t], squared, before[t], targets[t]):
            degenerate[t], rejected[t] = difference(X, index[t], z), False
            continue
        other = np.nan
        if group == 2 and t % 2 == 0 and usable[t + 1]:
            difference(X, index[t + 1], z)
            other = _map(T, z, w)
        flat = difference(X, index[t], z)
        found = _map(T, z, w)
        margins[t] = other - found
        if not np.isfinite((found - targets[t]) * (found - targets[t])):
            continue
        lost, active = judge(signs[t], squared, found, targets[t])
        if active and found >= TINY:
            alpha, eta_t, cut = step_size(rule, eta, kappa, found, targets[t])
            length = np.sqrt(_map_back(T, w, g))
            for i in range(d):
                g[i] = alpha * float(g[i])
            raised, changed = _commit(T, g, w, bound + abs(alpha) * np.sqrt(found) * length, limit)
            if raised < 0.0:
                continue
            bound = raised
            same = 0
            if changed:
                utilised[t], clipped[t] = True, cut
                steps += 1
                total += eta_t
        rejected[t], degenerate[t] = False, flat
        loss[t] = lost
        if group == 1:
            mistake[t] = verdict(signs[t], found, thresholds[t])
        elif np.isfinite(other):
            mistake[t] = 1 if found >= other else 0
    return bound, steps, total
