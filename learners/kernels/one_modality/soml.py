"""The compiled loops of SOML: W = diag(w), so a triplet is represented by g = x (x+ - x-), entry by entry."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import WIDTH, Judged
from kinstream.learners.kernels.matrices.bilinear import total
from kinstream.learners.kernels.one_modality.sors import shrunk
from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled, compiled_map

#: Relative and absolute length below which a difference counts as zero.
_NONE: Final = NO_DIFFERENCE**0.5
_LEAST: Final = TINY**0.5


@compiled
def _reach(X: Matrix, tops: Matrix) -> float:
    """At least the length of every row, from the largest entry of each column, infinite if one is; `tops` is work."""
    tops[:] = 0
    for i in range(len(X)):
        x = X[i]
        for j in range(len(tops)):
            size = abs(x[j])
            tops[j] = size if size > tops[j] else tops[j]
    squares = 0.0
    for top in tops:
        squares += float(top) * float(top)
    return float(np.sqrt(squares))


@compiled
def _product(X: Matrix, rows: Matrix, g: Matrix) -> None:
    """Fill g = x (x+ - x-)."""
    x, y, z = X[rows[0]], X[rows[1]], X[rows[2]]
    for j in range(len(g)):
        g[j] = g.dtype.type(x[j]) * (g.dtype.type(y[j]) - g.dtype.type(z[j]))


@compiled
def _moves(X: Matrix, rows: Matrix, none: float, g: Matrix) -> bool:
    """Whether an entry of g is not zero where x+ - x- is longer than `none`; usually the first one is."""
    for j in range(len(g)):  # noqa: SIM110
        if g[j] != 0 and abs(float(X[rows[1], j]) - float(X[rows[2], j])) > none:
            return True
    return False


@compiled
def _vanishes(X: Matrix, rows: Matrix, g: Matrix, work: NDArray[np.float64]) -> bool:
    """Whether g or x+ - x- is zero, the latter to rounding; false if an entry is not finite."""
    y, z = X[rows[1]], X[rows[2]]
    moves, vv = False, 0.0
    for j in range(len(g)):
        if not np.isfinite(g[j]):
            return False
        moves |= g[j] != 0
        vv += (float(y[j]) - float(z[j])) ** 2
    none = max(NO_DIFFERENCE * max(total(y, y, work), total(z, z, work)), TINY)
    return not moves or (np.isfinite(none) and vv <= none)


@compiled
def _fits(values: Matrix, rate: float, g: Matrix, top: float, bound: float, limit: float) -> float:
    """A bound of |values + rate g|, -1 if it is not below the limit; entries of g are at most 2 top^2."""
    raised = bound + rate * 2.0 * top * top
    if raised < limit:
        return raised
    largest = 0.0
    for j in range(len(g)):
        largest = max(largest, abs(float(values[j])) + rate * abs(float(g[j])))
    return largest if largest < limit else -1.0


@compiled
def _judge(
    w: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    first: int,
    last: int,
    spare: Matrix,
    G: Matrix,
    work: NDArray[np.float64],
    before: NDArray[np.float64],
) -> None:
    """Fill in before[first:last] with margins, and G with the products g of the first of these rows."""
    for t in range(first, last):
        before[t] = np.nan
        if usable[t]:
            g = G[t - first] if t - first < len(G) else spare
            _product(X, index[t], g)
            before[t] = total(w, g, work)


@compiled
def truncated(
    w: Matrix,
    waiting: int,
    eta: float,
    pull: float,
    always: bool,
    limit: float,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    report: Report,
    judged: Judged,
) -> int:
    """SOML-TG, one triplet after the other.

    Parameters
    ----------
    w : (d,) as of the last active triplet, changed in place.
    waiting : thresholds since then, with `always`.
    eta, pull : step size, and threshold.
    always : whether a triplet with a closed hinge also counts as a threshold.
    limit : entries below it are safely numbers of w's type. A step that might go beyond is rejected.
    X : (n, d) vectors, of w's type or a narrower one.
    index : (m, 3) rows of X: anchor, positive, negative.
    usable : (m,) false for triplets to reject; triplets with an entry that is not finite are rejected too, because
        their margin is not finite.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.

    Returns
    -------
    int
        The thresholds that are waiting now.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    d = len(w)
    own, made_up, work = np.empty(d, w.dtype), np.empty(d, w.dtype), np.empty(d)
    # The end of the newest event while w is that of its start: earlier rows are judged when they are learned, and the
    # others before w changes. Their products are kept, from row `kept` on.
    last, kept, count = 0, 0, 0
    spare, G = np.empty(d, w.dtype), np.empty((WIDTH if len(ends) > 0 else 0, d), w.dtype)
    by, ahead = w.dtype.type(pull), w.dtype.type(eta)
    bound, top = limit, _reach(X, own)
    none = max(_NONE * top, _LEAST)
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            last = ends[t]
            if always:
                # Then every row changes w.
                late = w.dtype.type(pull * waiting)
                for j in range(d):
                    made_up[j] = shrunk(w[j], late)
                _judge(made_up, X, index, usable, t + 1, last, spare, G, work, before)
                last, kept, count = 0, t + 1, min(last - t - 1, len(G))
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        g = own
        if kept <= t < kept + count:
            g = G[t - kept]
        else:
            _product(X, index[t], g)
        if not _moves(X, index[t], none, g) and _vanishes(X, index[t], g, work):
            mistake[t], loss[t], degenerate[t], rejected[t], margins[t] = 1, 1.0, True, False, 0.0
            waiting += 1 if always else 0
            continue
        current = w
        if waiting > 0:
            late, current = w.dtype.type(pull * waiting), made_up
            for j in range(d):
                current[j] = shrunk(w[j], late)
        margin = total(current, g, work)
        hinge = 1.0 - margin
        if t < last:
            before[t] = margin
        if not np.isfinite(hinge):
            continue
        margins[t] = margin
        if hinge > 0.0:
            raised = _fits(w, eta, g, top, bound, limit)
            if raised < 0.0:
                continue
            bound = raised
            if t < last:
                _judge(current, X, index, usable, t + 1, last, spare, G, work, before)
                last, kept, count = 0, t + 1, min(last - t - 1, len(G))
            for j in range(d):
                if shrunk(current[j] + ahead * g[j], by) != w[j]:
                    utilised[t] = True
                    break
            for j in range(d if waiting > 0 else 0):
                w[j] = made_up[j]
            for j in range(d):
                w[j] = shrunk(w[j] + ahead * g[j], by)
            waiting = 0
        elif always:
            waiting += 1
        rejected[t] = False
        mistake[t] = 1 if margin <= 0.0 else 0
        loss[t] = max(hinge, 0.0)
    return waiting


