"""What the compiled loops of the multi-modal learners share.

A vector holds all modalities one after the other; modality i has the entries starts[i] .. starts[i + 1]. Its weight is
beta^behind[i], to a common factor: `behind` counts its mistakes beyond those of the best modality. As whole numbers
the weights neither drift nor underflow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import WIDTH, inner, map_many
from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Flags, Matrix
from kinstream.streams.compute.compiled import compiled, compiled_map

Whole = NDArray[np.int64]
Vector = NDArray[np.float64]


@compiled
def _nothing(squared: float, scale: float) -> bool:
    """Whether a difference of that squared length is none between vectors of at most that squared length (spec 1.4)."""
    least = max(NO_DIFFERENCE * scale, TINY)
    return np.isfinite(least) and squared <= least


@compiled
def differences(
    x: Matrix, y: Matrix, z: Matrix, a: Matrix, b: Matrix
) -> tuple[float, float, float, float, float]:
    """Fill a = x - y and b = x - z; returns a.a, b.b, |a - b|^2, |a + b|^2 and (a - b).(a + b).

    A difference of next to equal vectors is rounding, and has no direction: where x - y or x - z is such, a or b is
    filled with zeros; where y - z is such, or a - b beside a and b, b becomes a; and where a + b is, b becomes -a.
    """
    aa, bb, minus, plus, inner = 0.0, 0.0, 0.0, 0.0, 0.0
    xx, yy, zz = 0.0, 0.0, 0.0
    for i in range(len(x)):
        a[i] = x[i] - y[i]
        b[i] = x[i] - z[i]
    for i in range(len(x)):
        s, t = float(a[i]), float(b[i])
        u, v, w = float(x[i]), float(y[i]), float(z[i])
        aa += s * s
        bb += t * t
        minus += (s - t) * (s - t)
        plus += (s + t) * (s + t)
        inner += (s - t) * (s + t)
        xx += u * u
        yy += v * v
        zz += w * w
    no_a, no_b = _nothing(aa, max(xx, yy)), _nothing(bb, max(xx, zz))
    if no_a:
        a[:] = 0
        aa, minus, plus, inner = 0.0, bb, bb, -bb
    if no_b:
        b[:] = 0
        bb, minus, plus, inner = 0.0, aa, aa, aa
    if _nothing(minus, max(yy, zz, aa, bb)):
        b[:] = a
        bb, minus, plus, inner = aa, 0.0, 4.0 * aa, 0.0
    elif _nothing(plus, max(xx, yy, zz, aa, bb)):
        b[:] = -a
        bb, minus, plus, inner = aa, 4.0 * aa, 0.0, 0.0
    return aa, bb, minus, plus, inner


@compiled
def _tell_apart(x: Matrix, y: Matrix, z: Matrix, a: Matrix, b: Matrix) -> bool:
    """Fill a = x - y and b = x - z; whether one entry each shows that no difference is next to none.

    Where it is true, `differences` fills in the same, only slower.
    """
    for i in range(len(x)):
        a[i] = x[i] - y[i]
        b[i] = x[i] - z[i]
    # Twice what any of the squared lengths below can be.
    scale = 8.0 * (inner(x, x) + inner(y, y) + inner(z, z))
    least = max(NO_DIFFERENCE * scale, 2.0 * TINY)
    no_a, no_b, no_minus, no_plus = True, True, True, True
    for i in range(len(x)):
        s, t = float(a[i]), float(b[i])
        no_a &= not s * s > least
        no_b &= not t * t > least
        no_minus &= not (s - t) * (s - t) > least
        no_plus &= not (s + t) * (s + t) > least
        if not (no_a or no_b or no_minus or no_plus):
            return bool(np.isfinite(least))
    return False


@compiled
def vanishes(minus: float, plus: float) -> bool:
    """Whether a a' - b b' is zero, from what `differences` returns: a = b or a = -b."""
    return minus == 0.0 or plus == 0.0


@compiled_map
def weigh(behind: Whole, beta: float, theta: Vector) -> None:
    """theta = the weights of modalities that are so many mistakes behind; they sum to 1."""
    total = 0.0
    for i in range(len(behind)):
        theta[i] = beta ** float(behind[i])
        total += theta[i]
    for i in range(len(behind)):
        theta[i] /= total


@compiled
def charge(wrong: Flags, behind: Whole, most: int, beta: float, theta: Vector) -> bool:
    """Lower the weights of the modalities that were wrong, to beta^most at least; whether a weight has changed."""
    least = most
    for i in range(len(behind)):
        least = min(least, behind[i] + (1 if wrong[i] else 0))
    changed = False
    for i in range(len(behind)):
        now = min(behind[i] + (1 if wrong[i] else 0) - least, most)
        changed |= now != behind[i]
        behind[i] = now
    if changed:
        weigh(behind, beta, theta)
    return changed


@compiled
def map_two(T: Matrix, a: Matrix, b: Matrix, p: Matrix, q: Matrix) -> None:
    """p = W a and q = W b in one pass over T (d, r), the transpose of W."""
    d, r = T.shape
    p[:] = 0
    q[:] = 0
    whole = d - d % 4
    for j in range(0, whole, 4):
        t0, t1, t2, t3 = T[j], T[j + 1], T[j + 2], T[j + 3]
        a0, a1, a2, a3 = a[j], a[j + 1], a[j + 2], a[j + 3]
        b0, b1, b2, b3 = b[j], b[j + 1], b[j + 2], b[j + 3]
        for i in range(r):
            p[i] += (a0 * t0[i] + a1 * t1[i]) + (a2 * t2[i] + a3 * t3[i])
            q[i] += (b0 * t0[i] + b1 * t1[i]) + (b2 * t2[i] + b3 * t3[i])
    for j in range(whole, d):
        t, x, y = T[j], a[j], b[j]
        for i in range(r):
            p[i] += x * t[i]
            q[i] += y * t[i]


@compiled
def judge(
    T: Matrix,
    starts: Whole,
    ranks: Whole,
    quadratic: bool,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    theta: Vector,
    first: int,
    last: int,
    before: Vector,
    sums: Vector,
) -> None:
    """Fill in before[first:last] with the margins of triplets under the fused distance.

    Parameters
    ----------
    T : the transposed maps (d, r), or, if `quadratic`, the matrices of the squared distances, one after the other.
    starts, ranks : (m + 1,) where each modality begins in a vector, and (m,) their r.
    sums : becomes, of each triplet, the sum of the two fused distances behind its margin.
    """
    D, most = starts[len(ranks)], ranks.max()
    a, b = np.empty(D, X.dtype), np.empty(D, X.dtype)
    Z, W = np.empty((WIDTH, D), X.dtype), np.empty((WIDTH, most), X.dtype)
    squared = np.empty(WIDTH)
    # Triplets that are measured together, and where their differences lie; one of shared vectors lies there once.
    rows, nears, fars = np.empty(WIDTH, np.int64), np.empty(WIDTH, np.int64), np.empty(WIDTH, np.int64)
    t = first
    while t < last:
        count, filled = 0, 0
        while t < last and filled + 2 <= WIDTH:
            before[t], sums[t] = 0.0 if usable[t] else np.nan, 0.0
            if usable[t]:
                x, y, z = X[index[t, 0]], X[index[t, 1]], X[index[t, 2]]
                for i in range(len(ranks)):
                    lo, hi = starts[i], starts[i + 1]
                    if not _tell_apart(x[lo:hi], y[lo:hi], z[lo:hi], a[lo:hi], b[lo:hi]):
                        differences(x[lo:hi], y[lo:hi], z[lo:hi], a[lo:hi], b[lo:hi])
                s = rows[count - 1] if count > 0 else t
                if count > 0 and index[s, 0] == index[t, 0] and index[s, 1] == index[t, 1]:
                    nears[count] = nears[count - 1]
                else:
                    Z[filled], nears[count] = a, filled
                    filled += 1
                Z[filled], fars[count], rows[count] = b, filled, t
                filled += 1
                count += 1
            t += 1
        at = 0
        for i in range(len(ranks)):
            lo, hi, r = starts[i], starts[i + 1], ranks[i]
            map_many(T[at : at + (hi - lo) * r].reshape(hi - lo, r), Z, lo, filled, W)
            at += (hi - lo) * r
            for n in range(filled):
                w = W[n, :r]
                squared[n] = inner(Z[n, lo:hi], w) if quadratic else inner(w, w)
            for n in range(count):
                before[rows[n]] += theta[i] * (squared[fars[n]] - squared[nears[n]])
                sums[rows[n]] += theta[i] * (squared[fars[n]] + squared[nears[n]])
