"""The compiled loops of the discriminant learner: differences are collected into groups, and vectors into the first
buffer."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import slot_of
from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[Any]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Index = NDArray[np.int32]
Signs = NDArray[np.int8]

#: Fields of the buffer's tally.
VECTORS: Final = 0
PAIRS: Final = 1


@compiled
def _equal(x: Matrix, y: Matrix) -> bool:
    i = 0
    while i < len(x) and x[i] == y[i]:
        i += 1
    return i == len(x)


@compiled
def differing(X: Matrix, index: Index, usable: Flags, group: int, good: Flags) -> None:
    """Fill in which pairs (m,) can be learned: those whose vectors are usable and differ.

    Of a triplet (rows 2t and 2t + 1, with `group` 2) none can be learned if x+ equals x-.
    """
    for t in range(len(index)):
        good[t] = usable[t] and not _equal(X[index[t, 0]], X[index[t, 1]])
    if group == 2:
        for t in range(0, len(index), 2):
            if usable[t] and _equal(X[index[t, 1]], X[index[t + 1, 1]]):
                good[t] = good[t + 1] = False


@compiled
def collect(
    X: Matrix, index: Index, signs: Signs, good: Flags, group: int, first: int, pending: Matrix, fill: Numbers
) -> int:
    """Take differences until a group of similar or of dissimilar ones is complete.

    Parameters
    ----------
    X, index, signs, group : see `kinstream.learners.base.one_modality.Batch`; pairs.
    good : (m,) pairs to take.
    first : where to begin.
    pending : (2, g, d) differences of similar and of dissimilar pairs that wait; changed in place.
    fill : (2,) how many of each; changed in place.

    Returns
    -------
    int
        The row behind the last one taken; never between the two pairs of a triplet.
    """
    for t in range(first, len(index)):
        if good[t]:
            k = 0 if signs[t] > 0 else 1
            x, y, z = X[index[t, 0]], X[index[t, 1]], pending[k, fill[k]]
            for i in range(len(z)):
                z[i] = float(x[i]) - float(y[i])
            fill[k] += 1
        if (group == 1 or t % 2 == 1) and max(fill[0], fill[1]) == pending.shape[1]:
            return t + 1
    return len(index)


@compiled
def _slot(x: Matrix, own: np.uint64, vectors: Matrix, hashes: NDArray[np.uint64], tally: Numbers) -> int:
    """The place of a vector in the buffer; a missing vector is added."""
    used = int(tally[VECTORS])
    found = slot_of(hashes, used, own)
    if found >= 0:
        return found
    for j in range(len(x)):
        vectors[used, j] = x[j]
    hashes[used] = own
    tally[VECTORS] += 1
    return used


@compiled
def gather(
    X: Matrix,
    own: NDArray[np.uint64],
    index: Index,
    signs: Signs,
    good: Flags,
    group: int,
    first: int,
    wanted: int,
    most: int,
    vectors: Matrix,
    hashes: NDArray[np.uint64],
    pairs: Index,
    tally: Numbers,
) -> int:
    """Buffer pairs and their distinct vectors until enough of either are there.

    Parameters
    ----------
    X, index, signs, good, group, first : as for `collect`.
    own : (n,) hashes of X.
    wanted, most : required number of vectors, and of pairs.
    vectors, hashes : (wanted + 2, d) and (wanted + 2,); changed in place.
    pairs : (most + 1, 3) places of two vectors, and the sign; changed in place.
    tally : (2,) vectors and pairs so far; changed in place.

    Returns
    -------
    int
        The row behind the last one taken; never between the two pairs of a triplet.
    """
    for t in range(first, len(index)):
        if good[t]:
            i, j, n = index[t, 0], index[t, 1], tally[PAIRS]
            pairs[n, 0] = _slot(X[i], own[i], vectors, hashes, tally)
            pairs[n, 1] = _slot(X[j], own[j], vectors, hashes, tally)
            pairs[n, 2] = signs[t]
            tally[PAIRS] += 1
        if (group == 1 or t % 2 == 1) and (tally[VECTORS] >= wanted or tally[PAIRS] >= most):
            return t + 1
    return len(index)


@compiled
def lengths(
    X: Matrix, index: Index, usable: Flags, first: int, last: int, found: NDArray[np.float64]
) -> None:
    """Fill in found[first:last]: squared Euclidean distances of pairs, NaN for unusable ones."""
    for t in range(first, last):
        found[t] = np.nan
        if usable[t]:
            x, y, total = X[index[t, 0]], X[index[t, 1]], 0.0
            for i in range(len(x)):
                z = float(x[i]) - float(y[i])
                total += z * z
            found[t] = total
