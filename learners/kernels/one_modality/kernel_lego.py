"""The compiled loop of LEGO under a kernel, in coordinates of the span of its basis.

With L L' the kernel matrix of the basis, a vector x has the coordinates a(x) = L^-1 k(x), k(x) its kernels with the
basis points, and the part outside the span has the squared length k(x, x) - |a(x)|^2. The coordinates of a difference
come from the difference of kernels, which is computed without cancellation: (a - b) times a sum for powers, an
exponential of the difference for exponentials.

The basis is stored in columns, `R` is L transposed and `T` is G transposed, so sums over the basis run along rows. R, T
and all sums are float64 for any type of the model. Columns and rows after the first `count` are not part of the model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged, differences, spread
from kinstream.learners.kernels.one_modality.lego import EXACT, judge, step_size, verdict
from kinstream.learners.kernels.shared import NO_DIFFERENCE, TINY, Flags, Matrix, Report
from kinstream.streams.compute.compilation import compiled, compiled_map

LINEAR: Final = 0
RBF: Final = 1
POLYNOMIAL: Final = 2
#: A point joins the basis if more than this share of its squared length lies outside of the span.
_NEW: Final = 1e-10
#: Points join if more than this share of a pair's squared distance lies outside the span...
_FINE: Final = 1e-9
#: ...and a pair is not learned if the share is larger than this.
_ROUGH: Final = 1e-6

Vector = NDArray[np.float64]
Square = NDArray[np.float64]
#: Kind, factor of x.x' or of -|x - x'|^2, and degree.
Kernel = tuple[int, float, int]
#: B (d, b), R (b, b), T (b, b).
Model = tuple[Matrix, Square, Square]


@compiled_map
def _power_difference(a: float, gap: float, degree: int) -> float:
    """(a + gap)^degree - a^degree."""
    b = a + gap
    total, other = 1.0, 1.0
    for _ in range(degree - 1):
        other *= a
        total = total * b + other
    return gap * total


@compiled_map
def start(kernel: Kernel, u: Matrix, v: Matrix) -> tuple[float, bool]:
    """k(u, u) - 2 k(u, v) + k(v, v), and whether u and v are equal to rounding."""
    kind, rate, degree = kernel
    zz, uu, vv, uz, vz = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(u)):
        x, y = float(u[j]), float(v[j])
        z = x - y
        zz += z * z
        uu += x * x
        vv += y * y
        uz += x * z
        vz += y * z
    flat = np.isfinite(zz) and zz <= max(NO_DIFFERENCE * max(uu, vv), TINY)
    if flat:
        return 0.0, True
    if kind == LINEAR:
        return zz, False
    if kind == RBF:
        return -2.0 * np.expm1(-rate * zz), False
    a = 1.0 + rate * vv
    b = a + rate * vz
    first = _power_difference(b, rate * uz, degree)
    return max(first - _power_difference(a, rate * vz, degree), 0.0), False


@compiled_map
def _solve(R: Square, count: int, a: Vector) -> float:
    """a <- L^-1 a; returns |a|^2."""
    square = 0.0
    for i in range(count):
        row = R[i]
        x = a[i] / row[i]
        a[i] = x
        square += x * x
        for s in range(i + 1, count):
            a[s] -= x * row[s]
    return square


@compiled_map
def measure(
    kernel: Kernel, model: Model, count: int, u: Matrix, v: Matrix, a: Vector, w: Vector
) -> tuple[float, float, float, bool]:
    """Squared distance of two vectors: all of it, its part outside the span, and its value before any learning.

    Parameters
    ----------
    count : points of the basis.
    a, w : filled with the coordinates of u - v, and with G a.

    Returns
    -------
    tuple of three floats and bool
        And whether u and v are equal to rounding.
    """
    kind, rate, degree = kernel
    B, R, T = model
    base, flat = start(kernel, u, v)
    if flat:
        return 0.0, 0.0, 0.0, True
    for s in range(count):
        a[s] = 0.0
        w[s] = 0.0
    # w holds the kernels of v, a the change from v to u.
    for j in range(len(u)):
        row, y = B[j], float(v[j])
        z = float(u[j]) - y
        if kind == RBF:
            both = float(u[j]) + y
            for s in range(count):
                b = float(row[s])
                w[s] += (y - b) * (y - b)
                a[s] += z * (both - 2.0 * b)
        else:
            for s in range(count):
                b = float(row[s])
                w[s] += y * b
                a[s] += z * b
    if kind == RBF:
        for s in range(count):
            a[s] = np.exp(-rate * w[s]) * np.expm1(-rate * a[s])
    elif kind == POLYNOMIAL:
        for s in range(count):
            a[s] = _power_difference(1.0 + rate * w[s], rate * a[s], degree)
    rest = max(base - _solve(R, count, a), 0.0)
    for s in range(count):
        w[s] = 0.0
    for i in range(count):
        row, x = T[i], a[i]
        for s in range(count):
            w[s] += x * row[s]
    found = rest
    for s in range(count):
        found += w[s] * w[s]
    return found, rest, base, False


@compiled_map
def coordinates(kernel: Kernel, model: Model, count: int, x: Matrix, a: Vector) -> tuple[float, float]:
    """Fill a with the coordinates of a vector; returns its squared length, and the part outside of the span."""
    kind, rate, degree = kernel
    B, own = model[0], 0.0
    for s in range(count):
        a[s] = 0.0
    for j in range(len(x)):
        row, y = B[j], float(x[j])
        own += y * y
        if kind == RBF:
            for s in range(count):
                a[s] += (y - float(row[s])) * (y - float(row[s]))
        else:
            for s in range(count):
                a[s] += y * float(row[s])
    if kind == RBF:
        own = 1.0
        for s in range(count):
            a[s] = np.exp(-rate * a[s])
    elif kind == POLYNOMIAL:
        own = (1.0 + rate * own) ** degree
        for s in range(count):
            a[s] = (1.0 + rate * a[s]) ** degree
    return own, max(own - _solve(model[1], count, a), 0.0)


@compiled_map
def join(kernel: Kernel, model: Model, count: int, x: Matrix, a: Vector) -> int:
    """Append x to the basis if there is room and it is not in the span; returns the new number of points."""
    B, R, T = model
    if count == len(T):
        return count
    own, rest = coordinates(kernel, model, count, x, a)
    if not rest > _NEW * own:
        return count
    for j in range(len(x)):
        B[j, count] = x[j]
    for s in range(count):
        R[s, count], R[count, s] = a[s], 0.0
        T[s, count], T[count, s] = 0.0, 0.0
    R[count, count], T[count, count] = np.sqrt(rest), 1.0
    return count + 1


@compiled
def _map_back(T: Square, count: int, w: Vector, g: Vector) -> None:
    """g = G' w. Four rows at a time, because a sum must not be reordered within a row."""
    whole = count - count % 4
    for i in range(0, whole, 4):
        t0, t1, t2, t3 = T[i], T[i + 1], T[i + 2], T[i + 3]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for s in range(count):
            x = w[s]
            a += x * t0[s]
            b += x * t1[s]
            c += x * t2[s]
            d += x * t3[s]
        g[i], g[i + 1], g[i + 2], g[i + 3] = a, b, c, d
    for i in range(whole, count):
        row, a = T[i], 0.0
        for s in range(count):
            a += w[s] * row[s]
        g[i] = a


