"""The eigendecomposition of a symmetric matrix after a change by sigma y y'.

With unit eigenvectors as rows of E and eigenvalues l the changed matrix is diag(l) + sigma w w' in their terms, with
w = E y. Its eigenvalues are the roots of the secular equation 1 + sigma sum w_i^2 / (l_i - x) = 0, one between any two
neighbours of l, and the eigenvectors follow from them. Zero entries of w and equal neighbours, to rounding, are removed
first, the latter by rotations: a repeated eigenvalue, such as zero, costs O(d) per occurrence. The k of d that remain
cost O(k^2) and a product (k, k) by (k, d).

Before the eigenvectors are made, w is replaced by the weights for which the computed roots are exact (Gu and Eisenstat
1994): so they are orthogonal to rounding, for any distance between roots.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import inner
from kinstream.learners.kernels.matrices.psd_matrix import combine
from kinstream.learners.kernels.shared import Matrix
from kinstream.streams.compute.compilation import compiled

Vector = NDArray[np.float64]
Index = NDArray[np.int64]
#: Three matrices (d, d) of E's type: W, of which row j < k becomes the new eigenvector j in terms of the k old ones,
#: those old ones, and room for the product of both; `rows` (d,), where in E the k are; work space.
Space = tuple[Matrix, Matrix, Matrix, Index, Index, Index, Vector, Vector, Vector, Vector, Vector, Index]

#: Changed eigenvectors up to which the product is done without BLAS.
SMALL: Final = 32
_EPS: Final = 2.220446049250313e-16
_TRIES: Final = 80


def work(d: int, dtype: np.dtype[Any]) -> Space:
    """Work space for d eigenvalues."""
    W, R, S = (np.empty((d, d), dtype) for _ in range(3))
    rows, ones, others, at = (np.empty(d, np.int64) for _ in range(4))
    pole, weight, shift, cosine, sine = (np.empty(d) for _ in range(5))
    return W, R, S, rows, ones, others, pole, weight, shift, cosine, sine, at


@compiled
def _side(
    pole: Vector, weight: Vector, first: int, last: int, origin: float, shift: float
) -> tuple[float, float]:
    """Sum of weight^2 / (pole - x) from first up to last, and its derivative, at x = origin + shift."""
    a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
    b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0
    whole = first + (last - first) // 4 * 4
    for i in range(first, whole, 4):
        t0 = weight[i] / ((pole[i] - origin) - shift)
        t1 = weight[i + 1] / ((pole[i + 1] - origin) - shift)
        t2 = weight[i + 2] / ((pole[i + 2] - origin) - shift)
        t3 = weight[i + 3] / ((pole[i + 3] - origin) - shift)
        a0 += weight[i] * t0
        a1 += weight[i + 1] * t1
        a2 += weight[i + 2] * t2
        a3 += weight[i + 3] * t3
        b0 += t0 * t0
        b1 += t1 * t1
        b2 += t2 * t2
        b3 += t3 * t3
    for i in range(whole, last):
        t0 = weight[i] / ((pole[i] - origin) - shift)
        a0 += weight[i] * t0
        b0 += t0 * t0
    return (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3)


@compiled
def root(pole: Vector, weight: Vector, k: int, j: int, rho: float) -> tuple[int, float]:
    """Root j of 1 / rho + sum weight^2 / (pole - x) = 0, as the pole next to it and the distance from there.

    Rational interpolation through the poles on both sides of the root (Li 1994), inside a bracket.

    Parameters
    ----------
    pole, weight : ascending, no two equal; not zero. The first k count.
    rho : above 0.
    """
    most = 0.0
    for i in range(k):
        most += weight[i] * weight[i]
    most *= rho
    if k == 1:
        return 0, most
    inside = j < k - 1
    split = j + 1 if inside else j
    at, low, high = j, 0.0, pole[j + 1] - pole[j] if inside else most
    shift, first = 0.5 * high, True
    for _ in range(_TRIES):
        origin = pole[at]
        left, left_slope = _side(pole, weight, 0, split, origin, shift)
        right, right_slope = _side(pole, weight, split, k, origin, shift)
        f, slope = 1.0 / rho + left + right, left_slope + right_slope
        if first and inside and f < 0.0:
            # In the right half, which is measured from the pole there.
            at, origin, shift = j + 1, pole[j + 1], -shift
            low, high = shift, 0.0
        elif f < 0.0:
            low = shift
        else:
            high = shift
        first = False
        if abs(f) <= 8.0 * _EPS * (1.0 / rho + abs(left) + abs(right)):
            break
        p, q = (pole[split - 1] - origin) - shift, (pole[split] - origin) - shift
        a, b, c = (p + q) * f - p * q * slope, p * q * f, f - p * left_slope - q * right_slope
        disc = np.sqrt(max(a * a - 4.0 * b * c, 0.0))
        if inside:
            step = (a - disc) / (2.0 * c) if a <= 0.0 else 2.0 * b / (a + disc)
        else:
            step = (a + disc) / (2.0 * c) if a >= 0.0 else 2.0 * b / (a - disc)
        if not f * step < 0.0:
            step = -f / slope
        after = shift + step
        if not low < after < high:
            after = 0.5 * (low + high)
        if after == shift or not low < after < high:
            break
        shift = after
    return at, shift


@compiled
def _deflate(
    values: Vector, w: Vector, use: Index, n: int, sigma: float, eps: float, space: Space
) -> tuple[int, int]:
    """Put `use` into ascending order of sign(sigma) values, and return the remaining ones; see `solve`."""
    _, _, _, rows, ones, others, pole, weight, _, cosine, sine, _ = space
    sign, rho = (1.0 if sigma > 0.0 else -1.0), abs(sigma)
    for i in range(1, n):
        one, j = use[i], i - 1
        while j >= 0 and sign * values[use[j]] > sign * values[one]:
            use[j + 1] = use[j]
            j -= 1
        use[j + 1] = one
    top, ww = 0.0, 0.0
    for i in range(n):
        top = max(top, abs(values[use[i]]))
        ww += w[use[i]] * w[use[i]]
    tol = 8.0 * eps * max(top, rho * ww)
    length, k, turns, last = np.sqrt(ww), 0, 0, -1
    for i in range(n):
        one = use[i]
        if rho * abs(w[one]) * length <= tol:
            continue
        if last >= 0:
            both = np.hypot(w[one], w[last])
            c, s, x, y = w[one] / both, -w[last] / both, values[last], values[one]
            if abs((y - x) * c * s) <= tol:
                w[one], w[last] = both, 0.0
                values[last], values[one] = x * c * c + y * s * s, x * s * s + y * c * c
                ones[turns], others[turns], cosine[turns], sine[turns] = last, one, c, s
                turns += 1
            else:
                rows[k] = last
                k += 1
        last = one
    if last >= 0:
        rows[k] = last
        k += 1
    for i in range(k):
        pole[i], weight[i] = sign * values[rows[i]], w[rows[i]]
    return k, turns


@compiled
def solve(
    values: Vector, w: Vector, use: Index, n: int, sigma: float, eps: float, space: Space
) -> tuple[int, int]:
    """Eigenvalues, and eigenvectors in terms of the old ones, of diag(values) + sigma w w'.

    Parameters
    ----------
    values, w : (d,) finite. `values` become the new eigenvalues; w is lost.
    use : (d,) the first n name the entries that take part; the others are unchanged, as if their w were zero.
    sigma : not zero.
    eps : the relative rounding.
    space : from `work`.

    Returns
    -------
    tuple of int and int
        The number k of eigenvectors that change, and the number of rotations before that.
    """
    _, _, _, rows, _, _, pole, weight, shift, _, _, at = space
    k, turns = _deflate(values, w, use, n, sigma, eps, space)
    sign, rho = (1.0 if sigma > 0.0 else -1.0), abs(sigma)
    for j in range(k):
        at[j], shift[j] = root(pole, weight, k, j, rho)
        values[rows[j]] = sign * (pole[at[j]] + shift[j])
    return k, turns


@compiled
def vectors(k: int, space: Space) -> None:
    """Fill W (k, k) in, after `solve`."""
    W, _, _, _, _, _, pole, weight, shift, _, _, at = space
    exact = np.ones(k)
    for j in range(k):
        origin, tau = pole[at[j]], shift[j]
        for i in range(j):
            exact[i] *= ((pole[i] - origin) - tau) / (pole[i] - pole[j])
        exact[j] *= tau - (pole[j] - origin)
        for i in range(j + 1, k):
            exact[i] *= ((pole[i] - origin) - tau) / (pole[i] - pole[j])
    for i in range(k):
        weight[i] = np.copysign(np.sqrt(abs(exact[i])), weight[i])
    for j in range(k):
        origin, tau, row = pole[at[j]], shift[j], W[j]
        for i in range(k):
            exact[i] = weight[i] / ((pole[i] - origin) - tau)
        scale = 1.0 / np.sqrt(inner(exact, exact))
        for i in range(k):
            row[i] = scale * exact[i]


@compiled
def turn(E: Matrix, k: int, turns: int, space: Space) -> None:
    """Rotate the rows of E as decided by `solve`, and copy those that change further."""
    _, R, _, rows, ones, others, _, _, _, cosine, sine, _ = space
    d = E.shape[1]
    for r in range(turns):
        x, y = E[ones[r]], E[others[r]]
        c, s = E.dtype.type(cosine[r]), E.dtype.type(sine[r])
        for i in range(d):
            one, other = x[i], y[i]
            x[i] = c * one + s * other
            y[i] = c * other - s * one
    for j in range(k):
        source, target = E[rows[j]], R[j]
        for i in range(d):
            target[i] = source[i]


@compiled
def put(E: Matrix, k: int, space: Space) -> None:
    """The rows of E that change become the product of W and their old values."""
    W, R, S, rows, _, _, _, _, _, _, _, _ = space
    if k <= SMALL:
        for j in range(k):
            combine(R, k, W[j], E[rows[j]])
        return
    np.dot(W[:k, :k].copy(), R[:k], S[:k])
    for j in range(k):
        source, target = S[j], E[rows[j]]
        for i in range(len(source)):
            target[i] = source[i]


@compiled
def renew(E: Matrix, space: Space) -> None:
    """One step of Newton's method for the nearest orthogonal matrix."""
    R, S = space[1], space[2]
    np.dot(E, E.T, R)
    np.dot(R, E, S)
    for j in range(len(E)):
        row, other = E[j], S[j]
        for i in range(len(E)):
            row[i] = 1.5 * row[i] - 0.5 * other[i]
