"""Shared by the compiled loops of the multi-modal learners.

A vector holds all modalities one after the other; modality i has the entries starts[i] .. starts[i + 1]. Its weight is
beta^behind[i], to a common factor: `behind` counts its mistakes beyond those of the best modality. As whole numbers
the weights neither drift nor underflow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import WIDTH, inner, map_many
from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Flags, Matrix
from kinstream.streams.compute.compilation import compiled, compiled_map

Whole = NDArray[np.int64]
Vector = NDArray[np.float64]


@compiled
def _nothing(squared: float, scale: float) -> bool:
    """Whether a difference of squared length `squared` is rounding, between vectors of squared length up to `scale`."""
    least = max(NO_DIFFERENCE * scale, TINY)
    return np.isfinite(least) and squared <= least


@compiled
def differences(
    x: Matrix, y: Matrix, z: Matrix, a: Matrix, b: Matrix
) -> tuple[float, float, float, float, float]:
    """Fill a = x - y and b = x - z; returns a.a, b.b, |a - b|^2, |a + b|^2 and (a - b).(a + b).

    A difference of nearly equal vectors is rounding, and has no direction. If x - y or x - z is one, a or b is filled
    with zeros; if y - z, or a - b relative to a and b, is one, b becomes a; if a + b is one, b becomes -a.
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
        for i in range(len(a)):
            b[i] = a[i]
        bb, minus, plus, inner = aa, 0.0, 4.0 * aa, 0.0
    elif _nothing(plus, max(xx, yy, zz, aa, bb)):
        for i in range(len(a)):
            b[i] = -a[i]
        bb, minus, plus, inner = aa, 4.0 * aa, 0.0, 0.0
    return aa, bb, minus, plus, inner


@compiled
def _tell_apart(x: Matrix, y: Matrix, z: Matrix, a: Matrix, b: Matrix) -> bool:
    """Fill a = x - y and b = x - z; returns whether single entries show that no difference is rounding.

    If true, `differences` would fill in the same values, but slower.
    """
    for i in range(len(x)):
        a[i] = x[i] - y[i]
        b[i] = x[i] - z[i]
    # Twice the largest possible value of the squared lengths below.
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
    """theta = the weights of modalities with `behind` extra mistakes; they sum to 1."""
    total = 0.0
    for i in range(len(behind)):
        theta[i] = beta ** float(behind[i])
        total += theta[i]
    for i in range(len(behind)):
        theta[i] /= total


@compiled
def charge(wrong: Flags, behind: Whole, most: int, beta: float, theta: Vector) -> bool:
    """Lower the weights of the modalities that were wrong, to at least beta^most; returns whether a weight has
    changed."""
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
    starts, ranks : (m + 1,) the start of each modality in a vector, and (m,) their r.
    sums : becomes, for each triplet, the sum of the two fused distances of its margin.
    """
    D, most = starts[len(ranks)], ranks.max()
    a, b = np.empty(D, X.dtype), np.empty(D, X.dtype)
    Z, W = np.empty((WIDTH, D), X.dtype), np.empty((WIDTH, most), X.dtype)
    squared = np.empty(WIDTH)
    # Triplets that are measured together, and the places of their differences; shared ones are stored once.
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
                    nears[count] = filled
                    for j in range(D):
                        Z[filled, j] = a[j]
                    filled += 1
                fars[count], rows[count] = filled, t
                for j in range(D):
                    Z[filled, j] = b[j]
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
