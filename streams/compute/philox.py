"""Philox, a counter-based generator, and distinct numbers that are drawn with it, in compiled loops.

numpy has the same generator for arrays; this one gives the four numbers at one counter, inside a loop.

References
----------
Floyd, in Bentley: Programming pearls. Communications of the ACM 30, 1987 (samples without replacement).
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011 (Philox).
"""

from __future__ import annotations

import numpy as np

from kinstream.streams.compute.compilation import compiled
from kinstream.streams.compute.whole_number_map import EMPTY, place_of, size_of


@compiled
def upper_half(a, b):  # type: ignore[no-untyped-def]
    """The upper half of a product of two uint64."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    return a1 * b1 + (middle >> half) + (((middle & low) + a0 * b1) >> half)


@compiled
def philox(key0, key1, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """Philox4x64 with ten rounds: four uint64 for a counter of four."""
    m0, m1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
    w0, w1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    k0, k1 = np.uint64(key0), np.uint64(key1)
    for _ in range(10):
        h0, l0, h1, l1 = upper_half(m0, c0), m0 * c0, upper_half(m1, c2), m1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 += w0
        k1 += w1
    return c0, c1, c2, c3


@compiled
def sample(total, count, key0, key1, row, part, purpose):  # type: ignore[no-untyped-def]
    """`count` distinct numbers below `total`, each set equally likely; all of them in order if count is total.

    Floyd's algorithm. The draws are those of the key at the counters (., purpose, part, row).
    """
    found = np.empty(count, np.int64)
    if count == total:
        for n in range(count):
            found[n] = n
        return found
    places = 1 << size_of(2 * count)
    keys = np.empty(places, np.int64)
    where = np.full(places, EMPTY, np.int8)
    words = (np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0))
    for n in range(count):
        if n & 3 == 0:
            words = philox(key0, key1, n >> 2, purpose, part, row)
        word = words[0] if n & 3 == 0 else words[1] if n & 3 == 1 else words[2] if n & 3 == 2 else words[3]
        last = total - count + n
        drawn = np.int64(upper_half(word, np.uint64(last + 1)))
        at = place_of(keys, where, drawn)
        if where[at] != EMPTY:
            drawn = last
            at = place_of(keys, where, drawn)
        keys[at], where[at] = drawn, 0
        found[n] = drawn
    return found
