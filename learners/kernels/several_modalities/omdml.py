"""The compiled loop of OMDML. `M` holds the matrices of all modalities, row by row, one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.matrices.eigenpair import WIDE, subtract
from kinstream.learners.kernels.matrices.projection import project
from kinstream.learners.kernels.several_modalities.modalities import (
    Vector,
    Whole,
    charge,
    differences,
    judge,
    vanishes,
)
from kinstream.learners.kernels.shared import CLEAR, Flags, Matrix, Report, largest, map_two
from kinstream.streams.compute.compilation import compiled


@compiled
def _raised(M: Matrix, w: Matrix, N: Matrix) -> None:
    """N = M + w w'; the same bits on both sides of the diagonal."""
    for j in range(len(w)):
        source, row, x = M[j], N[j], w[j]
        for i in range(len(w)):
            row[i] = source[i] + x * w[i]


@compiled
def _lowered(N: Matrix, u: Matrix) -> None:
    """N -= u u'."""
    for j in range(len(u)):
        row, x = N[j], u[j]
        for i in range(len(u)):
            row[i] -= x * u[i]


@compiled
def _taken(N: Matrix, M: Matrix) -> bool:
    """M = N; returns whether that changes it."""
    changed = False
    for i in range(len(N)):
        if N[i] != M[i]:
            changed = True
            break
    if changed:
        for i in range(len(N)):
            M[i] = N[i]
    return changed


