"""The exact blocked update of LEGO and ITML-Online: three matrix products for a block instead of three passes a pair.

With Z (m, d) the differences of a block, V = Z G_0' and K = V V' = Z A_0 Z', every scalar of the block comes from K:
a step on pair t adds beta g g' to A, so it adds beta k k' to Z A Z', where k = Z g is that matrix's row t. And because

    G_t z_t = V' c_t,    A_t z_t = G_0' V' y_t

with vectors c_t, y_t of which each is a sum of the earlier ones, the map after the block is

    G_0 + V' S V G_0,    S = sum_t alpha_t c_t y_t'.

Only pairs that change the map are part of that sum. Nothing is approximated; results equal the sequential loop's to
rounding, and a block that would lose too many digits uses the sequential loop.

The products are those of BLAS, called from compiled code: a call from Python would cost more than the product itself
where d is small.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Imported for its effect: `one_blas_thread` then finds the library of compiled products.
import kinstream.learners.kernels.blas  # noqa: F401
from kinstream.learners.kernels.events import WIDTH, Judged, map_many, spread
from kinstream.learners.kernels.events import differences as numbered
from kinstream.learners.kernels.one_modality import lego
from kinstream.learners.kernels.one_modality.lego import difference, judge, square, step_size, verdict
from kinstream.learners.kernels.shared import TINY, Flags, Matrix, Report, largest
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.compute.compilation import compiled

#: Pairs of one blocked step below a dimension: few if d is small and the scalar work dominates.
LENGTHS: Final = ((80, 16), (250, 32), (2**62, 64))
#: Below this many pairs the fixed cost of a blocked step is not worth it.
SMALLEST: Final = 8
#: From this dimension on "auto" uses blocks.
CROSSOVER: Final = {np.dtype(np.float32): 28, np.dtype(np.float64): 28}
#: Accepted loss of digits (see `recursion`): half of those of float32 at worst, five of float64.
WORST: Final = {np.dtype(np.float32): 3e2, np.dtype(np.float64): 1e5}


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
) -> tuple[float, int, float]:
    """As `kinstream.learners.kernels.one_modality.lego.pairs`, in steps counted from the block's first pair."""
    length = next(pairs for d, pairs in LENGTHS if len(T) < d)
    given = (
        T,
        X,
        index,
        usable,
        signs,
        targets,
        thresholds,
        group,
        rule,
        squared,
        eta,
        kappa,
        limit,
        bound,
        report,
        judged,
    )
    with one_blas_thread():
        return blocks(*given, WORST[T.dtype], _work(len(T), length, T.dtype))


@compiled
def blocks(
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
    worst: float,
    work: tuple[Matrix, ...],
) -> tuple[float, int, float]:
    """`pairs`, with the accepted loss of digits (see `recursion`) and the arrays to work in."""
    length = len(work[0])
    steps, total = 0, 0.0
    if bound < 0.0:
        bound = largest(T)
    for start in range(0, len(index), length):
        stop = min(start + length, len(index))
        most, count, etas = -1.0, 0, 0.0
        if stop - start >= SMALLEST:
            most, count, etas = _step(
                T, X, index, usable, signs, targets, thresholds, group, rule, squared, eta, kappa, limit - bound,
                report, judged, start, stop, worst, work,
            )  # fmt: skip
            bound += max(most, 0.0)
        if most < 0.0:
            bound, count, etas = lego.pairs(
                T, X, index, usable, signs, targets, thresholds, group, rule, squared, eta, kappa, limit,
                bound, report, judged, start, stop,
            )  # fmt: skip
        steps += count
        total += etas
    return bound, steps, total


@compiled
def _step(
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
    room: float,
    report: Report,
    judged: Judged,
    start: int,
    stop: int,
    worst: float,
    work: tuple[Matrix, ...],
) -> tuple[float, int, float]:
    """One blocked step over some pairs of a block.

    Parameters
    ----------
    room : the largest change of an entry of T.

    Returns
    -------
    tuple of float, int and float
        A bound of the change of entries, or -1 with T untouched if the pairs must be learned sequentially; the number
        of pairs that changed the map, and the sum of their step sizes.
    """
    m, degenerate = stop - start, report[4]
    Z, V, U, SU, K = work[0][:m], work[1][:m], work[2], work[3], work[4][: m * m].reshape(m, m)
    change, C, Y = work[5], work[6], work[7]
    for t in range(m):
        n, z = start + t, Z[t]
        degenerate[n] = False
        if usable[n]:
            degenerate[n] = difference(X, index[n], z)
        else:
            for i in range(len(z)):
                z[i] = 0
    np.dot(Z, T, V)
    np.dot(V, V.T, K)
    rows = np.empty(m, np.int64)
    count, total, width = recursion(
        K,
        usable,
        signs,
        targets,
        thresholds,
        group,
        rule,
        squared,
        eta,
        kappa,
        worst,
        C,
        Y,
        rows,
        report,
        judged,
        start,
    )
    if count > 0:
        for a in range(count):
            if rows[a] != a:
                v, other = V[a], V[rows[a]]
                for i in range(len(v)):
                    v[i] = other[i]
    if count >= 0 and len(judged[0]) > 0:
        _beyond(T, X, index, usable, group, V, C, Y, rows, count, judged, start, stop)
    if count <= 0:
        return float(count), 0, 0.0
    V, U, SU = V[:count], U[:count], SU[:count]
    S = np.dot(_packed(C, rows, count, T).T, _packed(Y, rows, count, T))
    np.dot(V, T.T, U)
    np.dot(S, U, SU)
    np.dot(SU.T, V, change)
    size = 0.0
    for a in range(count):
        size += square(SU[a])
    most = np.sqrt(size * width)
    if not most < room:
        return -1.0, 0, 0.0
    if not _add(T, change):
        for n in range(start, stop):
            report[1][n], report[2][n] = False, False
        return 0.0, 0, 0.0
    return most, count, total