@compiled_map
def averaged(u: Matrix, rounds: int, centre: float, kappa: float, sparsity: float, w: Matrix) -> None:
    """Fill w with the minimiser after `rounds` rounds; before the first it is the identity."""
    d = len(u)
    if rounds == 0:
        w[:] = 1
        return
    base = w.dtype.type(centre)
    factor = w.dtype.type(1.0 / (kappa * np.sqrt(float(rounds))))
    by = w.dtype.type(sparsity * rounds)
    for j in range(d):
        w[j] = base - factor * shrunk(u[j], by)


@compiled
def dual_averaging(
    u: Matrix,
    rounds: int,
    centre: float,
    kappa: float,
    sparsity: float,
    limit: float,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    report: Report,
    judged: Judged,
) -> int:
    """SOML-DA, one triplet after the other.

    Parameters
    ----------
    u : (d,) sum of the subgradients, changed in place.
    rounds : triplets so far.
    centre : entry of the point that the quadratic term pulls to.
    kappa, sparsity : see `kinstream.learners.one_modality.soml_da.SOMLDA`.
    limit, X, index, usable, report, judged : as for `truncated`.

    Returns
    -------
    int
        The rounds for the next call.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    g, w, work = np.empty(len(u), u.dtype), np.empty(len(u), u.dtype), np.empty(len(u))
    G = np.empty((0, len(u)), u.dtype)
    bound, top = limit, _reach(X, g)
    none = max(_NONE * top, _LEAST)
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            averaged(u, rounds, centre, kappa, sparsity, w)
            _judge(w, X, index, usable, t + 1, ends[t], g, G, work, before)
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        _product(X, index[t], g)
        if not _moves(X, index[t], none, g) and _vanishes(X, index[t], g, work):
            mistake[t], loss[t], degenerate[t], rejected[t], margins[t] = 1, 1.0, True, False, 0.0
            rounds += 1
            continue
        averaged(u, rounds, centre, kappa, sparsity, w)
        margin = total(w, g, work)
        hinge = 1.0 - margin
        if not np.isfinite(hinge):
            continue
        margins[t] = margin
        if hinge > 0.0:
            raised = _fits(u, 1.0, g, top, bound, limit)
            if raised < 0.0:
                continue
            bound = raised
            for j in range(len(u)):
                if u[j] - g[j] != u[j]:
                    utilised[t] = True
                    break
            for j in range(len(u)):
                u[j] -= g[j]
        rounds += 1
        rejected[t] = False
        mistake[t] = 1 if margin <= 0.0 else 0
        loss[t] = max(hinge, 0.0)
    return rounds
