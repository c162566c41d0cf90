"""The exact blocked update of LOMDML: three matrix products a modality for a block instead of two passes a triplet.

With Z the differences of a block, P = Z W_0' and K = Z Z', a step along triplet s moves what a later one maps to by
inner products alone: p_t = W_t a_t is row a_t of P less 2 eta_s (p_s (a_s . a_t) - q_s (b_s . a_t)) for every earlier
step. So W itself is touched twice: for P, and for the sum of all steps at the end. Nothing is approximated; results
equal the sequential loop's to rounding. A block with a number that is not finite, a map that might reach its cap, or
a step that is no more than rounding takes the sequential loop.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Imported for its side effect: `one_blas_thread` knows the BLAS of compiled products from then on.
from kinstream.learners.kernels import lego_blocked as _  # noqa: F401
from kinstream.learners.kernels import lomdml
from kinstream.learners.kernels.events import Judged, inner, map_many
from kinstream.learners.kernels.modalities import Vector, Whole, charge, differences, vanishes
from kinstream.learners.kernels.opml import NO_DIFFERENCE, TINY, Flags, Matrix, Report
from kinstream.learners.kernels.threads import one_blas_thread
from kinstream.streams.compute.compiled import compiled

#: Triplets of one blocked step, and below how many its fixed cost is not earned back.
LENGTH: Final = 32
SMALLEST: Final = 8
#: Numbers of a map, r d, on average over the modalities, from which on "auto" takes the blocked way.
CROSSOVER: Final = 15_000
#: A step this many times the rounding of the largest entry changes that entry for certain.
ROUNDING: Final = 4.0
#: A sum of products of this many times its rounding is no rounding.
MARGIN: Final = 100.0


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
) -> None:
    """As `kinstream.learners.kernels.lomdml.triplets`, in steps counted from the block's first triplet."""
    work = _work(tuple(starts.tolist()), tuple(ranks.tolist()), T.dtype)
    reach = _reach(X, starts)
    with one_blas_thread():
        for start in range(0, len(index), LENGTH):
            stop = min(start + LENGTH, len(index))
            given = (T, starts, ranks, X, index, usable, eta, safe, cap, own, beta, most, margin)
            after = behind.copy(), theta.copy(), bound.copy()
            there = (judged, start, stop)
            if stop - start >= SMALLEST and _step(*given, *after, limit, reach, report, *there, work):
                behind[:], theta[:], bound[:] = after
            else:
                lomdml.triplets(*given, behind, theta, bound, limit, report, *there)


@compiled
def _largest(W: Matrix) -> float:
    """Largest absolute entry. By columns, for a maximum of floating point numbers cannot use vector instructions."""
    tops = np.zeros(W.shape[1], W.dtype)
    for row in W:
        for k in range(len(tops)):
            size = abs(row[k])
            tops[k] = size if size > tops[k] else tops[k]
    return float(tops.max())


@compiled
def _reach(X: Matrix, starts: Whole) -> Vector:
    """At least the squared length of every finite row, in each modality: of the largest entries of its columns."""
    tops, found = np.zeros(X.shape[1], X.dtype), np.zeros(len(starts) - 1)
    for x in X:
        for j in range(len(tops)):
            size = abs(x[j])
            tops[j] = size if (size > tops[j]) & (size < np.inf) else tops[j]
    for i in range(len(found)):
        for j in range(starts[i], starts[i + 1]):
            found[i] += float(tops[j]) ** 2
    return found


@compiled
def _subtract(X: Matrix, rows: Matrix, lo: int, usable: bool, a: Matrix, b: Matrix) -> None:
    """Fill a = x - y and b = x - z, zeros where a vector is not finite."""
    x, y, z = X[rows[0]], X[rows[1]], X[rows[2]]
    if usable:
        for j in range(len(a)):
            a[j] = x[lo + j] - y[lo + j]
            b[j] = x[lo + j] - z[lo + j]
    else:
        a[:] = 0
        b[:] = 0