@compiled
def _beyond(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    group: int,
    V: Matrix,
    C: Matrix,
    Y: Matrix,
    rows: NDArray[np.int64],
    count: int,
    judged: Judged,
    start: int,
    stop: int,
) -> None:
    """Measure the pairs after this step whose event began in it, under the map at the event's start.

    Of a step's pairs that change the map, those before the event have changed it: with v = G_0 z of another difference,
    G_t z = v + V' S V v, S the sum of alpha_a c_a y_a' over these.

    Parameters
    ----------
    V, C, Y, rows, count : see `recursion`; V holds the rows that change the map, one after the other.
    """
    ends, before, _ = judged
    began = stop - 1
    while began > start and ends[began] == 0:
        began -= 1
    last = int(ends[began])
    first = max(stop, began + group)
    if last <= first:
        return
    earlier = 0
    while earlier < count and rows[earlier] < began - start:
        earlier += 1
    places, sources = np.empty((last - first, 1), np.int64), np.empty(last - first, np.int64)
    found = numbered(index, usable, before[:0], first, last, places, sources)
    squared, q = np.empty(found), np.empty(earlier)
    width, v = min(WIDTH, found), V[:earlier]
    Z, W = np.empty((width, len(T)), T.dtype), np.empty((width, len(T)), T.dtype)
    for batch in range(0, found, WIDTH):
        number = min(WIDTH, found - batch)
        for n in range(number):
            difference(X, index[sources[batch + n]], Z[n])
        map_many(T, Z, 0, number, W)
        w = W[:number]
        if earlier > 0:
            shares = np.dot(w, v.T)
            for n in range(number):
                for a in range(earlier):
                    q[a] = 0.0
                    for b in range(a + 1):
                        q[a] += Y[a, rows[b]] * shares[n, b]
                for b in range(earlier):
                    share = 0.0
                    for a in range(b, earlier):
                        share += C[a, rows[b]] * q[a]
                    shares[n, b] = share
            w += np.dot(shares, v)
        for n in range(number):
            squared[batch + n] = square(w[n])
    spread(places, squared, first, before)


@compiled
def _packed(rows_of: Matrix, rows: NDArray[np.int64], count: int, T: Matrix) -> Matrix:
    """The first rows of a lower triangular matrix, at the given columns, in T's type."""
    found = np.zeros((count, count), T.dtype)
    for a in range(count):
        for b in range(a + 1):
            found[a, b] = rows_of[a, rows[b]]
    return found


@compiled
def _add(T: Matrix, change: Matrix) -> bool:
    """T += change; returns whether any entry is another one now."""
    changed = False
    for j in range(len(T)):
        t, c = T[j], change[j]
        if changed:
            for i in range(len(T)):
                t[i] += c[i]
        else:
            for i in range(len(T)):
                after = t[i] + c[i]
                changed |= after != t[i]
                t[i] = after
    return changed


