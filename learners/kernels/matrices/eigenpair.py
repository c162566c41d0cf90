"""psd(A - c z z') for a positive semi-definite A: whether the change leaves the cone, and the projection if it does.

At most one eigenvalue of A - c z z' is negative, -mu, and its eigenvector is (A + mu)^{-1} z to a factor. It lies in
the span of z, A z, A A z, ... So Lanczos on A from z finds it, and with A's tridiagonal form T in that span mu is the
root of

    1 / (e1' (T + mu)^{-1} e1) = c |z|^2

whose left side is the last pivot of T + mu eliminated from below: concave and increasing, so that Newton's method
climbs to the root from any point below it. A pivot takes one division a row; the slope is |s|^2 / s1^2 for the
eigenvector s of T, and the product of the ratios gives its last entry, hence the residual of the pair in A. At the
floor mu = 16 eps |A| the same pivots certify that there is no eigenvalue below -mu: the check for no pair costs as much
as a pair.

Neither result nor steps depend on c |z|^2 / |A|: the projection is written without c,

    psd(A - c z z') = A - (g h' + h g') + kappa v v',   g = A v, gamma = v'g, kappa = mu gamma / (gamma + mu),
    h = g / (2 (gamma + mu)) + v mu / (gamma + mu)

where nothing cancels that is larger than A (c z z' = (g + mu v)(g + mu v)' / (gamma + mu)).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import inner
from kinstream.learners.kernels.matrices.psd_matrix import add, combine, deflate, product
from kinstream.learners.kernels.shared import Matrix
from kinstream.streams.compute.compilation import compiled

Vector = NDArray[np.float64]
#: Lanczos vectors as rows (d, d), and as columns of (d, WIDE) each, of which only the used part is ever touched; then
#: vectors of A's type, the second one longer than d, and three of float64.
Work = tuple[Matrix, Matrix, Matrix, Matrix, Matrix, Matrix, Vector, Vector, Vector]

#: Smallest magnitude of a negative eigenvalue, and residual of a found pair, in roundings of the largest eigenvalue.
LEAST: Final = 16.0
FOUND: Final = 256.0
#: Lanczos vectors side by side in one block of columns: inner products with them are sums of rows.
WIDE: Final = 32
#: Lanczos steps before the first check of the pair; later checks follow at a share of the steps made.
FIRST: Final = 4
SHARE: Final = 8
_TRIES: Final = 60


def work(d: int, dtype: np.dtype[Any]) -> Work:
    """Work space for matrices (d, d) of a type."""
    blocks = -(-d // WIDE)
    w, v, g = (np.empty(d, dtype) for _ in range(3))
    a, b, s = (np.empty(d) for _ in range(3))
    columns = np.zeros((blocks, d, WIDE), dtype)
    return np.empty((d, d), dtype), columns, w, np.empty(blocks * WIDE, dtype), v, g, a, b, s


@compiled
def last_pivot(a: Vector, b: Vector, k: int, mu: float) -> tuple[float, float, float]:
    """Eliminate T + mu from below, T the (k, k) tridiagonal matrix of diagonal a and off-diagonal b.

    Returns
    -------
    tuple of float, float and float
        The last pivot, -1 where T + mu is not positive definite; its derivative; |s_k / s_1| for (T + mu) s = e1.
    """
    pivot, slope, ratio = a[k - 1] + mu, 1.0, 1.0
    for i in range(k - 2, -1, -1):
        if not pivot > 0.0:
            return -1.0, 1.0, 0.0
        r = b[i] / pivot
        pivot = a[i] + mu - b[i] * r
        slope = 1.0 + r * r * slope
        ratio *= r
    return (pivot if pivot > 0.0 else -1.0), slope, ratio


@compiled
def _orthogonalise(Q: Matrix, columns: Matrix, k: int, w: Matrix, h: Matrix) -> float:
    """Make w orthogonal to the first k rows of Q; returns |w|. This is repeated if rounding left more than a
    hundredth."""
    d = len(w)
    length = 0.0
    for _ in range(2):
        for block in range((k + WIDE - 1) // WIDE):
            combine(columns[block], d, w, h[block * WIDE : (block + 1) * WIDE])
        whole = k - k % 4
        for j in range(0, whole, 4):
            t0, t1, t2, t3 = Q[j], Q[j + 1], Q[j + 2], Q[j + 3]
            x0, x1, x2, x3 = h[j], h[j + 1], h[j + 2], h[j + 3]
            for i in range(d):
                w[i] -= (x0 * t0[i] + x1 * t1[i]) + (x2 * t2[i] + x3 * t3[i])
        for j in range(whole, k):
            t, x0 = Q[j], h[j]
            for i in range(d):
                w[i] -= x0 * t[i]
        length = inner(w, w)
        if inner(h[:k], h[:k]) <= 1e-4 * length:
            break
    return float(np.sqrt(length))


@compiled
def negative_pair(A: Matrix, c: float, z: Matrix, space: Work) -> tuple[float, float, int]:
    """The negative eigenpair of A - c z z', if there is one.

    Parameters
    ----------
    A : (d, d) symmetric, positive semi-definite to rounding.
    c, z : above 0, and (d,) not zero.
    space : from `work`; its v and g become the unit eigenvector and A v.

    Returns
    -------
    tuple of float, float and int
        mu, 0 if the matrix is positive semi-definite; v'A v; the number of products with A.
    """
    Q, columns, w, h, v, g, a, b, s = space
    d = len(z)
    eps = 2.220446049250313e-16 if A.itemsize == 8 else 1.1920928955078125e-07
    zz = inner(z, z)
    target, length = c * zz, np.sqrt(zz)
    q = Q[0]
    for i in range(d):
        q[i] = z[i] / length
    mu, size, beta, slope, due, k = 0.0, 0.0, 0.0, 1.0, min(FIRST, d), 0
    while True:
        q, before = Q[k], Q[max(k - 1, 0)]
        column, at = columns[k // WIDE], k % WIDE
        for i in range(d):
            column[i, at] = q[i]
        product(A, q, w)
        a[k] = inner(w, q)
        x0, x1 = w.dtype.type(a[k]), w.dtype.type(beta)
        for i in range(d):
            w[i] -= x0 * q[i] + x1 * before[i]
        k += 1
        beta = _orthogonalise(Q, columns, k, w, h)
        size = max(size, a[k - 1] + beta)
        ended = k == d or not beta > 4.0 * eps * size
        if ended or k >= due:
            floor, near = LEAST * eps * size, FOUND * eps * size
            # All three are below the root: it grows with k.
            x = max(mu, floor, target - a[0])
            settled, none, ratio = False, False, 0.0
            for _ in range(_TRIES):
                pivot, slope, ratio = last_pivot(a, b, k, x)
                if pivot < 0.0:
                    # A itself has an eigenvalue below -x, by rounding.
                    x *= 2.0
                    floor = x
                    continue
                step = (target - pivot) / slope
                if x <= floor and step <= 0.0:
                    rest = beta * ratio
                    none = ended or target * (1.0 + rest * rest / (pivot * x)) <= pivot
                    break
                settled = step <= 2e-15 * x
                if settled:
                    break
                x += step
                if not ended and beta * ratio > 4.0 * near * np.sqrt(slope):
                    break
            mu = x if x > floor else 0.0
            if none or not np.isfinite(x):
                return (0.0 if none else x), 0.0, k
            if ended or (settled and beta * ratio <= near * np.sqrt(slope)):
                break
            due = k + max(1, k // SHARE)
        b[k - 1] = beta
        q = Q[k]
        for i in range(d):
            q[i] = w[i] / beta
    return mu, _unfold(Q, k, mu, slope, h, v, g, a, b, s), k


@compiled
def _unfold(
    Q: Matrix,
    k: int,
    mu: float,
    slope: float,
    h: Matrix,
    v: Matrix,
    g: Matrix,
    a: Vector,
    b: Vector,
    s: Vector,
) -> float:
    """v = Q's and g = Q'T s for the unit eigenvector s of T - target e1 e1'; returns s'T s."""
    s[k - 1] = a[k - 1] + mu
    for i in range(k - 2, -1, -1):
        s[i] = a[i] + mu - b[i] * b[i] / s[i + 1]
    s[0] = 1.0 / np.sqrt(slope)
    for i in range(1, k):
        s[i] = -s[i - 1] * b[i - 1] / s[i]
    for i in range(k):
        h[i] = s[i]
    combine(Q, k, h, v)
    gamma = 0.0
    for i in range(k):
        y = a[i] * s[i]
        if i > 0:
            y += b[i - 1] * s[i - 1]
        if i < k - 1:
            y += b[i] * s[i + 1]
        gamma += y * s[i]
        h[i] = y
    combine(Q, k, h, g)
    return gamma


@compiled
def subtract(A: Matrix, c: float, z: Matrix, limit: float, space: Work) -> tuple[bool, bool]:
    """A = psd(A - c z z'), unless an entry would leave the finite numbers or every entry would stay as it is.

    Returns
    -------
    tuple of bool and bool
        Whether the result is finite, and whether A changed.
    """
    _, _, w, h, v, g, _, _, _ = space
    d = len(z)
    mu, gamma, _ = negative_pair(A, c, z, space)
    if mu == 0.0:
        return add(A, -c, z, limit, w)
    whole = gamma + mu
    if not (np.isfinite(whole) and whole > 0.0):
        return False, False
    half, share = 0.5 / whole, mu / whole
    root = np.sqrt(max(share * gamma, 0.0))
    for i in range(d):
        h[i] = half * float(g[i]) + share * float(v[i])
        v[i] = root * float(v[i])
    return deflate(A, g, h, v, limit)
