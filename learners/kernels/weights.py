"""The compiled loop that learns weights of signals from whole lists, one list after the other."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[np.float64]
Numbers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Counters = NDArray[Any]

#: The last place that has a gain.
CUT: Final = 10
#: Places whose pairs say whether a ranking has ordered a list.
PAIRED: Final = 30
#: Widths that are tried are sqrt(2)^i of those that are known, i from - STEPS to STEPS.
STEPS: Final = 6
#: Rows of the sums by which fixed rankings are compared with the learned one: of weights, of their squares, of the
#: weighted differences, and of their squares.
SUMS: Final = 4


@compiled
def times(counters: Counters, added: Numbers, key: np.uint64) -> int:
    """Count a key in two rows of counters; how often it has come, never too low until counters are halved.

    Parameters
    ----------
    counters : (2, c), c a power of two; changed in place.
    added : (1,) keys since the last time that all were halved, which is after c; changed in place.
    """
    size = np.uint64(counters.shape[1])
    one, two = np.int64(key % size), np.int64((key >> np.uint64(32)) % size)
    before, other = int(counters[0, one]), int(counters[1, two])
    counters[0, one], counters[1, two] = min(before + 1, 65_535), min(other + 1, 65_535)
    added[0] += 1
    if added[0] >= counters.shape[1]:
        added[0] //= 2
        for i in range(counters.shape[1]):
            counters[0, i] //= 2
            counters[1, i] //= 2
    return 1 + min(before, other)


@compiled
def _follow(
    s: Matrix,
    Z: Matrix,
    scales: Matrix,
    recent: Matrix,
    seen: Numbers,
    slowest: float,
    jump: float,
    most: float,
) -> None:
    """Fill Z with a list's signals (n, K) less their means, in units of scales that follow their deviations."""
    n, K = s.shape
    sorted_ = np.empty(len(recent))
    for k in range(K):
        known, mean = 0, 0.0
        for i in range(n):
            if np.isfinite(s[i, k]):
                known += 1
                mean += s[i, k]
        if known:
            mean /= known
        square = 0.0
        for i in range(n):
            Z[i, k] = s[i, k] - mean if np.isfinite(s[i, k]) else 0.0
            square += Z[i, k] * Z[i, k]
        deviation = np.sqrt(square / known) if known else 0.0
        # One value, or rounding of equal ones, says nothing of a scale.
        if known < 2 or not deviation > 1e-9 * abs(mean) or not np.isfinite(deviation):
            for i in range(n):
                Z[i, k] = 0.0
            continue
        seen[k] += 1
        scales[k] += (deviation - scales[k]) * max(1.0 / seen[k], slowest)
        recent[(seen[k] - 1) % len(recent), k] = deviation
        if seen[k] >= len(recent):
            above, below, half = 0, 0, len(recent) // 2
            for j in range(len(recent)):
                above += recent[j, k] > jump * scales[k]
                below += jump * recent[j, k] < scales[k]
            # What holds of more than half of an odd number holds of the median.
            if above > half or below > half:
                for j in range(len(recent)):
                    sorted_[j] = recent[j, k]
                sorted_.sort()
                scales[k] = sorted_[half]
        for i in range(n):
            Z[i, k] = min(max(Z[i, k] / scales[k], -most), most)


@compiled
def _gain(v: Matrix, clicked: NDArray[np.bool_], unbias: Matrix) -> float:
    """What a ranking gives to the clicked items of a list, not divided by their weights; ties are lost."""
    gain = 0.0
    for c in range(len(v)):
        if not clicked[c]:
            continue
        rank = 0
        for i in range(len(v)):
            if not v[i] < v[c]:
                rank += 1
        if rank <= CUT:
            gain += unbias[c] / np.log2(1.0 + rank)
    return gain


@compiled
def _agreement(v: Matrix) -> float:
    """Share of the pairs of a list's first places that a ranking does not turn around."""
    n, same = min(len(v), PAIRED), 0
    for i in range(n):
        for j in range(i + 1, n):
            same += v[i] >= v[j]
    return 2.0 * same / (n * (n - 1.0)) if n > 1 else 1.0


