"""Groups of vectors from similar and dissimilar pairs, such that one contradiction does not merge two groups."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import set_bit
from kinstream.streams.compute.compilation import compiled

Numbers = NDArray[np.int64]
Bits = NDArray[np.uint8]

#: Bytes of the bit set of pairs of groups that are known to be apart.
BYTES: Final = 1 << 13


@compiled
def _key(one: int, other: int) -> np.uint64:
    """A hash of a pair of groups, independent of their order."""
    low, high = np.uint64(min(one, other)), np.uint64(max(one, other))
    mixed = (low + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9) ^ high
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(29))


@compiled
def group_of(target: int, anchor: int, other: int) -> int:
    """The group of a row, from those of its positive, of itself and of its negative.

    -1 means an unknown group, also in the result. A positive in the negative's group is ignored.
    """
    if target >= 0 and target != other:
        return target
    return anchor if anchor != other else -1


@compiled
def set_apart(apart: Bits, one: int, other: int, known: int) -> int:
    """Note that two groups are apart; returns the number of such pairs, `known` before."""
    if known > 2 * len(apart):
        # Too full to distinguish pairs.
        apart[:] = 0
        known = 0
    return known + (1 if set_bit(apart, _key(one, other)) else 0)


@compiled
def are_apart(apart: Bits, one: int, other: int) -> bool:
    """Whether two groups are known to be apart."""
    bit = _key(one, other) % np.uint64(8 * len(apart))
    mask = np.uint8(1 << np.int64(bit & np.uint64(7)))
    return bool(apart[np.int64(bit >> np.uint64(3))] & mask != 0)


@compiled
def rename(groups: Numbers, used: int, old: int, new: int) -> None:
    """Move all members of one group to another."""
    for i in range(used):
        if groups[i] == old:
            groups[i] = new
