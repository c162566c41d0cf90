"""The walk over a block's samples: its picks from the reservoirs, and its own place in them.

A place is (class slot) * rows + (row in the reservoir); rows 0 .. held - 1 of a reservoir hold a sample. A reference is
the row of a sample in the block, or ~place for the sample of a place before the block.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

#: Kinds of picks: an earlier sample of any class, of the sample's own class, of any other class; or the anchor of a
#: triplet from a class drawn uniformly, and another sample of that class. After an anchor, `OTHERS` excludes the
#: anchor's class.
ANY, OWN, OTHERS, ANCHOR, MATE = range(5)
#: Results of a pick, and reasons for none: its class has no earlier sample, or none is left; no other class holds a
#: sample; no class holds one (for an anchor: two).
FOUND, FIRST_OF_CLASS, CLASS_ERASED, ONE_CLASS, NO_CLASS = range(5)
#: Entries of `Classes.sums`.
USED, TOTAL, ANCHORS, OLDEST, NEWEST = range(5)

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFF_FFFF)

Numbers = NDArray[np.int64]
Places = NDArray[np.int32]


class Classes(NamedTuple):
    """Arrays over C class slots, C a power of two.

    Parameters
    ----------
    seen : samples since the class was last added, including erased ones.
    held : rows of its reservoir that hold a sample.
    weight : number of seen samples that are not erased: exact while all are held, estimated from the share of held rows
        after that.
    last : number of its newest sample.
    older, newer : neighbours in the order of `last`; -1 at the ends.
    weights, anchors : Fenwick trees (C + 1,) of the weights, and of ones for classes that hold two samples.
    sums : slots in use, total of the weights, classes that hold two samples, the oldest and the newest class.
    """

    seen: Numbers
    held: Numbers
    weight: Numbers
    last: Numbers
    older: Places
    newer: Places
    weights: Numbers
    anchors: Numbers
    sums: Numbers


@compiled
def build(tree: Numbers, values: Numbers) -> None:
    """Make the Fenwick tree (C + 1,) of C values."""
    tree[0] = 0
    for i in range(len(values)):
        tree[i + 1] = values[i]
    for i in range(1, len(tree)):
        above = i + (i & -i)
        if above < len(tree):
            tree[above] += tree[i]


@compiled
def _add(tree: Numbers, slot: int, more: int) -> None:
    i = slot + 1
    while i < len(tree):
        tree[i] += more
        i += i & -i


@compiled
def _before(tree: Numbers, slot: int) -> int:
    """Sum over the slots below this one."""
    total, i = 0, slot
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@compiled
def _find(tree: Numbers, at: int) -> int:
    """The slot whose share of the sum covers `at`."""
    slot, step = 0, len(tree) - 1
    while step > 0:
        if slot + step < len(tree) and tree[slot + step] <= at:
            slot += step
            at -= tree[slot]
        step >>= 1
    return slot


@compiled
def _below(draw: Any, count: int) -> Any:
    """`draws.below`: the upper 64 bits of the product."""
    high, low = draw >> _HALF, draw & _LOW
    many, few = np.uint64(count) >> _HALF, np.uint64(count) & _LOW
    middle = high * few + (low * few >> _HALF)
    return np.int64(high * many + (middle >> _HALF) + ((low * many + (middle & _LOW)) >> _HALF))


@compiled
def _unlink(classes: Classes, slot: int) -> None:
    older, newer = classes.older[slot], classes.newer[slot]
    if older >= 0:
        classes.newer[older] = newer
    else:
        classes.sums[OLDEST] = newer
    if newer >= 0:
        classes.older[newer] = older
    else:
        classes.sums[NEWEST] = older


@compiled
def _link(classes: Classes, slot: int) -> None:
    """Make the class the newest."""
    before = classes.sums[NEWEST]
    classes.older[slot], classes.newer[slot] = before, -1
    if before >= 0:
        classes.newer[before] = slot
    else:
        classes.sums[OLDEST] = slot
    classes.sums[NEWEST] = slot


@compiled
def weigh(classes: Classes, slot: int, rows: int, held: int) -> None:
    """Set the number of rows of a class, and the values that depend on it and on `seen`."""
    seen = classes.seen[slot]
    weight = seen * held // max(1, min(seen, rows))
    change = weight - classes.weight[slot]
    if change != 0:
        _add(classes.weights, slot, change)
        classes.sums[TOTAL] += change
        classes.weight[slot] = weight
    change = int(held >= 2) - int(classes.held[slot] >= 2)
    if change != 0:
        _add(classes.anchors, slot, change)
        classes.sums[ANCHORS] += change
    classes.held[slot] = held


@compiled
def walk(
    local: Places,
    slots: Places,
    draws: NDArray[np.uint64],
    wants: NDArray[np.int8],
    rows: int,
    most: int,
    first: int,
    classes: Classes,
    owner: Places,
    fresh: Places,
    references: Numbers,
    same: NDArray[np.bool_],
    fates: NDArray[np.int8],
    touched: Numbers,
    forgotten: Places,
) -> tuple[int, int]:
    """Draw the picks of each sample, and then enter it into the reservoir of its class.

    Parameters
    ----------
    local : (n,) class of each sample, as a number in the block.
    slots : (u,) slot of each of these classes, -1 for one that is not remembered; changed.
    draws : (n, >= 1 + 2 p): the place of the sample, then two draws for each pick.
    wants : (n, p) picks.
    rows, most : rows of a reservoir, and number of classes.
    first : number of the first sample.
    owner : (C,) scratch of -1.
    fresh : (C * rows,) scratch of -1; afterwards the row of the block that each place received last.
    references, same, fates : (n, p) results: the pick, whether it is of the sample's class, or why there is none.
    touched : (n,) places that received a row of the block.
    forgotten : (n,) slots whose class was forgotten.

    Returns
    -------
    The number of touched places, and of forgotten classes.
    """
    seen, held, weight, sums = classes.seen, classes.held, classes.weight, classes.sums
    for number in range(len(slots)):
        if slots[number] >= 0:
            owner[slots[number]] = number
    places = lost = 0
    for row in range(len(local)):
        own = int(slots[local[row]])
        of, mate, stuck = own, -1, False
        for pick in range(wants.shape[1]):
            want = wants[row, pick]
            fate, slot, at = FOUND, -1, -1
            one, two = draws[row, 1 + 2 * pick], draws[row, 2 + 2 * pick]
            if want == ANCHOR:
                of, stuck = -1, sums[ANCHORS] == 0
            if stuck:
                fate = NO_CLASS
            elif want == ANY:
                if sums[TOTAL] == 0:
                    fate = NO_CLASS
                else:
                    slot = _find(classes.weights, _below(one, sums[TOTAL]))
            elif want == OTHERS:
                mine = 0 if of < 0 else weight[of]
                if sums[TOTAL] == mine:
                    fate = ONE_CLASS
                else:
                    share = _below(one, sums[TOTAL] - mine)
                    if mine > 0 and share >= _before(classes.weights, of):
                        share += mine
                    slot = _find(classes.weights, share)
            elif want == OWN:
                if own < 0:
                    fate = FIRST_OF_CLASS
                elif held[own] == 0:
                    fate = CLASS_ERASED
                else:
                    slot = own
            elif want == ANCHOR:
                slot = _find(classes.anchors, _below(one, sums[ANCHORS]))
                of = slot
            else:
                slot = of
                at = _below(two, held[slot] - 1)
                at += at >= mate
            if fate == FOUND:
                if at < 0:
                    at = _below(two, held[slot])
                if want == ANCHOR:
                    mate = at
                place = slot * rows + at
                references[row, pick] = fresh[place] if fresh[place] >= 0 else ~place
                same[row, pick] = slot == own
            fates[row, pick] = fate
        # The sample is an earlier one from here on.
        if own < 0:
            if sums[USED] < most:
                own = sums[USED]
                sums[USED] += 1
            else:
                own = sums[OLDEST]
                _unlink(classes, own)
                seen[own] = 0
                weigh(classes, own, rows, 0)
                if owner[own] >= 0:
                    slots[owner[own]] = -1
                forgotten[lost] = own
                lost += 1
            slots[local[row]] = own
            owner[own] = local[row]
        else:
            _unlink(classes, own)
        _link(classes, own)
        classes.last[own] = first + row
        seen[own] += 1
        filled = held[own]
        # Algorithm R. A place freed by an erasure goes to the sample that draws it.
        at = filled if seen[own] <= rows else _below(draws[row, 0], seen[own])
        if at < rows:
            at = min(at, filled)
            filled += at == filled
            place = own * rows + at
            if fresh[place] < 0:
                touched[places] = place
                places += 1
            fresh[place] = row
        weigh(classes, own, rows, filled)
    for number in range(len(slots)):
        if slots[number] >= 0:
            owner[slots[number]] = -1
    return places, lost
