"""Shared by kernels that judge all constraints of an event before they learn any of them.

At the first row of an event with several rows, a kernel measures the others under its present model, and then
continues: learning does not depend on it. `kinstream.learners.base.events` writes the verdicts afterwards.

The rows of an event share vectors: in a list of results the query and the clicked item. A difference that the row
before also has is mapped once, and several differences are mapped in one pass over the matrix, which takes most of the
time of a step if the matrix is large. The rounding of each does not depend on its place, so equal distances stay equal.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.equal_vectors import NO_DIFFERENCE, TINY
from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[Any]
Flags = NDArray[np.bool_]
Vector = NDArray[np.float64]
#: `ends` (m,): at the first row of an event with several rows the row after its last, 0 elsewhere; empty if there is no
#: such event. `found` (m,): filled in for all rows of those events except the first: the squared distance of a pair,
#: the margin of a triplet. `levels` (m,): filled in with the threshold at that time, by kernels whose threshold
#: changes.
Judged = tuple[NDArray[np.int32], Vector, Vector]

#: As in `kinstream.learners.kernels.one_modality.opml`.
Report = tuple[NDArray[np.int8], Flags, Flags, Flags, Flags, Vector, Vector]

#: Number of differences that are mapped in one pass.
WIDTH: Final = 16
#: Number of columns of their images that are filled in at once.
COLUMNS: Final = 256


@compiled
def order(numbers: NDArray[np.int32]) -> int:
    """-1 if the numbers of events decrease, 1 if two rows have the same number, else 0."""
    found = 0
    for t in range(1, len(numbers)):
        if numbers[t] < numbers[t - 1]:
            return -1
        if numbers[t] == numbers[t - 1]:
            found = 1
    return found


@compiled
def mark(numbers: NDArray[np.int32], group: int, ends: NDArray[np.int32]) -> bool:
    """Fill in `ends` of `Judged`, zeros before, from the number of each row's event; returns whether one has several
    rows.

    Parameters
    ----------
    group : rows of `ends` for each number.
    """
    start, several = 0, False
    for t in range(1, len(numbers) + 1):
        if t == len(numbers) or numbers[t] != numbers[start]:
            if t - start > 1:
                ends[group * start] = group * t
                several = True
            start = t
    return several


@compiled
def hinge_verdicts(ends: NDArray[np.int32], found: Vector, target: float, report: Report) -> None:
    """Report the verdicts of margins measured before an event, except for its first row and degenerate rows.

    Parameters
    ----------
    ends, found : see `Judged`; margins of triplets.
    target : margin from which on the loss is 0.
    report : outcome arrays.
    """
    mistake, _, _, rejected, degenerate, loss, margins = report
    for start in range(len(ends)):
        for t in range(start + 1, ends[start]):
            if degenerate[t]:
                continue
            margins[t] = found[t]
            mistake[t], loss[t] = -1, 0.0
            if not rejected[t] and np.isfinite(found[t]) and np.isfinite(target - found[t]):
                mistake[t] = 1 if found[t] <= 0.0 else 0
                loss[t] = max(target - found[t], 0.0)


@compiled
def map_many(M: Matrix, Z: Matrix, lo: int, count: int, W: Matrix) -> None:
    """The first rows of W (n, r) = the first rows of Z, from column `lo` on, times M (d, r)."""
    d, r = M.shape
    whole = d - d % 4
    for n in range(count):
        w = W[n]
        for i in range(r):
            w[i] = 0
    # Some columns at a time: the sums of all rows then stay in the nearest cache.
    for begin in range(0, r, COLUMNS):
        end = min(begin + COLUMNS, r)
        for j in range(0, whole, 4):
            t0, t1, t2, t3 = M[j, begin:end], M[j + 1, begin:end], M[j + 2, begin:end], M[j + 3, begin:end]
            # Two rows at a time: each read of M serves both.
            for n in range(0, count - 1, 2):
                w, z, v, y = W[n, begin:end], Z[n], W[n + 1, begin:end], Z[n + 1]
                z0, z1, z2, z3 = z[lo + j], z[lo + j + 1], z[lo + j + 2], z[lo + j + 3]
                y0, y1, y2, y3 = y[lo + j], y[lo + j + 1], y[lo + j + 2], y[lo + j + 3]
                for i in range(end - begin):
                    w[i] += (z0 * t0[i] + z1 * t1[i]) + (z2 * t2[i] + z3 * t3[i])
                    v[i] += (y0 * t0[i] + y1 * t1[i]) + (y2 * t2[i] + y3 * t3[i])
            if count % 2:
                w, z = W[count - 1, begin:end], Z[count - 1]
                z0, z1, z2, z3 = z[lo + j], z[lo + j + 1], z[lo + j + 2], z[lo + j + 3]
                for i in range(end - begin):
                    w[i] += (z0 * t0[i] + z1 * t1[i]) + (z2 * t2[i] + z3 * t3[i])
        for j in range(whole, d):
            t = M[j, begin:end]
            for n in range(count):
                w, x = W[n, begin:end], Z[n, lo + j]
                for i in range(end - begin):
                    w[i] += x * t[i]


@compiled
def inner(x: Matrix, y: Matrix) -> float:
    """Inner product in float64, as four sums so that one addition need not wait for the other."""
    a, b, c, e = 0.0, 0.0, 0.0, 0.0
    d = len(x)
    whole = d - d % 4
    for i in range(0, whole, 4):
        a += float(x[i]) * float(y[i])
        b += float(x[i + 1]) * float(y[i + 1])
        c += float(x[i + 2]) * float(y[i + 2])
        e += float(x[i + 3]) * float(y[i + 3])
    for i in range(whole, d):
        a += float(x[i]) * float(y[i])
    return (a + b) + (c + e)


@compiled
def _difference(u: Matrix, v: Matrix, uu: float, factor: float, z: Matrix) -> None:
    """z = factor (u - v), zeros if that is no difference; uu is |u|^2."""
    one = z.dtype.type(factor)
    for i in range(len(z)):
        z[i] = (u[i] - v[i]) * one
    zz, none = inner(z, z), NO_DIFFERENCE * factor * factor
    # |v|^2 <= 2 (|u|^2 + |u - v|^2): v must be measured only if z is nearly zero.
    if zz > 4.0 * NO_DIFFERENCE * (factor * factor * uu + zz) and zz > TINY:
        return
    none = max(none * max(uu, inner(v, v)), TINY)
    if np.isfinite(none) and zz <= none:
        z[:] = 0


@compiled
def differences(
    index: NDArray[np.int32],
    usable: Flags,
    scale: Vector,
    first: int,
    last: int,
    places: NDArray[np.int64],
    sources: NDArray[np.int64],
) -> int:
    """Number the differences of some constraints; one that an earlier row has in the same column gets its number.

    Parameters
    ----------
    index : (m, 2) or (m, 3), a difference of column 0 and each other one.
    scale : (m,) factors of the differences; without entries for 1.
    places : (k, 1) or (k, 2) filled in with the number of each difference, -1 of a row that cannot be used.
    sources : (n,) filled in with the row of each difference, times the number of columns, plus the column.

    Returns
    -------
    int
        How many there are.
    """
    columns, count = index.shape[1] - 1, 0
    for t in range(first, last):
        for c in range(columns):
            place = -1
            if usable[t]:
                # The two pairs of a triplet alternate.
                for s in range(max(t - 2, first), t):
                    same = index[s, 0] == index[t, 0] and index[s, c + 1] == index[t, c + 1]
                    if same and usable[s] and (len(scale) == 0 or scale[s] == scale[t]):
                        place = places[s - first, c]
                if place < 0:
                    place, sources[count] = count, t * columns + c
                    count += 1
            places[t - first, c] = place
    return count


@compiled
def measure(
    M: Matrix,
    quadratic: bool,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: Vector,
    first: int,
    last: int,
    found: Vector,
    sums: Vector,
) -> None:
    """Fill in found[first:last]: squared distances of pairs, or margins of triplets.

    Parameters
    ----------
    M : (d, d) the map transposed; or, if `quadratic`, the matrix of the squared distance.
    X : (n, d) vectors, of M's type.
    index, usable : see `kinstream.learners.base.one_modality.Batch`.
    scale : see `differences`.
    sums : becomes, for each triplet, the sum of the two squared distances of its margin; empty for none.
    """
    columns, d = index.shape[1] - 1, X.shape[1]
    rows = max(last - first, 0)
    places, sources = np.empty((rows, columns), np.int64), np.empty(rows * columns, np.int64)
    count = differences(index, usable, scale, first, last, places, sources)
    squared = np.empty(count)
    Z, W = np.empty((min(WIDTH, count), d), M.dtype), np.empty((min(WIDTH, count), M.shape[1]), M.dtype)
    anchor, uu = -1, 0.0
    for start in range(0, count, WIDTH):
        number = min(WIDTH, count - start)
        for n in range(number):
            t, c = sources[start + n] // columns, sources[start + n] % columns
            factor = scale[t] if len(scale) > 0 else 1.0
            if index[t, 0] != anchor:
                anchor = index[t, 0]
                uu = inner(X[anchor], X[anchor])
            _difference(X[anchor], X[index[t, c + 1]], uu, factor, Z[n])
        map_many(M, Z, 0, number, W)
        for n in range(number):
            squared[start + n] = inner(Z[n], W[n]) if quadratic else inner(W[n], W[n])
    spread(places, squared, first, found)
    for n in range(rows if len(sums) > 0 else 0):
        if places[n, 0] >= 0:
            sums[first + n] = squared[places[n, 0]] + squared[places[n, columns - 1]]


@compiled
def spread(places: NDArray[np.int64], squared: Vector, first: int, found: Vector) -> None:
    """Fill in found from row `first` on: squared distances of pairs, or margins of triplets; NaN at -1."""
    for n in range(len(places)):
        t = first + n
        found[t] = np.nan
        if places[n, 0] >= 0:
            near = squared[places[n, 0]]
            found[t] = near if places.shape[1] == 1 else squared[places[n, places.shape[1] - 1]] - near
