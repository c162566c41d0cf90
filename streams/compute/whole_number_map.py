"""A map of whole numbers to places, in two arrays: keys and values.

Open addressing with linear probing in a power of two of places; -1 in the second array is an empty place. The
owner of the arrays keeps them at most two thirds full.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.streams.compute.compilation import compiled

#: The value of the second array at an empty place.
EMPTY: Final = -1


@compiled
def size_of(count):  # type: ignore[no-untyped-def]
    """The smallest k with 2^k >= count."""
    size = 0
    while (1 << size) < count:
        size += 1
    return size


@compiled
def mixed(key):  # type: ignore[no-untyped-def]
    """SplitMix64's last step."""
    z = np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def place_of(keys, where, key):  # type: ignore[no-untyped-def]
    """The place of a key, or the place where it would go."""
    mask = len(keys) - 1
    at = np.int64(mixed(key) & np.uint64(mask))
    while where[at] != EMPTY and keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def put_key(keys, where, key, value):  # type: ignore[no-untyped-def]
    at = place_of(keys, where, key)
    keys[at] = key
    where[at] = value


@compiled
def drop_key(keys, where, key):  # type: ignore[no-untyped-def]
    """Remove a key and close the gap, so that no trace is left of it."""
    mask = len(keys) - 1
    hole = place_of(keys, where, key)
    at = hole
    while True:
        at = (at + 1) & mask
        if where[at] == EMPTY:
            break
        home = np.int64(mixed(keys[at]) & np.uint64(mask))
        if ((at - home) & mask) >= ((at - hole) & mask):
            keys[hole], where[hole] = keys[at], where[at]
            hole = at
    where[hole] = EMPTY


@compiled
def fill_map(keys, where, old_keys, old_where):  # type: ignore[no-untyped-def]
    """Copy all entries of a smaller map into an empty one."""
    for at in range(len(old_keys)):
        if old_where[at] != EMPTY:
            put_key(keys, where, old_keys[at], old_where[at])


@compiled
def number_map(keys, where, values):  # type: ignore[no-untyped-def]
    """Map each value to its place in the list."""
    for at in range(len(values)):
        put_key(keys, where, values[at], at)
