"""The distinct vectors of a stretch of constraints, their moments, and whether one of them is far from the others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import slot_of
from kinstream.streams.compute.compilation import compiled

#: Scales of a feature from its middle beyond which a vector is refused.
REACH: Final = 1e6
#: Scales at which values are cut for statistics: of features whose values mostly differ from the middle, and of others.
#: Of these, public sets have values of 500 scales: a dark pixel that is bright once.
CUT, CUT_SPARSE = 30.0, 1e3
#: A feature whose values differ in fewer vectors has a scale only as far as others have a similar one.
DIFFER, SHARE = 4, 0.1
#: A scale is at least this share of the middle: a number that has varied little yet may become 0.
LEAST: Final = 1e-3
#: A number no farther than this from the middle is within reach: shares and flags lie among zeros that are rounded.
SMALL: Final = 10.0


@compiled
def _selected(values: NDArray[np.float64], place: int) -> float:
    """The value that a sort would put at this place; reorders them (Hoare 1961)."""
    low, high = 0, len(values) - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return float(values[place])


@compiled
def _median(values: NDArray[np.float64]) -> float:
    """The median of at least one value; reorders them."""
    half = len(values) // 2
    upper = _selected(values, half)
    if len(values) % 2:
        return upper
    lower = values[0]
    for i in range(1, half):
        lower = max(lower, values[i])
    return float((lower + upper) / 2.0)


@compiled
def _usual(scale: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    known = np.empty(len(scale))
    count = 0
    for f in range(len(scale)):
        if chosen[f] and 0.0 < scale[f] < np.inf:
            known[count] = scale[f]
            count += 1
    return _median(known[:count]) if count else 0.0


@compiled
def many(n: int) -> int:
    """Values of a feature of n vectors that are too many to be called far."""
    return int(max(DIFFER, np.ceil(SHARE * n)))


@compiled
def is_even(X: NDArray[np.float64]) -> bool:
    """Whether `kinstream.learners.base.first_vectors.tempered` leaves the vectors X (n, d), n at least 8.

    A window pays for medians once in 256 vectors, and nearly always for this answer.
    """
    n, d = X.shape
    middle, scale = np.empty(d), np.empty(d)
    differ = np.empty(d, np.int64)
    solid, every = np.empty(d, np.bool_), np.ones(d, np.bool_)
    column = np.empty(n)
    for f in range(d):
        for i in range(n):
            column[i] = X[i, f]
        middle[f] = _median(column)
        differ[f] = 0
        for i in range(n):
            column[i] = abs(X[i, f] - middle[f])
            differ[f] += column[i] != 0.0
        scale[f] = _selected(column, n - differ[f] + (differ[f] - 1) // 2) if differ[f] else 0.0
        solid[f] = differ[f] >= max(DIFFER, SHARE * n)
    usual = _usual(scale, solid if solid.any() else every)
    for f in range(d):
        if not solid[f] and scale[f] > REACH * usual:
            scale[f] = usual
    usual = _usual(scale, every)
    near, cut = np.ones(n, np.bool_), False
    for f in range(d):
        reach = max(REACH * max(scale[f], usual, LEAST * abs(middle[f])), SMALL)
        for i in range(n):
            column[i] = abs(X[i, f] - middle[f])
            near[i] = near[i] and (column[i] <= reach or usual == 0.0) and np.isfinite(X[i, f])
        cut = cut or (scale[f] > 0.0 and _is_cut(X[:, f], column, middle[f], scale[f], 2 * differ[f] > n))
    some = np.count_nonzero(near)
    return not cut and (some == n or 2 * some < n)


@compiled
def _is_cut(
    x: NDArray[np.float64], apart: NDArray[np.float64], middle: float, scale: float, dense: bool
) -> bool:
    """Whether one of a feature's values is cut; reorders their distances from the middle."""
    n, times = len(x), CUT if dense else CUT_SPARSE
    most = times * scale
    if np.max(apart) > most:
        wide = _selected(apart, n - many(n))
        most = times * wide if wide > most else most
    if scale * REACH < SMALL:
        most = max(most, SMALL)
    low, high = middle - most, middle + most
    return bool(np.any((x < low) | (x > high)))


@compiled
def _include(x: NDArray[Any], count: int, sums: NDArray[np.float64]) -> None:
    for f in range(len(x)):
        value = np.float64(x[f])
        step = value - sums[0, f]
        sums[0, f] += step / count
        sums[1, f] += step * (value - sums[0, f])
        sums[2, f] = min(sums[2, f], value)
        sums[3, f] = max(sums[3, f], value)


@compiled
def moments(X: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    """Fill in the sums (4, d) that `watch` has after the vectors X (n, d)."""
    sums[:2], sums[2], sums[3] = 0.0, np.inf, -np.inf
    for i in range(len(X)):
        _include(X[i], i + 1, sums)


@compiled
def watch(
    X: NDArray[Any],
    hashes: NDArray[np.uint64],
    finite: NDArray[np.bool_],
    index: NDArray[np.int32],
    most: int,
    seen: NDArray[np.uint64],
    counts: NDArray[np.int64],
    sums: NDArray[np.float64],
    kept: NDArray[np.float64],
) -> int:
    """Take constraints into a window until it is full; returns their number.

    Each distinct vector counts once. A constraint with a vector that is not finite is ignored.

    Parameters
    ----------
    X, hashes, finite : (n, d) a table of vectors, (n,) a hash of each, and (n,) whether it is finite.
    index : (m, k) the rows of X in each constraint.
    most : number of constraints that also fills the window.
    seen : (w,) hashes of the window's vectors; the window is full with w of them. Changed in place, as are the others.
    counts : (2,) vectors and constraints so far.
    sums : (4, d) mean, sum of squared differences from it, least and largest value of each feature.
    kept : (w, d) the vectors; (0, d) if nobody wants them.
    """
    for t in range(len(index)):
        usable = True
        for j in range(index.shape[1]):
            usable = usable and finite[index[t, j]]
        if not usable:
            continue
        for j in range(index.shape[1]):
            i = index[t, j]
            if counts[0] == len(seen) or slot_of(seen, counts[0], hashes[i]) >= 0:
                continue
            seen[counts[0]] = hashes[i]
            if len(kept):
                kept[counts[0]] = X[i]
            counts[0] += 1
            _include(X[i], counts[0], sums)
        counts[1] += 1
        if counts[0] == len(seen) or counts[1] == most:
            return t + 1
    return len(index)
