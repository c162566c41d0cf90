"""The compiled loops of OASIS: W <- W + tau x v^T with v = x+ - x-.

One triplet after the other, an active step is delayed to the next sweep over W, which applies it row by row while
computing the next product: one pass over memory per triplet. Rows with x_i = 0 are skipped, and for sparse v only the
entries where both x and v are non-zero are visited. The parts of the blocked form follow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.matrices.bilinear import SCATTER, direction, filled, total
from kinstream.learners.kernels.shared import Flags, Matrix, Report, largest
from kinstream.streams.compute.compilation import compiled

#: A step of this many roundings of the largest entry certainly changes that entry.
ROUNDING: Final = 4.0
#: Triplets after a blocked step that are measured at once.
BEYOND: Final = 64


@compiled
def _two_rows(
    r: Matrix, s: Matrix, pv: Matrix, p: Matrix, step: tuple[Matrix, Matrix], x: tuple[Matrix, Matrix]
) -> None:
    """Apply the step to two rows of W, and add their part of W^T x to p: half as many passes over p.

    Each sum runs in the order of the rows, as with one row at a time.
    """
    e, f = step
    g, h = x
    for j in range(len(p)):
        v, w = r[j] + e * pv[j], s[j] + f * pv[j]
        r[j], s[j] = v, w
        p[j] = (p[j] + g * v) + h * w


@compiled
def _sweep(
    W: Matrix, due: bool, px: Matrix, pv: Matrix, tau: float, wanted: bool, x: Matrix, p: Matrix
) -> None:
    """Apply the step tau px pv^T if it is due; fill p = W^T x if requested."""
    d, done = W.shape[0], 0
    if wanted:
        p[:] = 0
    for i in range(d):
        if i < done:
            continue
        g = W.dtype.type(0.0)
        if wanted:
            g = x[i]
        if due and wanted and i + 1 < d and px[i] != 0 and px[i + 1] != 0:
            step = W.dtype.type(tau * px[i]), W.dtype.type(tau * px[i + 1])
            _two_rows(W[i], W[i + 1], pv, p, step, (g, x[i + 1]))
            done = i + 2
        elif due and px[i] != 0:
            f = W.dtype.type(tau * px[i])
            for j in range(d):
                w = W[i, j] + f * pv[j]
                W[i, j] = w
                p[j] += g * w
        elif g != 0:
            for j in range(d):
                p[j] += g * W[i, j]


@compiled
def _meet(W: Matrix, x: Matrix, v: Matrix, columns: NDArray[np.int64], tau: float) -> float:
    """x^T W v over the entries where both are non-zero; with tau > 0 the step is applied there instead."""
    margin = 0.0
    for i in range(len(x)):
        if x[i] == 0:
            continue
        f, part = W.dtype.type(tau * x[i]), 0.0
        for j in columns:
            if tau > 0.0:
                W[i, j] += f * v[j]
            else:
                part += float(W[i, j]) * float(v[j])
        margin += float(x[i]) * part
    return margin


@compiled
def _changes(W: Matrix, x: Matrix, v: Matrix, tau: float) -> bool:
    """Whether the step is more than rounding in any entry; usually the first checked entry decides."""
    i, j = 0, 0
    for k in range(len(x)):
        if abs(x[k]) > abs(x[i]):
            i = k
        if abs(v[k]) > abs(v[j]):
            j = k
    if W[i, j] + W.dtype.type(tau * x[i]) * v[j] != W[i, j]:
        return True
    for i in range(len(x)):
        f = W.dtype.type(tau * x[i])
        for j in range(len(x)):
            if W[i, j] + f * v[j] != W[i, j]:
                return True
    return False


@compiled
def _judge(
    W: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    first: int,
    last: int,
    v: Matrix,
    p: Matrix,
    columns: NDArray[np.int64],
    work: NDArray[np.float64],
    before: NDArray[np.float64],
    anchor: int,
) -> None:
    """Fill in before[first:last] with margins, with one product for each anchor.

    Parameters
    ----------
    v, columns, work : work space.
    p, anchor : a product W^T x, changed in place, and the row of X it belongs to; -1 for none.
    """
    no = len(W) == 0
    for t in range(first, last):
        before[t] = np.nan
        if not usable[t]:
            continue
        direction(X, index[t], v, work)
        x, count = X[index[t, 0]], filled(v, columns)
        if count * SCATTER < len(v):
            before[t] = _meet(W, x, v, columns[:count], 0.0)
            continue
        if index[t, 0] != anchor:
            _sweep(W, no, x, v, 0.0, not no, x, p)
            anchor = index[t, 0]
        before[t] = total(p, v, work)


@compiled
def triplets(
    W: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    aggressiveness: float,
    limit: float,
    bound: float,
    report: Report,
    judged: Judged,
    start: int,
    stop: int,
) -> float:
    """OASIS, one triplet after the other.

    Parameters
    ----------
    W : (d, d), changed in place.
    X : (n, d) vectors, of W's type.
    index : (m, 3) rows of X: anchor, positive, negative.
    usable : (m,) false where a vector is not finite.
    aggressiveness : largest tau.
    limit : entries below it are safely numbers of W's type. A step that might go beyond is rejected.
    bound : at least the largest absolute entry of W; negative if unknown.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.
    start, stop : which of the m triplets to learn.

    Returns
    -------
    float
        The bound to pass next time.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    d = len(W)
    v, pv, p = np.empty(d, W.dtype), np.empty(d, W.dtype), np.empty(d, W.dtype)
    columns, work = np.empty(d, np.int64), np.empty(d)
    # Not literals: the pieces would be compiled again for each literal.
    yes, no = d > 0, d == 0
    due, px, step = no, p, 0.0
    # The end of the newest event while W is that of its start: earlier rows are judged when they are learned, and the
    # others before W changes.
    last, spare = 0, np.empty(d, np.int64)
    if bound < 0.0:
        bound = largest(W)
    for t in range(start, stop):
        if len(ends) > 0 and ends[t] > 0:
            last = ends[t]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        xx, vv, flat = direction(X, index[t], v, work)
        if flat:
            mistake[t], loss[t], degenerate[t], rejected[t], margins[t] = 1, 1.0, True, False, 0.0
            continue
        x = X[index[t, 0]]
        count = filled(v, columns)
        sparse = count * SCATTER < d
        if due or not sparse:
            _sweep(W, due, px, pv, step, not sparse, x, p)
            due = no
        margin = _meet(W, x, v, columns[:count], 0.0) if sparse else total(p, v, work)
        hinge, margins[t] = 1.0 - margin, margin
        if t < last:
            before[t] = margin
        if not np.isfinite(hinge):
            continue
        if hinge > 0.0:
            if t < last:
                # p may belong to this anchor; the room for the step's direction is free.
                anchor = -1 if sparse else index[t, 0]
                _judge(W, X, index, usable, t + 1, last, pv, p, spare, work, before, anchor)
                last = 0
            tau = min(aggressiveness, hinge / xx / vv)
            most = tau * np.sqrt(xx) * np.sqrt(vv)
            if not bound + most < limit:
                bound = largest(W)
                if not bound + most < limit:
                    continue
            if most > ROUNDING * np.finfo(W.dtype).eps * d * bound or _changes(W, x, v, tau):
                bound += most
                utilised[t] = True
                if sparse:
                    _meet(W, x, v, columns[:count], tau)
                else:
                    due, px, step = yes, x, tau
                    v, pv = pv, v
        rejected[t] = False
        mistake[t] = 1 if margin <= 0.0 else 0
        loss[t] = max(hinge, 0.0)
    _sweep(W, due, px, pv, step, no, px, p)
    _judge(W, X, index, usable, stop, max(last, stop), v, p, columns, work, before, -1)
    return bound