@compiled
def recursion(
    K: Matrix,
    usable: Flags,
    signs: NDArray[np.int8],
    targets: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    group: int,
    rule: int,
    squared: bool,
    eta: float,
    kappa: float,
    worst: float,
    C: Matrix,
    Y: Matrix,
    rows: NDArray[np.int64],
    report: Report,
    judged: Judged,
    start: int,
) -> tuple[int, float, float]:
    """The scalars of a whole block, from its Gram matrix alone.

    Row a of Y, for the a-th pair t that changes the map, holds two disjoint parts: y_t up to column t, and after it the
    row k of Z A_t Z', whose entries are no longer needed once their pair is reached.

    Parameters
    ----------
    K : (m, m) V V' before the block, of the model's type.
    worst : largest loss of digits to accept, as the ratio of the terms of a squared distance to the distance.
    C, Y : float64, at least (m, m), filled as far as column t with alpha_t c_t and y_t.
    rows : (m,) filled with the pairs that change the map.
    report : outcome arrays of the whole block; `degenerate` is read, the others are written.
    start : the number of the first pair here.

    Returns
    -------
    tuple of int, float and float
        The number of pairs that change the map, -1 if the block needs the sequential loop (too many digits lost, or a
        number that is not finite); the sum of their step sizes; and the sum of all squared distances before.
    """
    mistake, utilised, clipped, rejected, _, loss, margins = report
    ends, before, _ = judged
    m = len(K)
    # Squared distances under the map so far, the sums of their terms, and lengths before the block.
    now, parts, lengths = np.empty(m), np.empty(m), np.empty(m)
    beta, p, q = np.empty(m), np.empty(m), np.empty(m)
    width = 0.0
    for t in range(m):
        now[t] = max(float(K[t, t]), 0.0)
        parts[t], lengths[t] = now[t], np.sqrt(now[t])
        width += now[t]
    count, total = 0, 0.0
    for t in range(m):
        n = start + t
        if len(ends) > 0 and ends[n] > 0:
            for s in range(t + group, min(ends[n] - start, m)):
                before[start + s] = now[s] if usable[start + s] else np.nan
        mistake[n], loss[n], margins[n] = -1, 0.0, np.nan
        utilised[n], clipped[n], rejected[n] = False, False, not usable[n]
        if not usable[n]:
            continue
        found, gap = now[t], now[t] - targets[n]
        if not (parts[t] <= worst * found and np.isfinite(gap * gap)):
            return -1, 0.0, 0.0
        if group == 1:
            mistake[n] = verdict(signs[n], found, thresholds[n])
        elif t % 2 == 0 and usable[n + 1]:
            if not parts[t + 1] <= worst * now[t + 1]:
                return -1, 0.0, 0.0
            mistake[n], margins[n] = 1 if found >= now[t + 1] else 0, now[t + 1] - found
        loss[n], active = judge(signs[n], squared, found, targets[n])
        if not active or found < TINY:
            continue
        alpha, eta_t, cut = step_size(rule, eta, kappa, found, targets[n])
        if not np.isfinite(alpha):
            return -1, 0.0, 0.0
        if alpha == 0.0:
            continue
        c, y = C[count], Y[count]
        for s in range(m):
            c[s], y[s] = 0.0, (0.0 if s < t else float(K[t, s]))
        c[t], y[t] = 1.0, 1.0
        for a in range(count):
            p[a], q[a] = Y[a, t], beta[a] * Y[a, t]
            Y[a, t] = 0.0
        # Four at a time: each of these loops is short.
        whole = count - count % 4
        for a in range(0, whole, 4):
            c0, c1, c2, c3 = C[a], C[a + 1], C[a + 2], C[a + 3]
            y0, y1, y2, y3 = Y[a], Y[a + 1], Y[a + 2], Y[a + 3]
            p0, p1, p2, p3 = p[a], p[a + 1], p[a + 2], p[a + 3]
            q0, q1, q2, q3 = q[a], q[a + 1], q[a + 2], q[a + 3]
            for s in range(rows[a + 3] + 1):
                c[s] += (p0 * c0[s] + p1 * c1[s]) + (p2 * c2[s] + p3 * c3[s])
            for s in range(m):
                y[s] += (q0 * y0[s] + q1 * y1[s]) + (q2 * y2[s] + q3 * y3[s])
        for a in range(whole, count):
            c0, y0, p0, q0 = C[a], Y[a], p[a], q[a]
            for s in range(m):
                c[s] += p0 * c0[s]
                y[s] += q0 * y0[s]
        one, two = 0.0, 0.0
        for s in range(t + 1):
            one += abs(c[s]) * lengths[s]
            two += abs(y[s]) * lengths[s]
            c[s] *= alpha
        if not (one * one <= worst * found and two * lengths[t] <= worst * found):
            return -1, 0.0, 0.0
        # (rho - 1) / found, because sqrt(rho) = 1 + alpha found.
        beta[count], rows[count] = alpha * (2.0 + alpha * found), t
        b = beta[count]
        for s in range(t + 1, m):
            part = b * y[s] * y[s]
            now[s] += part
            parts[s] += abs(part)
        count += 1
        total += eta_t
        utilised[n], clipped[n] = True, cut
    return count, total, width


_kept = threading.local()


def _work(d: int, m: int, dtype: np.dtype[Any]) -> tuple[Matrix, ...]:
    """Z, V, V G_0, S V G_0 (m, d), V V' (m * m,), what is added to T (d, d), and float64 C and Y (m, m).

    New memory pages cost as much as a small product, so every thread keeps the arrays of its last shape.
    """
    key = (d, m, dtype)
    if getattr(_kept, "key", None) != key:
        made = [np.empty((m, d), dtype) for _ in range(4)] + [np.empty(m * m, dtype), np.empty((d, d), dtype)]
        _kept.key, _kept.arrays = key, (*made, np.empty((m, m + 8)), np.empty((m, m + 8)))
    arrays: tuple[Matrix, ...] = _kept.arrays
    return arrays
