"""Hashes of vectors, which differ for distinct ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled


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