@compiled
def gather(
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    V: Matrix,
    rows: NDArray[np.int32],
    local: NDArray[np.int32],
    squares: NDArray[np.float64],
    degenerate: Flags,
) -> tuple[int, int]:
    """Fill V (m, d) with the directions v, and number the distinct anchors: `local` (m,) points into `rows`.

    Parameters
    ----------
    squares : (m, 2) becomes x.x and v.v. Nothing is set for a triplet that cannot be used, and its v is zero.

    Returns
    -------
    tuple of int and int
        The number of anchors, and of their non-zero entries.
    """
    count, entries = 0, 0
    work = np.empty(V.shape[1])
    for t in range(len(index)):
        degenerate[t], local[t] = False, 0
        if not usable[t]:
            V[t] = 0
            continue
        squares[t, 0], squares[t, 1], degenerate[t] = direction(X, index[t], V[t], work)
        k = count - 1
        while k >= 0 and rows[k] != index[t, 0]:
            k -= 1
        if k < 0:
            rows[count] = index[t, 0]
            k = count
            count += 1
            for value in X[index[t, 0]]:
                entries += 1 if value != 0 else 0
        local[t] = k
    return count, entries


@compiled
def _catch_up(
    U: Matrix,
    V: Matrix,
    G: Matrix,
    K: Matrix,
    local: NDArray[np.int32],
    tau: NDArray[np.float64],
    active: NDArray[np.int64],
    count: int,
    t: int,
    partial: NDArray[np.float64],
    known: NDArray[np.int64],
    work: NDArray[np.float64],
) -> None:
    """Add to the margin of triplet t the changes by the first `count` active triplets; see `recursion`."""
    a = local[t]
    if known[t] < 0:
        partial[t], known[t] = total(U[a], V[t], work), 0
    margin = partial[t]
    for c in range(known[t], count):
        i = active[c]
        margin += tau[i] * (float(G[a, local[i]]) * float(K[t, i]))
    partial[t], known[t] = margin, count


