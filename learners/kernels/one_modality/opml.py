"""The compiled loops of OPML and COPML. `T` stands for L transposed: row j of T is column j of L.

With T every inner loop runs over independent entries of one row, which the compiler turns into vector
instructions without reordering a sum. (Work vectors are allocated one by one: numba treats the rows of an unpacked
matrix as strided, and then uses no vector instructions.) Scalars of a step are float64 for any type of the model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged, measure
from kinstream.learners.kernels.shared import (
    CLEAR,
    NO_DIFFERENCE,
    TINY,
    Flags,
    Matrix,
    Report,
    largest,
    map_two,
    two_differences,
)
from kinstream.streams.compute.compilation import compiled

RAW: Final = 0
CLIP: Final = 1
#: Largest gamma |lambda_min| that the guard allows: one step stretches no direction more than tenfold.
SAFE: Final = 0.9
#: Largest entry of a map that the guard allows: a larger map is scaled down as a whole.
CEILING: Final = 1e9
#: Determinant below which the closed form counts as undefined.
SINGULAR: Final = 1e-12


@compiled
def step_size(gamma: float, guard: int, aa: float, bb: float, ab: float) -> tuple[float, float, bool]:
    """Step size after the guard, det(I + gamma (a a' - b b')), and whether the guard acted.

    The eigenvalues come from the form without cancellation; the determinant is the product of the two that differ from
    1.
    """
    trace = aa - bb
    area = max(aa * bb - ab * ab, 0.0)
    root = np.sqrt(trace * trace + 4.0 * area)
    low = -2.0 * area / (trace + root) if trace > 0.0 else 0.5 * (trace - root)
    clipped = guard == CLIP and -gamma * low > SAFE
    if clipped:
        gamma = SAFE / -low
    return gamma, (1.0 + gamma * (trace - low)) * (1.0 + gamma * low), clipped


@compiled
def coefficients(gamma: float, det: float, aa: float, bb: float, ab: float) -> tuple[float, float, float]:
    """(caa, cab, cbb) of L + (L a)(caa a + cab b)' + (L b)(cab a + cbb b)' (paper, Eq. 16)."""
    c = gamma / det
    return -c * (1.0 - gamma * bb), -c * gamma * ab, c * (1.0 + gamma * aa)


@compiled
def _add_two(T: Matrix, ca: Matrix, cb: Matrix, p: Matrix, q: Matrix) -> None:
    """L += p ca' + q cb'."""
    d = T.shape[0]
    for j in range(d):
        t, x, y = T[j], ca[j], cb[j]
        for i in range(d):
            t[i] += x * p[i] + y * q[i]


@compiled
def _commit(
    T: Matrix, ca: Matrix, cb: Matrix, p: Matrix, q: Matrix, bound: float, limit: float, ceiling: float
) -> tuple[float, bool]:
    """Apply the update unless an entry would leave the finite numbers.

    `bound` is at least the largest absolute entry that T can have afterwards. Only when it is near the
    type's limit, or above the ceiling, is the candidate computed and checked.

    Returns
    -------
    tuple of float and bool
        The bound, -1 if refused; and whether the map was scaled down to the ceiling.
    """
    if bound < min(limit, ceiling):
        _add_two(T, ca, cb, p, q)
        return bound, False
    candidate = T.copy()
    _add_two(candidate, ca, cb, p, q)
    for row in candidate:
        for value in row:
            if not np.isfinite(value):
                return -1.0, False
    top = largest(candidate)
    if top > ceiling:
        candidate *= candidate.dtype.type(ceiling / top)
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            T[i, j] = candidate[i, j]
    return min(top, ceiling), top > ceiling


@compiled
def triplets(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: NDArray[np.float64],
    gamma: float,
    guard: int,
    limit: float,
    bound: float,
    report: Report,
    judged: Judged,
    start: int,
    stop: int,
) -> float:
    """OPML, one triplet after the other.

    Parameters
    ----------
    T : (d, d) the map transposed; changed in place.
    X : (n, d) vectors, of T's type.
    index : (m, 3) rows of X: anchor, positive, negative.
    usable : (m,) false where a vector is not finite.
    scale : (m,) factors of the difference vectors.
    gamma, guard : step size; RAW or CLIP.
    limit, bound : see `_commit`, before the first triplet; a negative bound is unknown.
    report : outcome arrays of length m.
    judged : see `kinstream.learners.kernels.events`.
    start, stop : which of the m triplets to learn.

    Returns
    -------
    float
        The bound to pass next time.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, sums = judged
    # The map is that of the event's start up to this row.
    same = 0
    d = T.shape[0]
    ceiling = CEILING if guard == CLIP else np.inf
    a, b, p = np.empty(d, T.dtype), np.empty(d, T.dtype), np.empty(d, T.dtype)
    q, ca, cb = np.empty(d, T.dtype), np.empty(d, T.dtype), np.empty(d, T.dtype)
    if bound < 0.0:
        bound = largest(T)
    for t in range(start, stop):
        if len(ends) > 0 and ends[t] > 0:
            measure(T, False, X, index, usable, scale, t + 1, ends[t], before, sums)
            same = ends[t]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        aa, bb, ab, flat = two_differences(X, index[t], scale[t], a, b)
        if flat:
            mistake[t], loss[t], degenerate[t], rejected[t], margins[t] = 1, 1.0, True, False, 0.0
            continue
        if t < same and ends[t] == 0 and before[t] - 1.0 > CLEAR * sums[t]:
            # The map is still that of the event's start, and the hinge is closed under any rounding: there is nothing
            # to learn, and the measurement is reported.
            rejected[t], mistake[t], margins[t] = False, 0, before[t]
            continue
        map_two(T, a, b, p, q)
        near, far = 0.0, 0.0
        for i in range(d):
            near += float(p[i]) * float(p[i])
            far += float(q[i]) * float(q[i])
        hinge, margins[t] = 1.0 + near - far, far - near
        if not np.isfinite(hinge):
            continue
        if hinge > 0.0:
            gamma_t, det, cut = step_size(gamma, guard, aa, bb, ab)
            if not det > SINGULAR:
                continue
            caa, cab, cbb = coefficients(gamma_t, det, aa, bb, ab)
            for i in range(d):
                s, r = float(a[i]), float(b[i])
                ca[i] = caa * s + cab * r
                cb[i] = cab * s + cbb * r
            u, v = np.sqrt(aa), np.sqrt(bb)
            most = np.sqrt(near) * (abs(caa) * u + abs(cab) * v) + np.sqrt(far) * (
                abs(cab) * u + abs(cbb) * v
            )
            raised, capped = _commit(T, ca, cb, p, q, bound + most, limit, ceiling)
            if raised < 0.0:
                continue
            bound = raised
            utilised[t], clipped[t], same = True, cut or capped, 0
        rejected[t] = False
        mistake[t] = 1 if near >= far else 0
        loss[t] = max(hinge, 0.0)
    return bound


