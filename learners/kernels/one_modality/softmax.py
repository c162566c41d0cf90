"""The compiled loops of the softmax learner: rows into its memory, and a step of Adam."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.chains import are_apart, group_of, rename, set_apart
from kinstream.learners.kernels.shared import slot_of
from kinstream.streams.compute.compilation import compiled

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
    for j in range(len(vector)):
        memory[place, j] = vector[j]
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
        for j in range(X.shape[1]):
            pending[k, j] = X[a, j]
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
def compare(
    products: Matrix,
    squares: Matrix,
    others: Matrix,
    own: Hashes,
    hashes: Hashes,
    goals: Numbers,
    groups: Numbers,
    gaps: Matrix,
    best: Matrix,
) -> None:
    """Compare rows with what is remembered.

    Parameters
    ----------
    products : (b, s) inner products of mapped rows and vectors in memory.
    squares, others : (b,) and (s,) their squared lengths.
    own, goals : (b,) hashes of the rows, and their groups.
    hashes, groups : (s,) of the memory.
    gaps : (b, s) filled in with the least squared distance of each row less that to each vector; -inf to itself.
    best : (b,) filled in with the largest gap within the row's group; -inf where nothing is to be learned, because the
        group is not there, or nothing else.
    """
    for i in range(len(products)):
        least, near, far = np.inf, np.inf, False
        for j in range(len(hashes)):
            if hashes[j] == own[i]:
                gaps[i, j] = np.inf
                continue
            apart = squares[i] + others[j] - 2 * products[i, j]
            # What is no number stays none.
            apart = apart * 0 if apart < 0 else apart
            gaps[i, j] = apart
            least = apart if apart < least else least
            if groups[j] == goals[i]:
                near = apart if apart < near else near
            else:
                far = True
        for j in range(len(hashes)):
            gaps[i, j] = least - gaps[i, j]
        best[i] = least - near if far else -np.inf


@compiled
def residuals(gaps: Matrix, best: Matrix, goals: Numbers, groups: Numbers, q: Matrix) -> int:
    """Turn exp(gaps) (b, s) in q into the factors s_j of the gradient, 0 for rows that learn nothing.

    Returns
    -------
    int
        How many rows learn.
    """
    learn = 0
    for i in range(len(gaps)):
        if not best[i] > -np.inf:
            q[i] = 0
            continue
        learn += 1
        total, own = 0.0, 0.0
        for j in range(len(groups)):
            total += q[i, j]
            if groups[j] == goals[i]:
                # Over its nearest: the group may be too far away for its share of all to be a number.
                own += np.exp(gaps[i, j] - best[i])
        for j in range(len(groups)):
            q[i, j] /= -total
            if groups[j] == goals[i]:
                q[i, j] += np.exp(gaps[i, j] - best[i]) / own
    return learn


@compiled
def moments(M: Matrix, V: Matrix, G: Matrix) -> None:
    """Adam's running means of the gradient and of its squares, (r, d); changed in place.

    All numbers are of the arrays' type, here and in `adam`, so that several are computed at a time.
    """
    one, two = M.dtype.type(FIRST), M.dtype.type(SECOND)
    rest_one, rest_two = M.dtype.type(1.0 - FIRST), M.dtype.type(1.0 - SECOND)
    for i in range(len(M)):
        m, v, g = M[i], V[i], G[i]
        for j in range(len(g)):
            m[j] = one * m[j] + rest_one * g[j]
            v[j] = two * v[j] + rest_two * g[j] * g[j]


@compiled
def adam(
    W: Matrix, mean: Matrix, M: Matrix, V: Matrix, step: float, k: int, share: float, tiny: float
) -> bool:
    """One step of Adam by its moments, and of the running mean of the iterates; whether it changed an entry.

    Parameters
    ----------
    W, mean : (r, d) iterate and mean; changed in place.
    M, V : (r, d) moments of the gradient, with that of this step.
    step : step size.
    k : number of the step, from 1.
    share : weight of the new iterate in the mean.
    tiny : added to the root of the second moment, above 0.
    """
    size, root = W.dtype.type(step / (1.0 - FIRST**k)), W.dtype.type(1.0 / np.sqrt(1.0 - SECOND**k))
    small, part = W.dtype.type(tiny), W.dtype.type(share)
    moved = 0
    for i in range(len(W)):
        w, a, m, v = W[i], mean[i], M[i], V[i]
        for j in range(len(w)):
            new = w[j] - size * m[j] / (np.sqrt(v[j]) * root + small)
            moved += new != w[j]
            w[j] = new
            a[j] += part * (new - a[j])
    return moved > 0