@compiled
def triplets(
    M: Matrix,
    N: Matrix,
    starts: Whole,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    beta: float,
    most: int,
    aggressiveness: float,
    margin: float,
    every: int,
    pull: Matrix,
    behind: Whole,
    theta: Vector,
    pending: Whole,
    bound: Vector,
    limit: float,
    report: Report,
    judged: Judged,
) -> None:
    """OMDML, one triplet after the other.

    Parameters
    ----------
    M : the matrices; changed in place. N : as M, work space.
    starts : (m + 1,) the start of each modality in a vector.
    X : (n, D) vectors, of M's type.
    index, usable : as in `kinstream.learners.kernels.one_modality.opml.triplets`.
    beta, most, behind, theta : see `kinstream.learners.kernels.several_modalities.modalities`.
    aggressiveness, margin : C, and gamma of the fused score.
    every : 1 to project with each step, by an eigenpair; k above 1 to project a matrix after every k steps; 0 to
        project all after each triplet that opens the gate.
    pull : as M, the matrix subtracted before each projection; empty for none. Not used with `every` 1.
    pending : (m,) steps of each matrix since it was projected, with `every` above 1.
    bound : (m,) at least the largest absolute entry of each matrix; negative for unknown.
    limit : an entry below it is safely a number of the type.
    report : outcome arrays.
    judged : see `kinstream.learners.kernels.events`.
    """
    mistake, utilised, clipped, rejected, degenerate, loss, margins = report
    ends, before, sums = judged
    # The model is that of the event's start up to this row.
    same = 0
    modes, D = len(starts) - 1, starts[len(starts) - 1]
    a, b, p, q = np.empty(D, X.dtype), np.empty(D, X.dtype), np.empty(D, X.dtype), np.empty(D, X.dtype)
    f, squares, taus, tops = np.empty(modes), np.empty(modes), np.empty(modes), np.empty(modes)
    wrong = np.empty(modes, np.bool_)
    wide = 0
    for i in range(modes):
        wide = max(wide, starts[i + 1] - starts[i])
    # Only the used part of the work space is ever touched, see `kinstream.learners.kernels.matrices.eigenpair.Work`.
    most_blocks = (wide + WIDE - 1) // WIDE
    Q, K = np.empty(wide * wide, X.dtype), np.zeros(most_blocks * wide * WIDE, X.dtype)
    h, v, g = np.empty(most_blocks * WIDE, X.dtype), np.empty(wide, X.dtype), np.empty(wide, X.dtype)
    c, d, e = np.empty(wide), np.empty(wide), np.empty(wide)
    sizes = starts[1:] - starts[:-1]
    for t in range(len(index)):
        if len(ends) > 0 and ends[t] > 0:
            judge(M, starts, sizes, True, X, index, usable, theta, t + 1, ends[t], before, sums)
            same = ends[t]
        mistake[t], loss[t], margins[t] = -1, 0.0, np.nan
        utilised[t], clipped[t], degenerate[t], rejected[t] = False, False, False, True
        if not usable[t]:
            continue
        if t < same and ends[t] == 0 and before[t] - margin > CLEAR * sums[t]:
            # The hinge is closed under any rounding: there is nothing to learn.
            rejected[t], mistake[t], margins[t] = False, 0, before[t]
            continue
        x, y, z = X[index[t, 0]], X[index[t, 1]], X[index[t, 2]]
        fused, none, at = 0.0, True, 0
        for i in range(modes):
            lo, hi = starts[i], starts[i + 1]
            n, s, r, u, w = hi - lo, a[lo:hi], b[lo:hi], p[lo:hi], q[lo:hi]
            _, _, minus, plus, inner = differences(x[lo:hi], y[lo:hi], z[lo:hi], s, r)
            # |a a' - b b'|^2 without cancellation.
            squares[i] = 0.5 * (minus * plus + inner * inner)
            if vanishes(minus, plus):
                squares[i] = 0.0
            none &= squares[i] == 0.0
            map_two(M[at : at + n * n].reshape(n, n), s, r, u, w)
            at += n * n
            near, far = 0.0, 0.0
            for k in range(n):
                near += float(s[k]) * float(u[k])
                far += float(r[k]) * float(w[k])
            f[i] = near - far
            fused += theta[i] * f[i]
        margins[t] = 0.0 - fused
        if not np.isfinite(fused):
            continue
        if none:
            mistake[t], loss[t], degenerate[t], rejected[t] = 1, margin, True, False
            continue
        if fused + margin > 0.0:
            fits, at = True, 0
            for i in range(modes):
                lo, hi = starts[i], starts[i + 1]
                n, s, r, u, w = hi - lo, a[lo:hi], b[lo:hi], p[lo:hi], q[lo:hi]
                matrix = M[at : at + n * n].reshape(n, n)
                candidate = N[at : at + n * n].reshape(n, n)
                at += n * n
                wrong[i] = f[i] > 0.0
                own = f[i] + 1.0
                taus[i] = min(aggressiveness, own / squares[i]) if own > 0.0 and squares[i] > 0.0 else 0.0
                if taus[i] == 0.0 or not fits:
                    continue
                if bound[i] < 0.0:
                    bound[i] = largest(matrix)
                root, top = X.dtype.type(np.sqrt(taus[i])), 0.0
                for k in range(n):
                    u[k], w[k] = root * s[k], root * r[k]
                    top = max(top, abs(float(u[k])), abs(float(w[k])))
                # Neither step nor projection changes an entry by more than that.
                tops[i] = bound[i] + 3.0 * top * top * (n if every <= 1 else 1)
                _raised(matrix, w, candidate)
                if every <= 1:
                    blocks = (n + WIDE - 1) // WIDE
                    vectors = K[: blocks * n * WIDE].reshape(blocks, n, WIDE)
                    room = h[: blocks * WIDE]
                    space = (Q[: n * n].reshape(n, n), vectors, w, room, v[:n], g[:n], c[:n], d[:n], e[:n])
                    fits, _ = subtract(candidate, taus[i], s, limit, space)
                else:
                    _lowered(candidate, u)
                if not tops[i] < limit:
                    tops[i] = largest(candidate)
                    for k in range(n * n):
                        fits &= bool(np.isfinite(N[at - n * n + k]))
            if not fits:
                continue
            same = 0
            changed, at = charge(wrong, behind, most, beta, theta), 0
            for i in range(modes):
                n = starts[i + 1] - starts[i]
                if taus[i] > 0.0 and _taken(N[at : at + n * n], M[at : at + n * n]):
                    changed, bound[i] = True, tops[i]
                    pending[i] += 1 if every > 1 else 0
                if every != 1 and pending[i] >= every:
                    changed |= project(M[at : at + n * n].reshape(n, n), pull[at : at + n * n])
                    pending[i], bound[i] = 0, -1.0
                at += n * n
            utilised[t] = changed
        rejected[t] = False
        mistake[t] = 1 if fused >= 0.0 else 0
        loss[t] = max(fused + margin, 0.0)