@compiled
def pairs(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: NDArray[np.float64],
    gamma: float,
    updates_left: int,
    limit: float,
    bound: float,
    report: Report,
    judged: Judged,
) -> tuple[float, int]:
    """COPML's pre-stage: L <- L (I + gamma z z')^{-1} for every pair; arguments as in `triplets`.

    Returns
    -------
    tuple of float and int
        The bound, and the number of pairs that changed the map (at most `updates_left`).
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, _ = judged
    d = T.shape[0]
    z, p = np.zeros(d, T.dtype), np.zeros(d, T.dtype)
    c, zero = np.zeros(d, T.dtype), np.zeros(d, T.dtype)
    updates = 0
    if bound < 0.0:
        bound = largest(T)
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            measure(T, False, X, index, usable, scale, t + 1, ends[t], before, before[:0])
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        x, y = X[index[t, 0]], X[index[t, 1]]
        one = z.dtype.type(scale[t])
        zz, xx, yy = 0.0, 0.0, 0.0
        for i in range(d):
            z[i] = (x[i] - y[i]) * one
            s, u, v = float(z[i]), float(x[i] * one), float(y[i] * one)
            zz += s * s
            xx += u * u
            yy += v * v
        if not np.isfinite(zz):
            continue
        if zz <= max(NO_DIFFERENCE * max(xx, yy), TINY):
            degenerate[t], rejected[t] = True, False
            continue
        map_two(T, z, zero, p, c)
        length = 0.0
        for i in range(d):
            length += float(p[i]) * float(p[i])
        if not np.isfinite(length):
            continue
        if updates < updates_left:
            factor = -gamma / (1.0 + gamma * zz)
            for i in range(d):
                c[i] = factor * float(z[i])
            # A pair only contracts, so the ceiling does not apply.
            most = np.sqrt(length) * abs(factor) * np.sqrt(zz)
            raised, _ = _commit(T, c, zero, p, zero, bound + most, limit, np.inf)
            if raised < 0.0:
                continue
            bound = raised
            utilised[t] = True
            updates += 1
        rejected[t] = False
        loss[t] = length
    return bound, updates


@compiled
def gather(
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: NDArray[np.float64],
    Z: Matrix,
    degenerate: Flags,
) -> None:
    """Rows 2t and 2t + 1 of Z (2m, d) become a and b of triplet t; zeros if the triplet cannot be used."""
    for t in range(len(index)):
        degenerate[t] = False
        if usable[t]:
            degenerate[t] = two_differences(X, index[t], scale[t], Z[2 * t], Z[2 * t + 1])[3]
        else:
            Z[2 * t] = 0
            Z[2 * t + 1] = 0


@compiled
def distinct(
    index: NDArray[np.int32], usable: Flags, rows: NDArray[np.int32], local: NDArray[np.int32]
) -> int:
    """Number the vectors of the usable triplets by first use: `local` (m, 3) points into `rows` (3m,).

    Returns
    -------
    int
        Their number.
    """
    count = 0
    for t in range(len(index)):
        for c in range(3):
            local[t, c] = -1
            if usable[t]:
                # Newest first: the triplets of a stream share their latest vectors.
                k = count - 1
                while k >= 0 and rows[k] != index[t, c]:
                    k -= 1
                if k < 0:
                    rows[count] = index[t, c]
                    k = count
                    count += 1
                local[t, c] = k
    return count


@compiled
def spread(Y: Matrix, local: NDArray[np.int32], Z: Matrix) -> None:
    """Rows of differences from rows of points: Z = P Y, with P as in `gather`."""
    for t in range(len(local)):
        if local[t, 0] < 0:
            Z[2 * t] = 0
            Z[2 * t + 1] = 0
            continue
        x, y, z, a, b = Y[local[t, 0]], Y[local[t, 1]], Y[local[t, 2]], Z[2 * t], Z[2 * t + 1]
        for i in range(Y.shape[1]):
            a[i] = x[i] - y[i]
            b[i] = x[i] - z[i]


@compiled
def collect(Z: Matrix, local: NDArray[np.int32], Y: Matrix) -> None:
    """The transpose of `spread`: Y = P' Z."""
    Y[:] = 0
    for t in range(len(local)):
        if local[t, 0] < 0:
            continue
        x, y, z, a, b = Y[local[t, 0]], Y[local[t, 1]], Y[local[t, 2]], Z[2 * t], Z[2 * t + 1]
        for i in range(Y.shape[1]):
            x[i] += a[i] + b[i]
            y[i] -= a[i]
            z[i] -= b[i]


