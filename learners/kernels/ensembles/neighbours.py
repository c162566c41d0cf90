"""The compiled loops behind weights by neighbours: rows enter a window, and metrics are judged on new rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.chains import are_apart, group_of, rename, set_apart
from kinstream.learners.kernels.shared import set_bit, slot_of
from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[Any]
Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

#: Fields of `tally`: slots in use, the next slot, the next class, rows that wait, bits that are set, new rows so far,
#: constraints since the last judgement, pairs of classes that are known to be apart, rows that have come again.
USED: Final = 0
NEXT: Final = 1
CLASS: Final = 2
WAITING: Final = 3
SET: Final = 4
NEW: Final = 5
SINCE: Final = 6
APART: Final = 7
AGAIN: Final = 8
TALLY: Final = 9
#: Class of an item of a catalogue, and of a row whose wanted item is known instead of a class.
ITEM: Final = -2
#: Constraints after which metrics are weighed, even with few new rows or none.
OFTEN: Final = 512
#: New rows that are all judged; of later ones, and of rows that come again, one in four.
ALL: Final = 2_000
#: Neighbours that vote.
K: Final = 5
#: Largest number of items that a query's wanted one is compared with.
AGAINST: Final = 16
#: Share of its own list in the loss of a query. The rest is that of the catalogue, which favours what chose the lists.
OWN: Final = 0.9


@compiled
def _put(
    vector: Matrix,
    own: np.uint64,
    kind: Any,
    window: Matrix,
    hashes: Hashes,
    classes: Numbers,
    tally: Numbers,
) -> None:
    """Put a vector into the window, where the oldest was."""
    place = tally[NEXT]
    for j in range(len(vector)):
        window[place, j] = vector[j]
    hashes[place] = own
    classes[place] = kind
    tally[NEXT] = (place + 1) % len(hashes)
    tally[USED] = max(tally[USED], place + 1)


@compiled
def _is_new(own: np.uint64, seen: NDArray[np.uint8], tally: Numbers) -> bool:
    """Whether a vector was not seen before; marks it as seen."""
    if tally[SET] > 4 * len(seen):
        # Too full to distinguish new from old: forgotten vectors count as new again.
        seen[:] = 0
        tally[SET] = 0
    new = set_bit(seen, own)
    tally[SET] += new
    return new


@compiled
def admit(
    X: Matrix,
    own: Hashes,
    index: NDArray[np.int32],
    good: Flags,
    links: Flags,
    lists: bool,
    again: bool,
    last: Flags,
    first: int,
    every: int,
    window: Matrix,
    hashes: Hashes,
    classes: Numbers,
    seen: NDArray[np.uint8],
    pending: Matrix,
    pending_hashes: Hashes,
    pending_classes: Numbers,
    fresh: NDArray[np.int8],
    wanted: Matrix,
    wanted_hashes: Hashes,
    against: Hashes,
    apart: NDArray[np.uint8],
    tally: Numbers,
) -> int:
    """Take constraints until `every` rows wait, or 512 have come, and an event ends.

    Parameters
    ----------
    X : (n, d) vectors.
    own : (n,) their hashes.
    index : (m, 2) or (m, 3) rows of X.
    good : (m,) constraints to take; the others are skipped.
    links : (m,) whether the first two vectors of a constraint belong together.
    lists : whether a row is a query and the others are items, instead of members of classes.
    again : whether rows that are not new are judged, too.
    last : (m,) whether an event ends with the constraint.
    first : where to begin.
    window, hashes, classes : (w, d) and (w,): the latest vectors; changed in place.
    seen : bits of vectors seen; changed in place.
    pending, pending_hashes, pending_classes : (p, d) and (p,): rows that wait.
    fresh : (p,) 1 for those that are new, else 0; changed in place.
    wanted, wanted_hashes : (p, d) and (p,): of a query the item that it should find.
    against : (p, 16) hashes of items that it preferred that one to; 0 for none.
    apart : bits of pairs of classes that are known to be apart; changed in place.
    tally : (9,) see above.

    Returns
    -------
    int
        The row after the last one taken.
    """
    for t in range(first, len(index)):
        if good[t]:
            tally[SINCE] += 1
            a, p = index[t, 0], index[t, 1]
            kind: Any = np.int64(ITEM)
            if links[t] and not lists:
                at_p, at_a = slot_of(hashes, tally[USED], own[p]), slot_of(hashes, tally[USED], own[a])
                at_n = slot_of(hashes, tally[USED], own[index[t, -1]]) if index.shape[1] == 3 else -1
                ours: Any = classes[at_a] if at_a >= 0 else -1
                theirs: Any = classes[at_n] if at_n >= 0 else -1
                kind = group_of(classes[at_p] if at_p >= 0 else -1, ours, theirs)
                if kind < 0:
                    kind = tally[CLASS]
                    tally[CLASS] += 1
                if theirs >= 0:
                    tally[APART] = set_apart(apart, kind, theirs, tally[APART])
                if ours >= 0 and ours != kind and not are_apart(apart, ours, kind):
                    rename(pending_classes, tally[WAITING], ours, kind)
                    rename(classes, tally[USED], ours, kind)
            new = _is_new(own[a], seen, tally)
            for j in range(1, index.shape[1]):
                other = index[t, j]
                _is_new(own[other], seen, tally)
                if slot_of(hashes, tally[USED], own[other]) < 0:
                    label = kind
                    if not lists and (j == 2 or not links[t]):
                        label = tally[CLASS]
                        tally[CLASS] += 1
                    _put(X[other], own[other], label, window, hashes, classes, tally)
            if not lists and slot_of(hashes, tally[USED], own[a]) < 0:
                label = kind
                if not links[t]:
                    label = tally[CLASS]
                    tally[CLASS] += 1
                _put(X[a], own[a], label, window, hashes, classes, tally)
            if links[t] and (new or again):
                count = NEW if new else AGAIN
                tally[count] += 1
                k = tally[WAITING]
                if k < len(pending) and (tally[count] % 4 == 0 or (new and tally[NEW] <= ALL)):
                    fresh[k] = new
                    for j in range(X.shape[1]):
                        pending[k, j], wanted[k, j] = X[a, j], X[p, j]
                    pending_hashes[k] = own[a]
                    pending_classes[k] = kind
                    wanted_hashes[k] = own[p]
                    against[k] = 0
                    tally[WAITING] += 1
            k = tally[WAITING] - 1
            if lists and k >= 0 and pending_hashes[k] == own[a] and wanted_hashes[k] == own[p]:
                for j in range(AGAINST):
                    if against[k, j] == 0:
                        against[k, j] = own[index[t, -1]]
                        break
        if (tally[WAITING] >= every or tally[SINCE] >= OFTEN) and last[t]:
            return t + 1
    return len(index)


@compiled
def lost(
    apart: Matrix,
    to_wanted: Vector,
    hashes: Hashes,
    classes: Numbers,
    pending_hashes: Hashes,
    pending_classes: Numbers,
    wanted_hashes: Hashes,
    against: Hashes,
    found: Vector,
) -> None:
    """The loss of a metric on each waiting row, in [0, 1]; NaN if the window does not determine it.

    The loss of a row with a class is 1 if the vote of its 5 nearest is for another class; of classes with equal votes
    the one with the nearest row wins. The loss of a query is 9/10 of the share of the items of its own list that come
    before its wanted one although it preferred that one, plus 1/10 of the share of the window's items that do.

    Parameters
    ----------
    apart : (p, w) squared distances to the vectors of the window.
    to_wanted : (p,) squared distances to the wanted items.
    against : (p, 16) hashes of items over which the query preferred its wanted one; 0 for none.
    found : (p,) filled in.
    """
    p, w = apart.shape
    near = np.empty(K, np.int64)
    for i in range(p):
        found[i] = np.nan
        if pending_classes[i] == ITEM:
            before, others = 0, 0
            for j in range(w):
                if classes[j] == ITEM and hashes[j] != wanted_hashes[i]:
                    others += 1
                    # A NaN comes first, because a search would show such an item.
                    if not apart[i, j] >= to_wanted[i]:
                        before += 1
            wrong, compared = 0, 0
            for u in range(AGAINST):
                at = slot_of(hashes, w, against[i, u]) if against[i, u] != 0 else -1
                if at >= 0:
                    compared += 1
                    wrong += 0 if apart[i, at] > to_wanted[i] else 1
            if others >= K and compared > 0:
                found[i] = (1.0 - OWN) * before / others + OWN * wrong / compared
            continue
        known, count = False, 0
        for j in range(w):
            if classes[j] < 0 or hashes[j] == pending_hashes[i]:
                continue
            known = known or classes[j] == pending_classes[i]
            distance = apart[i, j]
            if not distance < np.inf:
                continue
            if count < K:
                place = count
                count += 1
            elif distance < apart[i, near[K - 1]]:
                place = K - 1
            else:
                continue
            while place > 0 and distance < apart[i, near[place - 1]]:
                near[place] = near[place - 1]
                place -= 1
            near[place] = j
        if not known:
            continue
        best, most = -1, 0
        for s in range(count):
            votes = 0
            for u in range(count):
                if classes[near[u]] == classes[near[s]]:
                    votes += 1
            if votes > most:
                best, most = classes[near[s]], votes
        found[i] = 0.0 if best == pending_classes[i] else 1.0
