"""The distinct vectors of a stretch of constraints, and their moments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import slot_of
from kinstream.streams.compute.compiled import compiled


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