@compiled
def recursion(
    U: Matrix,
    V: Matrix,
    G: Matrix,
    K: Matrix,
    local: NDArray[np.int32],
    squares: NDArray[np.float64],
    usable: Flags,
    aggressiveness: float,
    limit: float,
    bound: float,
    tau: NDArray[np.float64],
    report: Report,
    judged: Judged,
    start: int,
) -> float:
    """The scalars of a whole block, from products alone.

    W_t = W_0 + sum tau_i x_i v_i^T, so x_t^T W_t v_t = x_t^T W_0 v_t + sum tau_i (x_i . x_t) (v_i . v_t).

    Parameters
    ----------
    U : (k, d) W_0^T x of every distinct anchor.
    V : (m, d) directions.
    G, K : (k, k) and (m, m) inner products of the anchors and of the directions.
    tau : (m,) becomes the steps, 0 where there is none.
    report : outcome arrays; `degenerate` is read, the others are written.
    judged, start : see `kinstream.learners.kernels.events`, and the number of the first row here.

    Returns
    -------
    float
        The bound of W's entries afterwards; -1 when the block needs the sequential loop: a number is not finite, or
        a step is no more than rounding.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    n = len(usable)
    # Margins as far as they are known, and the number of active triplets included; -1 for none at all.
    partial, known = np.empty(n), np.full(n, -1)
    active, work = np.empty(n, np.int64), np.empty(V.shape[1])
    count = 0
    least = ROUNDING * np.finfo(V.dtype).eps * V.shape[1]
    for t in range(n):
        if len(ends) > 0 and ends[start + t] > 0:
            for s in range(t + 1, min(ends[start + t] - start, n)):
                before[start + s] = np.nan
                if usable[s] and not degenerate[s]:
                    _catch_up(U, V, G, K, local, tau, active, count, s, partial, known, work)
                    before[start + s] = partial[s]
        mistake[t], loss[t], margins[t], tau[t] = -1, 0.0, np.nan, 0.0
        utilised[t], clipped[t], rejected[t] = False, False, not usable[t]
        if not usable[t]:
            continue
        if degenerate[t]:
            mistake[t], loss[t], margins[t] = 1, 1.0, 0.0
            continue
        _catch_up(U, V, G, K, local, tau, active, count, t, partial, known, work)
        margin = partial[t]
        hinge, margins[t] = 1.0 - margin, margin
        if not np.isfinite(hinge):
            return -1.0
        if hinge > 0.0:
            tau[t] = min(aggressiveness, hinge / squares[t, 0] / squares[t, 1])
            most = tau[t] * np.sqrt(squares[t, 0]) * np.sqrt(squares[t, 1])
            bound += most
            if not (bound < limit and most > least * bound):
                return -1.0
            active[count] = t
            count += 1
            utilised[t] = True
        mistake[t] = 1 if margin <= 0.0 else 0
        loss[t] = max(hinge, 0.0)
    return bound


@compiled
def beyond(
    W: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    judged: Judged,
    start: int,
    stop: int,
    A: Matrix,
    U: Matrix,
    V: Matrix,
    local: NDArray[np.int32],
    tau: NDArray[np.float64],
) -> None:
    """Measure the triplets after a step whose event began in it, under the similarity at the event's start.

    Parameters
    ----------
    W : before the step.
    index, usable, judged : of all triplets; the step's are start .. stop.
    A, U, V, local, tau : the step's anchors, and see `recursion`.
    """
    ends, before, _ = judged
    began, d = stop - 1, len(W)
    while began > start and ends[began] == 0:
        began -= 1
    known, work = began - start, np.empty(d)
    for first in range(stop, ends[began], BEYOND):
        number = min(BEYOND, ends[began] - first)
        v, own = np.zeros((number, d), W.dtype), np.zeros((number, known), W.dtype)
        for n in range(number):
            if usable[first + n]:
                direction(X, index[first + n], v[n], work)
        if known > 0:
            np.dot(v, V[:known].T, own)
        anchor, p, grams = -1, U[0], A[:, 0].copy()
        for n in range(number):
            t, margin = first + n, np.nan
            if usable[t]:
                if index[t, 0] != anchor:
                    anchor = index[t, 0]
                    p, grams = U[local[known]], np.dot(A, X[anchor])
                    if not usable[began] or index[began, 0] != anchor:
                        p = np.dot(X[anchor], W)
                margin = total(p, v[n], work)
                for i in range(known):
                    if tau[i] > 0.0:
                        margin += tau[i] * (float(grams[local[i]]) * float(own[n, i]))
            before[t] = margin


@compiled
def collect(V: Matrix, local: NDArray[np.int32], tau: NDArray[np.float64], R: Matrix) -> None:
    """Sum of tau_t v_t over the triplets of each anchor."""
    R[:] = 0
    for t in range(len(local)):
        if tau[t] > 0.0:
            f, r, v = V.dtype.type(tau[t]), R[local[t]], V[t]
            for j in range(len(v)):
                r[j] += f * v[j]
