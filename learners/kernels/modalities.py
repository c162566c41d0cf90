"""What the compiled loops of the multi-modal learners share.

A vector holds all modalities one after the other; modality i has the entries starts[i] .. starts[i + 1]. Its weight is
beta^behind[i], to a common factor: `behind` counts its mistakes beyond those of the best modality. As whole numbers
the weights neither drift nor underflow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learners.kernels.compiled import compiled
from learners.kernels.opml import NO_DIFFERENCE, TINY, Flags, Matrix

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
def vanishes(minus: float, plus: float) -> bool:
    """Whether a a' - b b' is zero, from what `differences` returns: a = b or a = -b."""
    return minus == 0.0 or plus == 0.0


@compiled
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
