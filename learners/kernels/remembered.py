"""The compiled loop that says what was chosen for a query, and remembers what is chosen, list by list."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.weights import times
from kinstream.streams.compute.bits import ones
from kinstream.streams.compute.compilation import compiled

Matrix = NDArray[np.float64]
Numbers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Counters = NDArray[Any]

#: Fields of `tally`: rows in use, and lists that were remembered.
ROWS: Final = 0
CLOCK: Final = 1
TALLY: Final = 2


@compiled
def _apart(left: Keys, right: Keys, limit: int) -> int:
    """In how many bits two rows differ, or a number above the limit."""
    found = 0
    for word in range(len(left)):
        found += ones(left[word] ^ right[word])
        if found > limit:
            break
    return found


@compiled
def _row_of(used: Numbers, tally: Numbers) -> int:
    """The row for a query that is new: a free one, or that which was used least lately."""
    if tally[ROWS] < len(used):
        tally[ROWS] += 1
        return int(tally[ROWS] - 1)
    row = 0
    for i in range(1, len(used)):
        if used[i] < used[row]:
            row = i
    return row


@compiled
def remember(
    own: Keys,
    of: Numbers,
    starts: NDArray[np.int32],
    names: Keys,
    clicked: NDArray[np.bool_],
    acted: Matrix,
    actors: Keys,
    exponent: float,
    rule: Matrix,
    bits: Keys,
    items: Keys,
    clicks: NDArray[np.float32],
    seen: NDArray[np.float32],
    used: Numbers,
    turns: Numbers,
    begun: NDArray[np.int32],
    tally: Numbers,
    counters: Counters,
    added: Numbers,
    said: Matrix,
    knows: NDArray[np.bool_],
    into: Numbers,
    share: Matrix,
) -> None:
    """Write what is known of each list before it, and remember it.

    Parameters
    ----------
    own, of : (b, w) bits of queries, and (k,) which of them each list has; of a query without direction, all 0, nothing
        is known or remembered.
    starts, names, clicked : (k + 1,), (t,) and (t,) as in `kinstream.streams.records.held_out.ShownLists`.
    acted : (t,) what the action on each place weighs: as so many clicks, each by one who looked.
    actors : (k,) hashes; 0 is nobody.
    exponent : place r is examined with probability r^-exponent.
    rule : (4,) looks that a rate is drawn to 0 by, clicked items up to which a list counts in full, the share that a
        query's sums keep with each of its lists, and in how many bits the rows of one query may differ.
    bits, items, clicks, seen, used : (m, w), (m, p), (m, p), (m, p) and (m,) queries, items of each, their sums of
        clicks and of looks, and when the query came last; changed in place, as is all that follows. 0 is no item.
    turns, begun : (m,) lists that a row has had, and (m, p) with which of them an item came into its place.
    tally : (2,) see above.
    counters, added : (2, c) and (1,) of queries with actors, see `kinstream.learners.kernels.weights.times`.
    said : (t,) the rate of each item.
    knows : (k,) whether the query was remembered.
    into : (k, 2) the row that each list was added to, -1 for none, and which of its lists that was.
    share : (k, 2) what a look counts, and a click.
    """
    doubt, most, keep = rule[0], rule[1], rule[2]
    slots = items.shape[1]
    for at in range(len(starts) - 1):
        first, last = starts[at], starts[at + 1]
        query = own[of[at]]
        same, nearest, directed = -1, int(rule[3]) + 1, False
        for word in range(len(query)):
            directed = directed or query[word] != 0
        for row in range(tally[ROWS] if directed else 0):
            apart = _apart(bits[row], query, nearest - 1)
            if apart < nearest:
                same, nearest = row, apart
        knows[at], into[at, 0] = same >= 0, -1
        hits = 0
        for t in range(first, last):
            hits += clicked[t]
            said[t] = 0.0
            if same >= 0:
                for slot in range(slots):
                    if items[same, slot] == names[t]:
                        said[t] = float(clicks[same, slot]) / (doubt + float(seen[same, slot]))
                        break
        if hits == 0 or not directed:
            continue
        if same < 0:
            same = _row_of(used, tally)
            for word in range(len(query)):
                bits[same, word] = query[word]
            for slot in range(slots):
                items[same, slot], clicks[same, slot], seen[same, slot] = 0, 0.0, 0.0
        weight = 1.0
        if actors[at] != 0:
            key = actors[at]
            for word in range(len(query)):
                key = (key ^ bits[same, word]) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(32)
            weight /= float(times(counters, added, key))
        tally[CLOCK] += 1
        used[same] = tally[CLOCK]
        turns[same] += 1
        for slot in range(slots):
            clicks[same, slot] *= keep
            seen[same, slot] *= keep
        into[at, 0], into[at, 1] = same, turns[same]
        share[at, 0], share[at, 1] = weight, weight * min(1.0, most / hits)
        for t in range(first, last):
            place, worst, least = -1, 0, np.inf
            for slot in range(slots):
                if items[same, slot] == names[t]:
                    place = slot
                    break
                rate = clicks[same, slot] / (doubt + seen[same, slot]) if items[same, slot] != 0 else -1.0
                if rate < least:
                    worst, least = slot, rate
            if place < 0 and clicked[t]:
                place = worst
                items[same, place], clicks[same, place], seen[same, place] = names[t], 0.0, 0.0
                begun[same, place] = turns[same]
            if place >= 0:
                act = acted[t] if clicked[t] else 1.0
                seen[same, place] += weight * act * (t - first + 1.0) ** -exponent
                if clicked[t]:
                    clicks[same, place] += share[at, 1] * act