@compiled
def _ordered(first: Matrix, Z: Matrix, factors: Matrix, least: float) -> bool:
    """Whether a ranking, Z times factors, agrees with a list for some widths of its signals, tried one by one."""
    n, K = Z.shape
    v, w, best, seen = first.copy(), first.copy(), _agreement(first), False
    for k in range(K):
        if best >= least:
            return True
        if factors[k] == 0.0:
            continue
        # Only ratios count.
        if not seen:
            seen = True
            continue
        found = 1.0
        for j in range(2, 2 * STEPS + 2):
            factor = np.sqrt(2.0) ** (j // 2 if j % 2 else -(j // 2))
            for i in range(n):
                w[i] = v[i] + (factor - 1.0) * factors[k] * Z[i, k]
            same = _agreement(w)
            if same > best:
                best, found = same, factor
                if best >= least:
                    return True
        for i in range(n):
            v[i] += (found - 1.0) * factors[k] * Z[i, k]
    return best >= least


@compiled
def _compare(
    s: Matrix,
    Z: Matrix,
    W: Matrix,
    shares: Matrix,
    clicked: NDArray[np.bool_],
    unbias: Matrix,
    worth: float,
    keep: float,
    least: float,
    sums: Matrix,
) -> None:
    """Add to the sums (4, 1 + 2 K) what the learned ranking gains more than the first one and each signal."""
    n, K = Z.shape
    v, first, factors, total = np.zeros(n), np.zeros(n), np.zeros(K), 0.0
    for i in range(n):
        for k in range(K):
            v[i] += W[k] * Z[i, k]
        if clicked[i]:
            total += unbias[i]
    for k in range(K):
        if shares[k] == 0.0:
            continue
        low, high = np.inf, -np.inf
        for i in range(n):
            if np.isfinite(s[i, k]):
                low, high = min(low, Z[i, k]), max(high, Z[i, k])
        if high > low:
            factors[k] = shares[k] / (high - low)
            for i in range(n):
                first[i] += factors[k] * Z[i, k]
    learned = _gain(v, clicked, unbias) / total
    gains = np.zeros(1 + 2 * K)
    # A list that the first ranking has ordered shows its gain: it counted in widths of all candidates.
    if _ordered(first, Z, factors, max(least, _agreement(v))):
        for i in range(n):
            first[i] = -float(i)
    gains[0] = _gain(first, clicked, unbias)
    for c in range(n):
        if not clicked[c]:
            continue
        for k in range(K):
            up, down = 0, 0
            for i in range(n):
                up += Z[i, k] >= Z[c, k]
                down += Z[i, k] <= Z[c, k]
            if up <= CUT:
                gains[1 + 2 * k] += unbias[c] / np.log2(1.0 + up)
            if down <= CUT:
                gains[2 + 2 * k] += unbias[c] / np.log2(1.0 + down)
    for j in range(1 + 2 * K):
        more = learned - gains[j] / total
        sums[0, j] = keep * sums[0, j] + worth
        sums[1, j] = keep * keep * sums[1, j] + worth * worth
        sums[2, j] = keep * sums[2, j] + worth * more
        sums[3, j] = keep * sums[3, j] + worth * more * more


@compiled
def _substitute(A: Matrix, g: Matrix) -> None:
    """Solve L L' x = g in place, L the lower half of A."""
    K = len(g)
    for i in range(K):
        for m in range(i):
            g[i] -= A[i, m] * g[m]
        g[i] /= A[i, i]
    for i in range(K - 1, -1, -1):
        for m in range(i + 1, K):
            g[i] -= A[m, i] * g[m]
        g[i] /= A[i, i]


@compiled
def _solve(A: Matrix, g: Matrix) -> bool:
    """Solve A x = g in place, A positive definite; whether it was."""
    K = len(g)
    for j in range(K):
        for i in range(j, K):
            total = A[i, j]
            for m in range(j):
                total -= A[i, m] * A[j, m]
            if i == j:
                if not total > 0.0 or not np.isfinite(total):
                    return False
                A[j, j] = np.sqrt(total)
            else:
                A[i, j] = total / A[j, j]
    _substitute(A, g)
    return True


@compiled
def weigh(
    S: Matrix,
    starts: NDArray[np.int32],
    clicked: NDArray[np.bool_],
    acted: Matrix,
    queries: Keys,
    actors: Keys,
    exponent: float,
    rule: Matrix,
    similarity: int,
    adapted: int,
    shares: Matrix,
    W: Matrix,
    F: Matrix,
    scales: Matrix,
    recent: Matrix,
    seen: Numbers,
    sums: Matrix,
    counters: Counters,
    added: Numbers,
    clipped: NDArray[np.bool_],
) -> None:
    """Learn the lists in order.

    Parameters
    ----------
    S : (t, K) signals of all places; what is not finite is missing.
    starts, clicked : (k + 1,) and (t,) as in `kinstream.streams.records.held_out.ShownLists`.
    acted : (t,) what the action on each place weighs.
    queries, actors : (k,) hashes; of those that are 0 no list is a repeat.
    exponent : place r is examined with probability r^-exponent.
    rule : (11,) share of the past that a list keeps in F, the same in the sums, clicked items up to which a list counts
        in full, largest change of a weight, least share of a deviation in its scale, factor of a jump, largest signal,
        places that worth refers to, about how many lists hold a weight where it began, the share of the adapted
        similarity's weight that the one of the similarity may be below 0, and the share of pairs with which the
        first ranking agrees if it has ordered a list.
    similarity, adapted : their columns; below 0 where one is not there.
    shares : (K,) of the first ranking.
    W, F : (K,) weights and (K, K) what lists say of their precision; changed in place, as is all that follows.
    scales, recent, seen : (K,), (15, K) and (K,) see `_follow`.
    sums : (4, 1 + 2 K) see `_compare`.
    counters, added : (2, 2, c) and (2, 1) of queries and of actors, see `times`.
    clipped : (k,) set where the change of a weight was shortened.
    """
    keep, keep_sums, most_clicked, longest, slowest, jump, most, places, prior, beyond, least = rule
    K = len(W)
    A, g, mean = np.empty((K, K)), np.empty(K), np.empty(K)
    for at in range(len(starts) - 1):
        first, n = starts[at], starts[at + 1] - starts[at]
        s, hit = S[first : first + n], clicked[first : first + n]
        Z, seldom, unbias = np.empty((n, K)), np.empty(n), np.empty(n)
        _follow(s, Z, scales, recent, seen, slowest, jump, most)
        repeats = 1.0
        if queries[at] != 0:
            repeats *= float(times(counters[0], added[0], queries[at]))
        if actors[at] != 0:
            repeats *= float(times(counters[1], added[1], actors[at]))
        clicks, share, act = 0, 0.0, 0.0
        for i in range(n):
            seldom[i] = (i + 1.0) ** exponent
            unbias[i] = seldom[i] * acted[first + i]
            if hit[i]:
                clicks += 1
                share += unbias[i]
                act += acted[first + i]
        if clicks == 0:
            continue
        worth = share / clicks / places**exponent / repeats
        _compare(s, Z, W, shares, hit, unbias, worth, keep_sums, least, sums)
        # The chance of a click on each item, if there is one.
        p, top = np.zeros(n), -np.inf
        for i in range(n):
            for k in range(K):
                p[i] += W[k] * Z[i, k]
            p[i] -= np.log(seldom[i])
            top = max(top, p[i])
        total = 0.0
        for i in range(n):
            p[i] = np.exp(p[i] - top)
            total += p[i]
        weight = min(1.0, most_clicked / clicks) / repeats * (act / clicks)
        mean[:], g[:] = 0.0, 0.0
        for i in range(n):
            p[i] /= total
            for k in range(K):
                mean[k] += p[i] * Z[i, k]
                g[k] += (p[i] - (acted[first + i] / act if hit[i] else 0.0)) * Z[i, k]
        for j in range(K):
            for k in range(j + 1):
                inner = 0.0
                for i in range(n):
                    inner += p[i] * Z[i, j] * Z[i, k]
                F[j, k] = F[k, j] = keep * F[j, k] + weight * (inner - mean[j] * mean[k])
                A[j, k] = F[j, k]
            A[j, j] += prior
            g[j] *= weight
        if not _solve(A, g):
            continue
        if similarity >= 0 and adapted >= 0:
            short = W[similarity] - g[similarity] + beyond * (W[adapted] - g[adapted])
            if short < 0.0:
                # The nearest change, in the measure of A, that keeps the bound.
                mean[:] = 0.0
                mean[similarity], mean[adapted] = 1.0, beyond
                _substitute(A, mean)
                short /= mean[similarity] + beyond * mean[adapted]
                for k in range(K):
                    g[k] += short * mean[k]
        for k in range(K):
            if abs(g[k]) > longest:
                g[k] = longest if g[k] > 0.0 else -longest
                clipped[at] = True
            W[k] -= g[k]


@compiled
def mapped(Q: Any, T: Any, P: Any) -> None:
    """P = Q T for Q (b, d) and T (d, r). The bits of a row do not depend on the others."""
    P[:] = 0
    d = len(T)
    whole = d - d % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = T[j], T[j + 1], T[j + 2], T[j + 3]
        for i in range(len(Q)):
            q0, q1, q2, q3 = Q[i, j], Q[i, j + 1], Q[i, j + 2], Q[i, j + 3]
            out = P[i]
            for k in range(len(t0)):
                out[k] += (q0 * t0[k] + q1 * t1[k]) + (q2 * t2[k] + q3 * t3[k])
    for j in range(whole, d):
        row = T[j]
        for i in range(len(Q)):
            one, out = Q[i, j], P[i]
            for k in range(len(row)):
                out[k] += one * row[k]


@compiled
def similarities(
    X: Any,
    item: Any,
    starts: Any,
    query: Any,
    first: int,
    last: int,
    anchors: Any,
    moved: Any,
    lengths: Matrix,
    columns: Numbers,
    out: Matrix,
) -> None:
    """Write into two columns of out (t, K) the products of items with their queries, and with the mapped queries.

    Sums are of 16 parts, so that they are fast; their order is fixed. Several steps are written as one, because the
    compiler checks before each whether arrays overlap.

    Parameters
    ----------
    X : (n, d) vectors.
    item, starts, query : (t,), (k + 1,) and (k,) rows of the items of lists, and of their queries.
    first, last : lists to take.
    anchors, moved : (b,) rows of their queries, rising, and (b, d) what the map makes of these.
    lengths : (b,) by which the second products are divided.
    columns : (2,) of the products.
    """
    d = X.shape[1]
    whole = d - d % 16
    a, b = np.empty(16, X.dtype), np.empty(16, X.dtype)
    for at in range(first, last):
        low, high = 0, len(anchors)
        while low < high:
            middle = (low + high) // 2
            if anchors[middle] < query[at]:
                low = middle + 1
            else:
                high = middle
        q, m = X[query[at]], moved[low]
        for t in range(starts[at], starts[at + 1]):
            x = X[item[t]]
            a[:], b[:] = 0, 0
            j = 0
            while j + 64 <= whole:
                for c in range(16):
                    i, k, n, o = j + c, j + c + 16, j + c + 32, j + c + 48
                    a[c] = (((a[c] + x[i] * q[i]) + x[k] * q[k]) + x[n] * q[n]) + x[o] * q[o]
                    b[c] = (((b[c] + x[i] * m[i]) + x[k] * m[k]) + x[n] * m[n]) + x[o] * m[o]
                j += 64
            while j < whole:
                for c in range(16):
                    a[c] += x[j + c] * q[j + c]
                    b[c] += x[j + c] * m[j + c]
                j += 16
            for i in range(whole, d):
                a[i - whole] += x[i] * q[i]
                b[i - whole] += x[i] * m[i]
            one, two = 0.0, 0.0
            for c in range(16):
                one += float(a[c])
                two += float(b[c])
            out[t, columns[0]], out[t, columns[1]] = one, two / lengths[low]
