"""The compiled loop of MDML. E holds the eigenvectors as rows, e the eigenvalues; scalars of a step are float64."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Imported for its effect: `one_blas_thread` then finds the library of compiled products.
import kinstream.learners.kernels.blas  # noqa: F401
from kinstream.learners.kernels.events import Judged, differences, spread
from kinstream.learners.kernels.matrices.psd_matrix import against, difference, verdict
from kinstream.learners.kernels.matrices.rank_one import Space, put, renew, solve, turn, vectors
from kinstream.learners.kernels.shared import Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled

Vector = NDArray[np.float64]

HINGE: Final = 0
SQUARED: Final = 1
EXPONENTIAL: Final = 2
LOGISTIC: Final = 3

FROBENIUS: Final = 0
VON_NEUMANN: Final = 1
BURG: Final = 2

#: With the guard: largest eigenvalue and threshold, the margin below which the exponential loss goes on as its
#: tangent, and the largest share of Burg's way to infinity that one step goes.
CEILING: Final = 1e18
STEEPEST: Final = -20.0
SHARE: Final = 0.5
#: Slope of the loss up to which there is nothing to learn.
NOTHING: Final = 1e-12
#: Updates after which the eigenvectors are made orthogonal again.
RENEWAL: Final = 100


@compiled
def slope(kind: int, margin: float, guard: bool) -> tuple[float, float, bool]:
    """Loss, minus its derivative, and whether the guard acted."""
    if kind == HINGE:
        return max(1.0 - margin, 0.0), 1.0 if margin < 1.0 else 0.0, False
    if kind == SQUARED:
        rest = max(1.0 - margin, 0.0)
        return 0.5 * rest * rest, rest, False
    if kind == EXPONENTIAL:
        if guard and margin < STEEPEST:
            steep = np.exp(-STEEPEST)
            return steep * (1.0 + STEEPEST - margin), steep, True
        return np.exp(-margin), np.exp(-margin), False
    small = np.exp(-abs(margin))
    loss = max(-margin, 0.0) + np.log1p(small)
    return loss, (small if margin > 0.0 else 1.0) / (1.0 + small), False


@compiled
def _threshold(divergence: int, mu: float, step: float) -> float:
    if divergence == FROBENIUS:
        return max(1.0, mu + step)
    if divergence == VON_NEUMANN:
        return max(1.0, mu * float(np.exp(step)))
    rest = 1.0 / mu - step
    return max(1.0, 1.0 / rest) if rest > 0.0 else mu


@compiled
def _measure(E: Matrix, e: Vector, z: Matrix, w: Matrix) -> float:
    """z'Mz; w becomes E z."""
    against(E, len(e), z, w)
    found = 0.0
    for i in range(len(e)):
        found += e[i] * float(w[i]) * float(w[i])
    return found


@compiled
def _judge(
    E: Matrix,
    e: Vector,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    first: int,
    last: int,
    z: Matrix,
    w: Matrix,
    before: Vector,
) -> None:
    """Fill in before[first:last]; a product is little beside what a step costs."""
    rows = max(last - first, 0)
    places, sources = np.empty((rows, 1), np.int64), np.empty(rows, np.int64)
    squared = np.empty(rows)
    for n in range(differences(index, usable, before[:0], first, last, places, sources)):
        difference(X, index[sources[n]], z)
        squared[n] = _measure(E, e, z, w)
    spread(places, squared, first, before)


def losses(kind: int, margins: Vector, guard: bool) -> Vector:
    """Losses (k,) at these margins; see `slope`."""
    rest = np.maximum(1.0 - margins, 0.0)
    if kind == HINGE:
        return rest
    if kind == SQUARED:
        return 0.5 * rest * rest
    if kind == EXPONENTIAL:
        kept = np.maximum(margins, STEEPEST) if guard else margins
        return np.exp(-kept) * (1.0 + kept - margins)
    return np.maximum(-margins, 0.0) + np.log1p(np.exp(-np.abs(margins)))