@compiled
def _add(T: Square, count: int, c: Vector, w: Vector) -> bool:
    """G += w c'; returns whether any entry is another one now."""
    changed = False
    for i in range(count):
        row, x = T[i], c[i]
        for s in range(count):
            before = row[s]
            row[s] = before + x * w[s]
            changed |= before != row[s]
    return changed


@compiled
def _judge(
    kernel: Kernel,
    model: Model,
    count: int,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    first: int,
    last: int,
    a: Vector,
    w: Vector,
    before: Vector,
) -> None:
    """Fill in before[first:last], each squared distance that several pairs have measured once."""
    rows = max(last - first, 0)
    places, sources = np.empty((rows, 1), np.int64), np.empty(rows, np.int64)
    squared = np.empty(rows)
    for n in range(differences(index, usable, before[:0], first, last, places, sources)):
        t = sources[n]
        squared[n] = measure(kernel, model, count, X[index[t, 0]], X[index[t, 1]], a, w)[0]
    spread(places, squared, first, before)


@compiled
def pairs(
    kernel: Kernel,
    model: Model,
    count: int,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    signs: NDArray[np.int8],
    targets: Vector,
    thresholds: Vector,
    group: int,
    squared: bool,
    eta: float,
    limit: float,
    report: Report,
    judged: Judged,
) -> int:
    """LEGO under a kernel, one pair after the other.

    Parameters
    ----------
    model, count : changed in place; points of the basis.
    X : (n, d) vectors, of the basis's type.
    index, usable, signs, targets, thresholds, group : see `kinstream.learners.base.one_modality.Batch`.
    squared : every pair is learned; otherwise only those on the wrong side of their target.
    limit : an entry of G below this, in magnitude, is safely finite.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.

    Returns
    -------
    int
        The number of basis points afterwards.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    T = model[2]
    a, w, g = np.empty(len(T)), np.empty(len(T)), np.empty(len(T))
    # At least the largest entry of G; unknown.
    bound = np.inf
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            _judge(kernel, model, count, X, index, usable, t + group, ends[t], a, w, before)
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        other = np.nan
        if group == 2 and t % 2 == 0 and usable[t + 1]:
            other = measure(kernel, model, count, X[index[t + 1, 0]], X[index[t + 1, 1]], a, w)[0]
        u, v = X[index[t, 0]], X[index[t, 1]]
        found, rest, base, flat = measure(kernel, model, count, u, v, a, w)
        margins[t] = other - found
        if not np.isfinite((found - targets[t]) * (found - targets[t])):
            continue
        lost, active = judge(signs[t], squared, found, targets[t])
        if active and found >= TINY:
            many = count
            if rest > _FINE * base:
                many = join(kernel, model, count, u, a)
                many = join(kernel, model, many, v, a)
                _, rest, _, _ = measure(kernel, model, many, u, v, a, w)
            alpha, _, cut = step_size(EXACT, eta, 0.0, found, targets[t])
            if not np.isfinite(alpha):
                continue
            if rest <= _ROUGH * base and alpha != 0.0:
                _map_back(T, many, w, g)
                near, far = 0.0, 0.0
                for s in range(many):
                    near += w[s] * w[s]
                    far += g[s] * g[s]
                    g[s] *= alpha
                most = abs(alpha) * np.sqrt(near * far)
                if not bound + most < limit:
                    bound = 1.0
                    for s in range(many):
                        for i in range(many):
                            bound = max(bound, abs(T[s, i]))
                if not bound + most < limit:
                    continue
                if _add(T, many, g, w):
                    bound += most
                    count = many
                    utilised[t], clipped[t] = True, cut
        rejected[t], degenerate[t] = False, flat
        loss[t] = lost
        if group == 1:
            mistake[t] = verdict(signs[t], found, thresholds[t])
        elif np.isfinite(other):
            mistake[t] = 1 if found >= other else 0
    return count


@compiled_map
def distances(kernel: Kernel, model: Model, count: int, X: Matrix, Y: Matrix) -> Vector:
    """Squared distances (n,) between the rows of X and those of Y."""
    found = np.empty(len(X))
    a, w = np.empty(count), np.empty(count)
    for n in range(len(X)):
        found[n] = measure(kernel, model, count, X[n], Y[n], a, w)[0]
    return found


@compiled_map
def embed(kernel: Kernel, model: Model, count: int, X: Matrix) -> Square:
    """Coordinates (n, count) of the rows of X, followed by the length of the part outside the span."""
    found = np.empty((len(X), count + 1))
    for n in range(len(X)):
        _, rest = coordinates(kernel, model, count, X[n], found[n])
        found[n, count] = np.sqrt(rest)
    return found
