"""The compiled loops of the softmax learner: rows into its memory, and a step of Adam."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.chains import are_apart, group_of, rename, set_apart
from kinstream.learners.kernels.shared import slot_of
from kinstream.streams.compute.compiled import compiled

Matrix = NDArray[Any]
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

#: Fields of `tally`.
SLOTS: Final = 0
STAMP: Final = 1
GROUP: Final = 2
PENDING: Final = 3
APART: Final = 4
TALLY: Final = 5

#: Decay of Adam's first and second moment.
FIRST: Final = 0.9
SECOND: Final = 0.999


@compiled
def _put(
    vector: Matrix,
    own: np.uint64,
    group: int,
    per_group: int,
    memory: Matrix,
    hashes: Hashes,
    groups: Numbers,
    stamps: Numbers,
    tally: Numbers,
) -> None:
    """Remember a vector as the newest of its group; the oldest of the group, or else of all, makes room."""
    used, count, oldest, place = tally[SLOTS], 0, -1, -1
    for i in range(used):
        if groups[i] == group:
            count += 1
            if oldest < 0 or stamps[i] < stamps[oldest]:
                oldest = i
    if per_group > 0 and count >= per_group:
        place = oldest
    elif used < len(hashes):
        place = used
        tally[SLOTS] += 1
    else:
        place = 0
        for i in range(used):
            if stamps[i] < stamps[place]:
                place = i
    memory[place] = vector
    hashes[place] = own
    groups[place] = group
    stamps[place] = tally[STAMP]
    tally[STAMP] += 1


@compiled
def admit(
    X: Matrix,
    own: Hashes,
    index: NDArray[np.int32],
    good: NDArray[np.bool_],
    first: int,
    wait: int,
    chains: bool,
    per_group: int,
    memory: Matrix,
    hashes: Hashes,
    groups: Numbers,
    stamps: Numbers,
    pending: Matrix,
    pending_hashes: Hashes,
    goals: Numbers,
    apart: NDArray[np.uint8],
    tally: Numbers,
) -> int:
    """Take triplets until as many rows wait as make a step.

    Parameters
    ----------
    X : (n, d) vectors.
    own : (n,) their hashes.
    index : (m, 3) rows of X.
    good : (m,) triplets to take; the others are passed over.
    first : where to begin.
    wait : rows that make a step.
    chains : whether anchor and positive join one group; otherwise each vector is a group of its own.
    per_group : vectors of a group that are remembered at most, 0 for any number.
    memory, hashes, groups, stamps : (s, d) and (s,): the memory; changed in place.
    pending, pending_hashes, goals : (p, d) and (p,): rows that wait, and the group that each belongs to.
    apart : bits of pairs of groups that are known to be apart; changed in place.
    tally : (5,) slots in use, next stamp, next group, rows that wait, pairs of groups that are known to be apart.

    Returns
    -------
    int
        The row behind the last one taken.
    """
    for t in range(first, len(index)):
        if not good[t]:
            continue
        a, p, n = index[t, 0], index[t, 1], index[t, 2]
        at_p, at_a = slot_of(hashes, tally[SLOTS], own[p]), slot_of(hashes, tally[SLOTS], own[a])
        at_n = slot_of(hashes, tally[SLOTS], own[n])
        other = groups[at_n] if at_n >= 0 else -1
        target = groups[at_p] if at_p >= 0 else -1
        anchor = groups[at_a] if at_a >= 0 else -1
        if chains:
            target = group_of(target, anchor, other)
        if target < 0:
            target = tally[GROUP]
            tally[GROUP] += 1
        if chains and other >= 0:
            tally[APART] = set_apart(apart, target, other, tally[APART])
        if at_p < 0:
            _put(X[p], own[p], target, per_group, memory, hashes, groups, stamps, tally)
        else:
            stamps[at_p] = tally[STAMP]
            tally[STAMP] += 1
        if chains and anchor >= 0 and anchor != target and not are_apart(apart, anchor, target):
            rename(groups, tally[SLOTS], anchor, target)
            rename(goals, tally[PENDING], anchor, target)
        if slot_of(hashes, tally[SLOTS], own[n]) < 0:
            _put(X[n], own[n], tally[GROUP], per_group, memory, hashes, groups, stamps, tally)
            tally[GROUP] += 1
        k = tally[PENDING]
        # The triplets of one list are one row: the query and what was clicked.
        if k > 0 and pending_hashes[k - 1] == own[a] and goals[k - 1] == target:
            continue
        pending[k] = X[a]
        pending_hashes[k] = own[a]
        goals[k] = target
        tally[PENDING] += 1
        if chains:
            place = slot_of(hashes, tally[SLOTS], own[a])
            if place < 0:
                _put(X[a], own[a], target, per_group, memory, hashes, groups, stamps, tally)
            else:
                stamps[place] = tally[STAMP]
                tally[STAMP] += 1
        if tally[PENDING] >= wait:
            return t + 1
    return len(index)


@compiled
def adam(W: Matrix, mean: Matrix, M: Matrix, V: Matrix, G: Matrix, step: float, k: int, share: float) -> bool:
    """One step of Adam, and of the running mean of the iterates; whether all entries are numbers.

    Parameters
    ----------
    W, mean : (r, d) iterate and mean; changed in place.
    M, V : (r, d) moments of the gradient; changed in place.
    G : (r, d) gradient.
    step : step size.
    k : number of the step, from 1.
    share : weight of the new iterate in the mean.
    """
    one, two = 1.0 - FIRST**k, 1.0 - SECOND**k
    largest = 0.0
    for i in range(len(W)):
        for j in range(W.shape[1]):
            V[i, j] = SECOND * V[i, j] + (1.0 - SECOND) * float(G[i, j]) * float(G[i, j])
            largest = max(largest, float(V[i, j]))
    # Entries without a gradient do not move, whatever the unit of the others.
    tiny = 1e-8 * np.sqrt(largest / two)
    changed = False
    for i in range(len(W)):
        for j in range(W.shape[1]):
            M[i, j] = FIRST * M[i, j] + (1.0 - FIRST) * float(G[i, j])
            scale = np.sqrt(float(V[i, j]) / two) + tiny
            if scale > 0.0:
                moved = W[i, j] - step * (float(M[i, j]) / one) / scale
                changed = changed or moved != W[i, j]
                W[i, j] = moved
            mean[i, j] += share * (float(W[i, j]) - float(mean[i, j]))
    return changed
