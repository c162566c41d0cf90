"""Compiled loops over keys: computing bits, finding those that may be stale, and comparing keys.

A bit is 1 exactly if `project` is not negative. Products of whole tables are faster and rounded differently: if one of
them is too close to zero for its sign to be certain, `project` decides. So a bit does not depend on the time of its
computation or on the other items in it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.online.lengths import LANES
from kinstream.streams.compute.bits import ones
from kinstream.streams.compute.compilation import compiled

Keys = NDArray[np.uint64]
Levels = NDArray[np.uint16]
Matrix = NDArray[np.float64]
Rows = NDArray[Any]

#: Deadline of a bit that is not monitored.
NEVER: Final = 65_535
#: Last level of a path before all keys must be computed again.
LAST: Final = 65_500


@compiled
def project(p: Matrix, x: Rows, threshold: float, lanes: Matrix) -> float:
    """p.x + threshold in float64, summed in a fixed order.

    Parameters
    ----------
    lanes : (LANES,) for sums side by side, which a processor adds at once.
    """
    d = len(p)
    whole = d - d % LANES
    lanes[:] = 0.0
    for first in range(0, whole, LANES):
        for i in range(LANES):
            lanes[i] += p[first + i] * np.float64(x[first + i])
    total = 0.0
    for i in range(LANES):
        total += lanes[i]
    for i in range(whole, d):
        total += p[i] * np.float64(x[i])
    return total + threshold


@compiled
def sign_bits(
    S: Rows,
    slots: NDArray[np.int64],
    X: Rows,
    norms: Matrix,
    P: Matrix,
    thresholds: Matrix,
    narrow: Rows,
    unsure: Rows,
    unsure_thresholds: Rows,
    huge: float,
    keys: Keys,
) -> None:
    """Write the keys of some slots, given S = X[slots] P'.

    Parameters
    ----------
    S : (m, bits) products, with any rounding; thresholds are added here.
    thresholds : (bits,) float64, and narrow : the same in the type of S.
    unsure, unsure_thresholds : (bits,) in the type of S; S + narrow may be wrong by unsure * norm + unsure_thresholds.
    huge : a value that is not below this in magnitude may have overflowed.
    keys : (slots, words) written.
    """
    bits = S.shape[1]
    lanes = np.empty(LANES)
    # One byte a bit, and eight of these at a time become a byte of the key.
    ones = np.zeros(64 * keys.shape[1], np.uint8)
    eights = ones.view(np.uint64)
    limit = S.dtype.type(huge)
    for row in range(len(slots)):
        slot = slots[row]
        norm = S.dtype.type(norms[slot])
        sure = 0
        for j in range(bits):
            value = S[row, j] + narrow[j]
            size = abs(value)
            ones[j] = value >= 0.0
            sure += (size > unsure[j] * norm + unsure_thresholds[j]) & (size < limit)
        if sure < bits:
            for j in range(bits):
                value = S[row, j] + narrow[j]
                size = abs(value)
                if not (size > unsure[j] * norm + unsure_thresholds[j] and size < limit):
                    ones[j] = project(P[j], X[slot], thresholds[j], lanes) >= 0.0
        for word in range(keys.shape[1]):
            key = np.uint64(0)
            for part in range(8):
                packed = (eights[8 * word + part] * np.uint64(0x0102040810204080)) >> np.uint64(56)
                key |= packed << np.uint64(8 * part)
            keys[slot, word] = key


@compiled
def deadlines(
    S: Rows,
    slots: NDArray[np.int64],
    radii: Matrix,
    thresholds: Matrix,
    unsure: Matrix,
    unsure_thresholds: Matrix,
    path: Matrix,
    per_unit: Matrix,
    due: Levels,
) -> None:
    """Write, for the watched bits of some slots, the path level before which they cannot be stale.

    Parameters
    ----------
    S : (m, w) products of the watched bits, and thresholds, unsure, unsure_thresholds : (w,), see `sign_bits`.
    path, per_unit : (w,) the current path, and levels per unit of length.
    radii : (slots,) a path of length c can move a bit's value by c * radius.
    due : (slots, w) written: the bit has to be checked once the path is at this level.
    """
    for row in range(len(slots)):
        slot = slots[row]
        radius = radii[slot]
        inverse = 1.0 / radius if radius > 0.0 else 0.0
        for c in range(len(per_unit)):
            size = abs(np.float64(S[row, c]) + thresholds[c])
            slack = max(size - (unsure[c] * radius + unsure_thresholds[c]), 0.0)
            due[slot, c] = np.uint16(min((path[c] + slack * inverse) * per_unit[c], NEVER - 1.0))


@compiled
def _level(slack: float, radius: float, path: float, unit: float) -> int:
    if not (slack > 0.0 and radius > 0.0):
        slack, radius = 0.0, 1.0
    return int(min((path + slack / radius) / unit, NEVER - 1.0))


@compiled
def repair(
    slots: NDArray[np.int64],
    due: Levels,
    now: Levels,
    watched: NDArray[np.int64],
    X: Rows,
    norms: Matrix,
    radii: Matrix,
    narrow: Rows,
    P: Matrix,
    thresholds: Matrix,
    unsure: Matrix,
    unsure_thresholds: Matrix,
    path: Matrix,
    unit: Matrix,
    keys: Keys,
    touched: NDArray[np.bool_],
) -> tuple[int, int]:
    """Check the bits that are due, flip those that are stale, and set new deadlines.

    Parameters
    ----------
    slots : items that have deadlines, and any others.
    now : (w,) the level of each watched bit's path, rounded up.
    narrow : (bits, d) P in the type of X, for which unsure, unsure_thresholds : (bits,) are.
    touched : (slots,) set where a bit was flipped.

    Returns
    -------
    tuple of int and int
        Bits checked, and bits flipped.
    """
    looked, flipped = 0, 0
    lanes = np.empty(LANES)
    for slot in slots:
        found = 0
        for c in range(len(now)):
            found += due[slot, c] <= now[c]
        if found == 0:
            continue
        looked += found
        for c in range(len(now)):
            if due[slot, c] > now[c]:
                continue
            j = watched[c]
            value = np.float64(np.dot(narrow[j], X[slot])) + thresholds[j]
            if not abs(value) > unsure[j] * norms[slot] + unsure_thresholds[j] or np.isinf(value):
                value = project(P[j], X[slot], thresholds[j], lanes)
            if _settle(keys, slot, j, value):
                flipped += 1
                touched[slot] = True
            doubt = 4.0 * (unsure[j] * radii[slot] + unsure_thresholds[j])
            due[slot, c] = _level(abs(value) - doubt, radii[slot], path[c], unit[c])
    return looked, flipped


@compiled
def _settle(keys: Keys, slot: int, j: int, value: float) -> bool:
    """Set a bit of a key to that of the value; returns whether it changed."""
    word, mask = j // 64, np.uint64(1) << np.uint64(j % 64)
    if ((keys[slot, word] & mask) != np.uint64(0)) == (value >= 0.0):
        return False
    keys[slot, word] ^= mask
    return True


@compiled
def _apart(keys: Keys, slot: int, query: Keys) -> int:
    """Hamming distance of a key to the query's."""
    found = 0
    for word in range(len(query)):
        found += ones(keys[slot, word] ^ query[word])
    return found


