"""The compiled loop of LEGO under a kernel. The basis lies in columns, so that sums over it run along rows.

Differences of kernels are taken before they are rounded: (a - b) times a sum where a power is, an exponential of the
difference where an exponential is. Sums are float64 whatever the model's type.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from learners.kernels.compiled import compiled
from learners.kernels.lego import EXACT, judge, step_size, verdict
from learners.kernels.opml import NO_DIFFERENCE, TINY, Flags, Matrix, Report, largest

LINEAR: Final = 0
RBF: Final = 1
POLYNOMIAL: Final = 2
#: A squared distance below this share of what it is added up from is rounding.
_NOTHING: Final = 1e-14

Vector = NDArray[np.float64]
#: Kind, factor of x.x' or of -|x - x'|^2, and degree.
Kernel = tuple[int, float, int]


@compiled
def _power_difference(a: float, gap: float, degree: int) -> float:
    """(a + gap)^degree - a^degree."""
    b = a + gap
    total, other = 1.0, 1.0
    for _ in range(degree - 1):
        other *= a
        total = total * b + other
    return gap * total


@compiled
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


@compiled
def measure(
    kernel: Kernel, B: Matrix, S: Matrix, count: int, u: Matrix, v: Matrix, c: Vector, q: Vector
) -> tuple[float, bool]:
    """Squared distance of two vectors, and whether they are equal to rounding.

    Parameters
    ----------
    B, S, count : (d, b) basis in columns, (b, b), and how many points of the basis there are.
    c, q : filled with k(basis, u) - k(basis, v) and S c.
    """
    kind, rate, degree = kernel
    base, flat = start(kernel, u, v)
    if flat:
        return 0.0, True
    for s in range(count):
        c[s] = 0.0
        q[s] = 0.0
    # q holds what belongs to v, c what a step from v to u adds to it.
    for j in range(len(u)):
        row, y = B[j], float(v[j])
        z = float(u[j]) - y
        if kind == RBF:
            both = float(u[j]) + y
            for s in range(count):
                b = float(row[s])
                q[s] += (y - b) * (y - b)
                c[s] += z * (both - 2.0 * b)
        else:
            for s in range(count):
                b = float(row[s])
                q[s] += y * b
                c[s] += z * b
    if kind == RBF:
        for s in range(count):
            c[s] = np.exp(-rate * q[s]) * np.expm1(-rate * c[s])
    elif kind == POLYNOMIAL:
        for s in range(count):
            c[s] = _power_difference(1.0 + rate * q[s], rate * c[s], degree)
    for s in range(count):
        q[s] = 0.0
    for r in range(count):
        row, x = S[r], c[r]
        for s in range(count):
            q[s] += x * float(row[s])
    found, size = base, base
    for s in range(count):
        found += c[s] * q[s]
        size += abs(c[s] * q[s])
    return (0.0 if found <= _NOTHING * size else found), False


@compiled
def _place(B: Matrix, count: int, x: Matrix) -> int:
    """Which point of the basis x is, `count` where it is none."""
    for s in range(count):
        j = 0
        while j < len(x) and B[j, s] == x[j]:
            j += 1
        if j == len(x):
            return s
    return count


@compiled
def _add(S: Matrix, count: int, h: Vector, beta: float) -> bool:
    """S += beta h h'; returns whether any entry is another one now. S stays symmetric to the bit."""
    changed = False
    sign = 1.0 if beta > 0.0 else -1.0
    root = np.sqrt(abs(beta))
    for s in range(count):
        h[s] *= root
    for r in range(count):
        row, x = S[r], sign * h[r]
        for s in range(count):
            before = row[s]
            row[s] = before + x * h[s]
            changed |= before != row[s]
    return changed