@compiled
def _clear(squares: Vector, across: float, reach: float, itemsize: int) -> bool:
    """Whether a, b, a - b and a + b are all far from zero, and from rounding: `differences` would change nothing."""
    both = squares[0] + squares[1]
    eps = 2.220446049250313e-16 if itemsize == 8 else 1.1920928955078125e-07
    none = max(8.0 * NO_DIFFERENCE * reach, 2.0 * TINY)
    apart = both - 2.0 * abs(across)
    return bool(min(squares[0], squares[1]) > none and apart > max(none, MARGIN * eps * both))


@compiled
def _step(
    T: Matrix,
    starts: Whole,
    ranks: Whole,
    X: Matrix,
    all_index: NDArray[np.int32],
    all_usable: Flags,
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
    reach: Vector,
    all_report: Report,
    judged: Judged,
    start: int,
    stop: int,
    work: tuple[Matrix, ...],
) -> bool:
    """One blocked step over some rows; false, with T untouched, where it has to be done sequentially."""
    index, usable = all_index[start:stop], all_usable[start:stop]
    report = (
        all_report[0][start:stop],
        all_report[1][start:stop],
        all_report[2][start:stop],
        all_report[3][start:stop],
        all_report[4][start:stop],
        all_report[5][start:stop],
        all_report[6][start:stop],
    )
    m, modes = len(index), len(ranks)
    n = 2 * m
    Z, P, K, change = work
    squares, still, sizes = np.empty((m, modes, 2)), np.zeros((m, modes), np.bool_), np.empty(modes)
    at, row = 0, 0
    for i in range(modes):
        lo, hi, r = starts[i], starts[i + 1], ranks[i]
        d = hi - lo
        W = T[at : at + d * r].reshape(d, r)
        rows, gram = Z[n * lo : n * hi].reshape(n, d), K[n * n * i : n * n * (i + 1)].reshape(n, n)
        for t in range(m):
            _subtract(X, index[t], lo, usable[t], rows[2 * t], rows[2 * t + 1])
        np.dot(rows, rows.T, gram)
        again = False
        for t in range(m):
            squares[t, i, 0], squares[t, i, 1] = float(gram[2 * t, 2 * t]), float(gram[2 * t + 1, 2 * t + 1])
            if usable[t] and not _clear(squares[t, i], float(gram[2 * t, 2 * t + 1]), reach[i], X.itemsize):
                x, y, z = X[index[t, 0], lo:hi], X[index[t, 1], lo:hi], X[index[t, 2], lo:hi]
                found = differences(x, y, z, rows[2 * t], rows[2 * t + 1])
                squares[t, i, 0], squares[t, i, 1] = found[0], found[1]
                still[t, i], again = vanishes(found[2], found[3]), True
        if again:
            np.dot(rows, rows.T, gram)
        np.dot(rows, W, P[n * row : n * (row + r)].reshape(n, r))
        sizes[i] = _largest(W)
        if not bound[i] + sizes[i] < cap or bound[i] < 0.0:
            bound[i] = np.sqrt(np.sum(W.astype(np.float64) ** 2))
        at += d * r
        row += r
    steps, weights = np.zeros((m, modes)), theta.copy()
    if not recursion(
        P, K, starts, ranks, squares, still, usable, eta, safe, cap, own, beta, most, margin, behind, theta,
        bound, sizes, limit, steps, report, judged, start, weights,
    ):  # fmt: skip
        return False
    if len(judged[0]) > 0:
        _beyond(T, starts, ranks, X, all_index, all_usable, Z, P, steps, weights, judged, start, stop)
    at, row = 0, 0
    for i in range(modes):
        d, r = starts[i + 1] - starts[i], ranks[i]
        mapped = P[n * row : n * (row + r)].reshape(n, r)
        for t in range(m):
            twice = T.dtype.type(2.0 * steps[t, i])
            p, q = mapped[2 * t], mapped[2 * t + 1]
            for k in range(r):
                p[k], q[k] = -twice * p[k], twice * q[k]
        rows, added = Z[n * starts[i] : n * starts[i + 1]].reshape(n, d), change[: d * r]
        np.dot(rows.T, mapped, added.reshape(d, r))
        for k in range(d * r):
            T[at + k] += added[k]
        at += d * r
        row += r
    return True