@compiled
def estimates(
    keys: Keys, query: Keys, lengths: NDArray[np.float32], table: Rows, every: int, out: Rows
) -> None:
    """|y|^2 - 2 |y| |y_q| cos(angle) for each item, y mapped: its squared distance without the part common to all.

    Parameters
    ----------
    lengths : (n,) |y|, infinite for a free slot.
    table : (bits + 1,) float32, -2 |y_q| cos(pi h / bits) for the Hamming distance h.
    every : of the slots 0, every, 2 every, ...
    out : float32, one for each of those; written.
    """
    for row in range(len(out)):
        slot = row * every
        out[row] = lengths[slot] * (lengths[slot] + table[_apart(keys, slot, query)])


@compiled
def estimates_up_to(
    keys: Keys,
    query: Keys,
    lengths: NDArray[np.float32],
    table: Rows,
    top: int,
    bound: float,
    places: NDArray[np.int64],
    values: Rows,
) -> int:
    """Write those of the estimates of the first `top` slots that are at most the bound, and their places.

    Parameters
    ----------
    keys, query, lengths, table : see `estimates`.
    places, values : of one length; in ascending order of places.

    Returns
    -------
    int
        Their number, or len(places) + 1 if there are more than fit.
    """
    found = 0
    for slot in range(top):
        value = lengths[slot] * (lengths[slot] + table[_apart(keys, slot, query)])
        if value <= bound:
            if found == len(places):
                return found + 1
            places[found], values[found] = slot, value
            found += 1
    return found