@compiled
def pairs(
    E: Matrix,
    e: Vector,
    counters: Vector,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    group: int,
    eta: float,
    rho: float,
    loss_kind: int,
    divergence: int,
    soft: bool,
    guard: bool,
    space: Space,
    report: Report,
    judged: Judged,
) -> None:
    """MDML, one pair after the other.

    Parameters
    ----------
    E, e : (d, d) unit eigenvectors in rows and (d,) eigenvalues; changed in place.
    counters : (3,) threshold, pairs seen and updates made; changed in place.
    X : (n, d) vectors, of E's type.
    index, usable, signs, group : see `kinstream.learners.base.one_modality.Batch`.
    eta, rho : step size and strength of the shrinkage.
    loss_kind, divergence, soft, guard : see the constants, and `kinstream.learners.one_modality.mdml.MDML`.
    space : from `kinstream.learners.kernels.matrices.rank_one.work`.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, levels = judged
    d = len(e)
    eps = 2.220446049250313e-16 if E.itemsize == 8 else 1.1920928955078125e-07
    z, w = np.empty(d, E.dtype), np.empty(d, E.dtype)
    values, y, use = np.empty(d), np.empty(d), np.empty(d, np.int64)
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            _judge(E, e, X, index, usable, t + group, ends[t], z, w, before)
            levels[t : ends[t]] = counters[0]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        other, sign, mu = np.nan, int(signs[t]), counters[0]
        if group == 2 and t % 2 == 0:
            difference(X, index[t + 1], z)
            other = _measure(E, e, z, w)
        zz, flat = difference(X, index[t], z)
        found = _measure(E, e, z, w)
        margins[t] = other - found
        lost, steep, cut = slope(loss_kind, sign * (mu - found), guard)
        if not np.isfinite(zz + lost):
            continue
        if steep > NOTHING and not flat:
            eta_t = eta / np.sqrt(counters[1] + 1.0)
            pull = sign * steep
            if divergence == BURG and guard and pull < 0.0 and -eta_t * pull * found > SHARE:
                eta_t, cut = SHARE / (-pull * found), True
            n = 0
            for i in range(d):
                values[i], y[i] = e[i], w[i]
                if divergence == FROBENIUS or e[i] > 0.0:
                    use[n] = i
                    n += 1
                    if divergence == VON_NEUMANN:
                        values[i] = np.log(e[i])
                    elif divergence == BURG:
                        y[i] *= e[i]
            sigma = -eta_t * pull
            if divergence == BURG:
                whole = 1.0 + eta_t * pull * found
                if not whole > 0.0:
                    continue
                sigma /= whole
            size = 0.0
            for i in range(n):
                size = max(size, abs(values[use[i]]) + abs(sigma) * y[use[i]] * y[use[i]])
            after = _threshold(divergence, mu, eta_t * pull)
            if guard and after > CEILING:
                after, cut = CEILING, True
            if not (np.isfinite(size * d) and np.isfinite(after)):
                continue
            k, turns = 0, 0
            if n > 0 and sigma != 0.0:
                k, turns = solve(values, y, use, n, sigma, eps, space)
            finite, capped = _shrink(values, e, divergence, eta_t * rho if soft else rho, soft, guard)
            if not finite:
                continue
            changed = after != mu
            for i in range(d):
                changed |= values[i] != e[i]
            if changed:
                if k > 0:
                    vectors(k, space)
                turn(E, k, turns, space)
                put(E, k, space)
                for i in range(d):
                    e[i] = values[i]
                counters[0] = after
                counters[2] += 1.0
                if counters[2] % RENEWAL == 0.0:
                    renew(E, space)
                utilised[t], clipped[t] = True, cut or capped
        counters[1] += 1.0
        rejected[t], degenerate[t], loss[t] = False, flat, lost
        if group == 1:
            mistake[t] = verdict(sign, found, mu)
        elif np.isfinite(other):
            mistake[t] = 1 if found >= other else 0


@compiled
def _shrink(
    values: Vector, e: Vector, divergence: int, by: float, soft: bool, guard: bool
) -> tuple[bool, bool]:
    """Eigenvalues of the step become those of the new matrix.

    Returns
    -------
    tuple of bool and bool
        Whether all are finite, and whether the guard acted.
    """
    capped = False
    for i in range(len(values)):
        if divergence == VON_NEUMANN and e[i] > 0.0:
            # exp(log(e)) is not always e.
            values[i] = np.exp(values[i]) if values[i] != np.log(e[i]) else e[i]
        if soft:
            values[i] = max(values[i] - by, 0.0)
        elif values[i] < by or values[i] < 0.0:
            values[i] = 0.0
        if guard and values[i] > CEILING:
            values[i], capped = CEILING, True
        if not np.isfinite(values[i]):
            return False, False
    return True, capped