@compiled
def _catch_up(
    P: Matrix, K: Matrix, ranks: Whole, steps: NDArray[np.float64], first: int, last: int, t: int, n: int
) -> None:
    """Let the products of triplet t know of the steps from `first` up to `last`; see `recursion`."""
    row = 0
    for i in range(len(ranks)):
        r = ranks[i]
        mapped = P[n * row : n * (row + r)].reshape(n, r)
        gram = K[n * n * i : n * n * (i + 1)].reshape(n, n)
        row += r
        p, q = mapped[2 * t], mapped[2 * t + 1]
        for s in range(first, last):
            if steps[s, i] > 0.0:
                twice = P.dtype.type(2.0 * steps[s, i])
                left, right = mapped[2 * s], mapped[2 * s + 1]
                a, b = twice * gram[2 * s, 2 * t], twice * gram[2 * s + 1, 2 * t]
                c, e = twice * gram[2 * s, 2 * t + 1], twice * gram[2 * s + 1, 2 * t + 1]
                for k in range(r):
                    p[k] += b * right[k] - a * left[k]
                    q[k] += e * right[k] - c * left[k]


@compiled
def _margin(P: Matrix, ranks: Whole, theta: Vector, t: int, n: int) -> float:
    """Fused margin of triplet t, from its products."""
    found, row = 0.0, 0
    for i in range(len(ranks)):
        r = ranks[i]
        mapped = P[n * row : n * (row + r)].reshape(n, r)
        row += r
        p, q = mapped[2 * t], mapped[2 * t + 1]
        found += theta[i] * (inner(q, q) - inner(p, p))
    return float(found)


@compiled
def _beyond(
    T: Matrix,
    starts: Whole,
    ranks: Whole,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    Z: Matrix,
    P: Matrix,
    steps: NDArray[np.float64],
    theta: Vector,
    judged: Judged,
    start: int,
    stop: int,
) -> None:
    """Measure the triplets behind this step whose event began in it, under the maps as they were at its start.

    Parameters
    ----------
    T : the maps before the step.
    Z, P, steps : see `_step` and `recursion`, after the latter.
    theta : weights at the event's start.
    """
    ends, before = judged[0], judged[1]
    began = stop - 1
    while began > start and ends[began] == 0:
        began -= 1
    n, D = 2 * (stop - start), starts[len(ranks)]
    z, w = np.empty((2, D), X.dtype), np.empty((2, ranks.max()), X.dtype)
    for t in range(max(stop, began + 1), ends[began]):
        before[t] = 0.0 if usable[t] else np.nan
        if not usable[t]:
            continue
        x, y, other = X[index[t, 0]], X[index[t, 1]], X[index[t, 2]]
        at, row = 0, 0
        for i in range(len(ranks)):
            lo, hi, r = starts[i], starts[i + 1], ranks[i]
            differences(x[lo:hi], y[lo:hi], other[lo:hi], z[0, lo:hi], z[1, lo:hi])
            map_many(T[at : at + (hi - lo) * r].reshape(hi - lo, r), z, lo, 2, w)
            mapped = P[n * row : n * (row + r)].reshape(n, r)
            rows = Z[n * lo : n * hi].reshape(n, hi - lo)
            at += (hi - lo) * r
            row += r
            for s in range(began - start):
                if steps[s, i] > 0.0:
                    twice = 2.0 * steps[s, i]
                    left, right = mapped[2 * s], mapped[2 * s + 1]
                    for c in range(2):
                        one, v = z[c, lo:hi], w[c]
                        a = X.dtype.type(twice * inner(rows[2 * s], one))
                        b = X.dtype.type(twice * inner(rows[2 * s + 1], one))
                        for k in range(r):
                            v[k] += b * right[k] - a * left[k]
            before[t] += theta[i] * (inner(w[1, :r], w[1, :r]) - inner(w[0, :r], w[0, :r]))