@compiled
def recursion(
    G: Matrix, K: Matrix, usable: Flags, gamma: float, guard: int, worst: float, S: Matrix, report: Report
) -> int:
    """The scalars of a whole block, from Gram matrices alone.

    With Z (2m, d) the block's differences, V = Z L_0', the map after t triplets is L_0 + V' S' Z. Column by
    column: L_t z = V' u with u = e + S' G e, |L_t z|^2 = u' K u.

    Parameters
    ----------
    G, K : (2m, 2m) Z Z' and V V'.
    worst : largest loss of digits to accept, as the ratio of sum |u_i| |V_i| to |L_t z|.
    S : (2m, 2m) zeros; rows 2t and 2t + 1 are filled for the triplets that change the map.
    report : outcome arrays; `degenerate` is read, the others are written.

    Returns
    -------
    int
        The number of triplets that change the map; -1 if the block needs the sequential loop (too many digits lost, or
        a number that is not finite).
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    n = len(usable)
    u, w = np.empty(2 * n, G.dtype), np.empty(2 * n, G.dtype)
    ku, kw = np.empty(2 * n, G.dtype), np.empty(2 * n, G.dtype)
    lengths = np.empty(2 * n, np.float64)
    for i in range(2 * n):
        lengths[i] = np.sqrt(max(float(K[i, i]), 0.0))
    active = np.empty(2 * n, np.int64)
    count = 0
    for t in range(n):
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], rejected[t] = False, False, not usable[t]
        if not usable[t]:
            continue
        if degenerate[t]:
            mistake[t], loss[t], margins[t] = 1, 1.0, 0.0
            continue
        i, j = 2 * t, 2 * t + 1
        for r in range(j + 1):
            u[r], w[r], ku[r], kw[r] = 0, 0, 0, 0
        u[i] = 1
        w[j] = 1
        for c in range(count):
            k = active[c]
            row, g, h = S[k], G[i, k], G[j, k]
            for r in range((k | 1) + 1):
                u[r] += g * row[r]
                w[r] += h * row[r]
        active[count], active[count + 1] = i, j
        for c in range(count + 2):
            k = active[c]
            row, g, h = K[k], u[k], w[k]
            for r in range(j + 1):
                ku[r] += g * row[r]
                kw[r] += h * row[r]
        near, far, near_parts, far_parts = 0.0, 0.0, 0.0, 0.0
        for c in range(count + 2):
            k = active[c]
            g, h = float(u[k]), float(w[k])
            near += g * float(ku[k])
            far += h * float(kw[k])
            near_parts += abs(g) * lengths[k]
            far_parts += abs(h) * lengths[k]
        near_parts, far_parts = near_parts * near_parts, far_parts * far_parts
        if not (near_parts <= worst * worst * near and far_parts <= worst * worst * far):
            return -1
        hinge, margins[t] = 1.0 + near - far, far - near
        if not np.isfinite(hinge):
            return -1
        if hinge > 0.0:
            aa, bb, ab = float(G[i, i]), float(G[j, j]), float(G[i, j])
            gamma_t, det, cut = step_size(gamma, guard, aa, bb, ab)
            if not np.isfinite(det):
                return -1
            if not det > SINGULAR:
                rejected[t] = True
                continue
            caa, cab, cbb = coefficients(gamma_t, det, aa, bb, ab)
            x, y, z = G.dtype.type(caa), G.dtype.type(cab), G.dtype.type(cbb)
            first, second = S[i], S[j]
            for r in range(j + 1):
                first[r] = x * u[r] + y * w[r]
                second[r] = y * u[r] + z * w[r]
            count += 2
            utilised[t], clipped[t] = True, cut
        mistake[t] = 1 if near >= far else 0
        loss[t] = max(hinge, 0.0)
    return count // 2