@compiled
def pairs(
    kernel: Kernel,
    B: Matrix,
    S: Matrix,
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
) -> int:
    """LEGO under a kernel, one pair after the other.

    Parameters
    ----------
    B, S, count : as in `measure`; changed in place.
    X : (n, d) vectors, of the basis's type.
    index, usable, signs, targets, thresholds, group : see `learners.single.Batch`.
    squared : every pair asks for its target; otherwise only those on the wrong side of it.
    limit : an entry of S below this, in magnitude, is safely a number.
    report : outcome arrays of length m.

    Returns
    -------
    int
        How many points of the basis there are now.
    """
    mistake, utilised, clipped, rejected, degenerate, loss = report
    budget = len(S)
    c, q = np.empty(budget), np.empty(budget)
    bound = largest(S[:count, :count])
    for t in range(len(index)):
        mistake[t], loss[t] = -1, 0.0
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        other = -1.0
        if group == 2 and t % 2 == 0 and usable[t + 1]:
            other, _ = measure(kernel, B, S, count, X[index[t + 1, 0]], X[index[t + 1, 1]], c, q)
        u, v = X[index[t, 0]], X[index[t, 1]]
        found, flat = measure(kernel, B, S, count, u, v, c, q)
        if not np.isfinite((found - targets[t]) * (found - targets[t])):
            continue
        lost, active = judge(signs[t], squared, found, targets[t])
        if active and found >= TINY:
            alpha, _, cut = step_size(EXACT, eta, 0.0, found, targets[t])
            if not np.isfinite(alpha):
                continue
            one = _place(B, count, u)
            two = _place(B, count, v)
            if two == count and one == count:
                two += 1
            many = max(count, one + 1, two + 1)
            if alpha != 0.0 and many <= budget:
                # h = e + S K e; rows of new points are zeros.
                for s in range(count, many):
                    q[s] = 0.0
                q[one] += 1.0
                q[two] -= 1.0
                top = 0.0
                for s in range(many):
                    top = max(top, abs(q[s]))
                beta = alpha * (2.0 + alpha * found)
                most = abs(beta) * top * top
                if not bound + most < limit:
                    bound = largest(S[:count, :count])
                if not bound + most < limit:
                    continue
                bound += most
                for s in range(count, many):
                    for r in range(many):
                        S[r, s] = 0.0
                        S[s, r] = 0.0
                if _add(S, many, q, beta):
                    for j in range(len(u)):
                        B[j, one], B[j, two] = u[j], v[j]
                    count = many
                    utilised[t], clipped[t] = True, cut
        rejected[t], degenerate[t] = False, flat
        loss[t] = lost
        if group == 1:
            mistake[t] = verdict(signs[t], found, thresholds[t])
        elif np.isfinite(other) and other >= 0.0:
            mistake[t] = 1 if found >= other else 0
    return count


@compiled
def distances(kernel: Kernel, B: Matrix, S: Matrix, count: int, X: Matrix, Y: Matrix) -> Vector:
    """Squared distances (n,) between the rows of X and those of Y."""
    found = np.empty(len(X))
    c, q = np.empty(len(S)), np.empty(len(S))
    for n in range(len(X)):
        found[n], _ = measure(kernel, B, S, count, X[n], Y[n], c, q)
    return found


@compiled
def against(kernel: Kernel, B: Matrix, count: int, X: Matrix) -> Matrix:
    """Kernels (n, count) of the rows of X with the points of the basis, and of each row with itself behind them."""
    kind, rate, degree = kernel
    found = np.zeros((len(X), count + 1))
    for n in range(len(X)):
        k, own = found[n], 0.0
        for j in range(X.shape[1]):
            row, x = B[j], float(X[n, j])
            own += x * x
            if kind == RBF:
                for s in range(count):
                    k[s] += (x - float(row[s])) * (x - float(row[s]))
            else:
                for s in range(count):
                    k[s] += x * float(row[s])
        k[count] = 0.0 if kind == RBF else own
        if kind == RBF:
            for s in range(count + 1):
                k[s] = np.exp(-rate * k[s])
        elif kind == POLYNOMIAL:
            for s in range(count + 1):
                k[s] = (1.0 + rate * k[s]) ** degree
    return found