@compiled
def recursion(
    P: Matrix,
    K: Matrix,
    starts: Whole,
    ranks: Whole,
    squares: NDArray[np.float64],
    still: Flags,
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
    sizes: Vector,
    limit: float,
    steps: NDArray[np.float64],
    report: Report,
    judged: Judged,
    start: int,
    weights: Vector,
) -> bool:
    """The scalars of a whole block, from products alone.

    Parameters
    ----------
    P : for each modality rows W_0 a_t and W_0 b_t in turn; they become p_t and q_t.
    K : for each modality the inner products of these a_t and b_t.
    squares, still : (m, modes, 2) a.a and b.b, and (m, modes) whether there is nothing to learn from.
    sizes : (modes,) the largest absolute entries of the maps; changed in place.
    steps : (m, modes) zeros; become the steps taken.
    judged, start : see `kinstream.learners.kernels.events`, and which row of a block is the first here.
    weights : (modes,) becomes theta at the beginning of the last event of several rows.

    Returns
    -------
    bool
        False where the block needs the sequential loop.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before = judged[0], judged[1]
    m, modes = steps.shape
    n = 2 * m
    # Of how many steps the products of a triplet know by now.
    known = np.zeros(m, np.int64)
    f, wrong = np.empty(modes), np.empty(modes, np.bool_)
    grown, next_steps = np.empty(modes), np.empty(modes)
    for t in range(m):
        if len(ends) > 0 and ends[start + t] > 0:
            weights[:] = theta
            for u in range(t + 1, min(ends[start + t] - start, m)):
                before[start + u] = np.nan
                if usable[u]:
                    _catch_up(P, K, ranks, steps, known[u], t, u, n)
                    known[u], before[start + u] = t, _margin(P, ranks, theta, u, n)
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, not usable[t]
        if not usable[t]:
            continue
        _catch_up(P, K, ranks, steps, known[t], t, t, n)
        fused, none, row = 0.0, True, 0
        for i in range(modes):
            r = ranks[i]
            mapped = P[n * row : n * (row + r)].reshape(n, r)
            gram = K[n * n * i : n * n * (i + 1)].reshape(n, n)
            row += r
            p, q = mapped[2 * t], mapped[2 * t + 1]
            near, far, across = 0.0, 0.0, 0.0
            for k in range(r):
                near += float(p[k]) * float(p[k])
                far += float(q[k]) * float(q[k])
                across += float(p[k]) * float(q[k])
            f[i] = near - far
            fused += theta[i] * f[i]
            wrong[i], next_steps[i], grown[i] = f[i] > 0.0, 0.0, 0.0
            if still[t, i]:
                continue
            none = False
            if f[i] + 1.0 > 0.0 or not own:
                aa, bb = squares[t, i, 0], squares[t, i, 1]
                next_steps[i] = safe / aa if eta * aa > safe else eta
                # How much longer the step can make the map, and the norm of the step itself.
                double = 2.0 * next_steps[i]
                grown[i] = double * (np.sqrt(near) * np.sqrt(aa) + np.sqrt(far) * np.sqrt(bb))
                change = near * aa + far * bb - 2.0 * across * float(gram[2 * t, 2 * t + 1])
                least = ROUNDING * np.finfo(P.dtype).eps * (sizes[i] + grown[i])
                numbers = r * (starts[i + 1] - starts[i])
                if not double * double * change > least * least * numbers:
                    return False
        margins[t] = 0.0 - fused
        if not np.isfinite(fused):
            return False
        if none:
            mistake[t], loss[t], degenerate[t] = 1, margin, True
            continue
        if fused + margin > 0.0:
            utilised[t] = charge(wrong, behind, most, beta, theta)
            for i in range(modes):
                steps[t, i] = next_steps[i]
                utilised[t] |= next_steps[i] > 0.0
                bound[i] += grown[i]
                sizes[i] += grown[i]
                clipped[t] |= 0.0 < next_steps[i] < eta
                if not bound[i] < min(cap, limit):
                    return False
        mistake[t] = 1 if fused >= 0.0 else 0
        loss[t] = max(fused + margin, 0.0)
    return True


_kept = threading.local()


def _work(starts: tuple[int, ...], ranks: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Matrix, ...]:
    """Differences, what they map to, their inner products and what is added to a map, of all modalities, flat.

    Fresh pages cost as much as a small product, so every thread keeps the arrays of its last shape.
    """
    key = (starts, ranks, dtype)
    if getattr(_kept, "key", None) != key:
        n, sizes = 2 * LENGTH, np.diff(starts) * np.array(ranks)
        counts = (n * starts[-1], n * sum(ranks), n * n * len(ranks), int(sizes.max()))
        _kept.key, _kept.arrays = key, tuple(np.empty(count, dtype) for count in counts)
    arrays: tuple[Matrix, ...] = _kept.arrays
    return arrays
