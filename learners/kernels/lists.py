"""The compiled loops of the adapter: pairs into its memory, and a step of Adam."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.shared import slot_of
from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[Any]
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

#: Fields of `tally`: slots in use, the slot that is filled next, queries that wait, and their links.
SLOTS: Final = 0
NEXT: Final = 1
WAITING: Final = 2
LINKS: Final = 3
TALLY: Final = 4


@compiled
def admit(
    X: Matrix,
    own: Hashes,
    index: NDArray[np.int32],
    signs: NDArray[np.int8],
    weights: NDArray[np.float32],
    good: NDArray[np.bool_],
    first: int,
    most: int,
    memory: Matrix,
    hashes: Hashes,
    pulls: Numbers,
    queries: Matrix,
    query_hashes: Hashes,
    links: Numbers,
    shares: NDArray[np.float64],
    tally: Numbers,
) -> int:
    """Take pairs (query, item) until a step is due before the next one.

    An item is put into the memory if it is not there, and replaces the one that was put in first. The item of a similar
    pair is linked to its query. Pairs of one query that come one after another are one list.

    Parameters
    ----------
    X : (n, d) vectors.
    own : (n,) their hashes.
    index, signs : (m, 2) rows of X, and (m,) 1 similar or -1 dissimilar.
    weights : (m,) of the pairs; without entries for 1.
    good : (m,) pairs to take; the others are passed over.
    first : where to begin.
    most : links of an item that count in full while it is in memory; the n-th one counts most / n.
    memory, hashes, pulls : (s, d) and (s,) items, and how often each was linked; changed in place.
    queries, query_hashes : (b, d) and (b,) queries that wait.
    links : (l, 2) a query that waits and a slot of the memory.
    shares : (l,) weight of each link.
    tally : (4,) see above.

    Returns
    -------
    int
        The row before which a step is due, or the number of rows.
    """
    for t in range(first, len(index)):
        if not good[t]:
            continue
        a, p = index[t, 0], index[t, 1]
        slot = slot_of(hashes, tally[SLOTS], own[p])
        if slot < 0 and tally[SLOTS] == len(hashes):
            # No item that a query waits for is ever replaced.
            for i in range(tally[LINKS]):
                if links[i, 1] == tally[NEXT]:
                    return t
        if signs[t] > 0:
            query = tally[WAITING] - 1
            if query < 0 or query_hashes[query] != own[a]:
                query += 1
            if query >= len(queries) or tally[LINKS] >= len(links):
                return t
        if slot < 0:
            slot = tally[NEXT]
            tally[NEXT] = (slot + 1) % len(hashes)
            tally[SLOTS] = max(tally[SLOTS], slot + 1)
            hashes[slot], pulls[slot] = own[p], 0
            for j in range(X.shape[1]):
                memory[slot, j] = X[p, j]
        if signs[t] < 0:
            continue
        if query == tally[WAITING]:
            query_hashes[query] = own[a]
            for j in range(X.shape[1]):
                queries[query, j] = X[a, j]
            tally[WAITING] += 1
        known = False
        for i in range(tally[LINKS] - 1, -1, -1):
            if links[i, 0] != query:
                break
            known = known or links[i, 1] == slot
        if known:
            continue
        pulls[slot] += 1
        i = tally[LINKS]
        links[i, 0], links[i, 1] = query, slot
        shares[i] = min(1.0, most / pulls[slot]) * (weights[t] if len(weights) > 0 else 1.0)
        tally[LINKS] += 1
    return len(index)


@compiled
def adam(
    W: Matrix,
    mean: Matrix,
    M: Matrix,
    V: Matrix,
    G: Matrix,
    factor: float,
    pull: float,
    first: float,
    second: float,
    size: float,
    root: float,
    tiny: float,
    share: float,
) -> None:
    """One step of Adam, and of the running mean of the iterates, all in the type of the entries.

    Parameters
    ----------
    W, mean : (n,) iterate and mean; changed in place.
    M, V : (n,) moments of the gradient; changed in place.
    G : (n,) gradient, which is multiplied by `factor`; `pull` W is added to it.
    first, second : decay of the moments.
    size : of the step, over 1 - first^k.
    root : 1 / sqrt(1 - second^k).
    tiny : what the root of the second moment is raised by.
    share : weight of the new iterate in the mean.
    """
    one = W.dtype.type(1.0)
    for i in range(len(W)):
        g = factor * G[i] + pull * W[i]
        m = first * M[i] + (one - first) * g
        v = second * V[i] + (one - second) * g * g
        w = W[i] - size * m / (root * np.sqrt(v) + tiny)
        M[i], V[i], W[i] = m, v, w
        mean[i] += share * (w - mean[i])
