"""How many different vectors a stream has shown, counted in a fixed number of bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import set_bit
from kinstream.streams.compute.compiled import compiled

Bits = NDArray[np.uint8]


@compiled
def hashes(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A hash (n,) of each row (n, w): one multiplication for each word, and the finaliser of MurmurHash3."""
    n, w = words.shape
    found = np.empty(n, np.uint64)
    for i in range(n):
        h = np.uint64(w)
        for j in range(w):
            h = (h ^ np.uint64(words[i, j])) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        found[i] = h ^ (h >> np.uint64(33))
    return found


@compiled
def views(
    rows: NDArray[np.uint64],
    index: NDArray[Any],
    counted: NDArray[np.bool_],
    bits: Bits,
    tally: NDArray[np.int64],
    found: NDArray[np.float64],
) -> None:
    """Fill in found (m,): before each constraint, how often a vector has been seen on average; then count it.

    The number of different vectors is -M ln(1 - b / M), of b bits that are set of M (linear counting); once all are set
    it is without bound, and 0 is found.

    Parameters
    ----------
    rows : (n,) hashes of the table.
    index : (m, k) rows of the table in each constraint.
    counted : (m,) whether a constraint counts.
    bits : (M / 8,), changed in place.
    tally : (2,) bits that are set, and vectors seen, each as often as it came; changed in place.
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
    """How often a vector has been seen on average."""
    if ones == 0 or ones >= M:
        return 0.0
    return float(seen / (-M * np.log(1.0 - ones / M)))
