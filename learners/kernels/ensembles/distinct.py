"""Counts the distinct vectors of a stream in a fixed number of bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import set_bit
from kinstream.streams.compute.compiled import compiled

Bits = NDArray[np.uint8]


@compiled
def hashes(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A hash (n,) of each row (n, w): one multiplication for each word, and the finaliser of MurmurHash3.

    Each multiplication waits for the one before, so four rows are hashed side by side.
    """
    n, w = words.shape
    found = np.full(n, np.uint64(w))
    whole = n - n % 4
    for i in range(0, whole, 4):
        a = b = c = d = np.uint64(w)
        for j in range(w):
            a, b = _mixed(a, words[i, j]), _mixed(b, words[i + 1, j])
            c, d = _mixed(c, words[i + 2, j]), _mixed(d, words[i + 3, j])
        found[i], found[i + 1], found[i + 2], found[i + 3] = a, b, c, d
    for i in range(whole, n):
        for j in range(w):
            found[i] = _mixed(found[i], words[i, j])
    for i in range(n):
        h = found[i]
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        found[i] = h ^ (h >> np.uint64(33))
    return found


@compiled
def _mixed(h: np.uint64, word: np.uint32) -> np.uint64:
    h = (h ^ np.uint64(word)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@compiled
def views(
    rows: NDArray[np.uint64],
    index: NDArray[Any],
    counted: NDArray[np.bool_],
    bits: Bits,
    tally: NDArray[np.int64],
    found: NDArray[np.float64],
) -> None:
    """Fill in found (m,): before each constraint, the average number of views of a vector; then count the constraint.

    The number of distinct vectors is -M ln(1 - b / M), with b of M bits set (linear counting); once all are set it is
    unbounded, and the result is 0.

    Parameters
    ----------
    rows : (n,) hashes of the table.
    index : (m, k) rows of the table in each constraint.
    counted : (m,) whether a constraint counts.
    bits : (M / 8,), changed in place.
    tally : (2,) number of set bits, and of vectors seen, including repeats; changed in place.
    """
    M = 8 * len(bits)
    for t in range(len(index)):
        found[t] = mean_views(M, tally[0], tally[1])
        if not counted[t]:
            continue
        for j in range(index.shape[1]):
            tally[0] += set_bit(bits, rows[index[t, j]])
        tally[1] += index.shape[1]


@compiled
def mean_views(M: int, ones: int, seen: int) -> float:
    """The average number of views of a vector."""
    if ones == 0 or ones >= M:
        return 0.0
    return float(seen / (-M * np.log(1.0 - ones / M)))
