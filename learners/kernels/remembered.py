"""The compiled loop that says what was chosen for queries that are near, and remembers what is chosen, list by list."""

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
    table: Matrix,
    bits: Keys,
    items: Keys,
    clicks: NDArray[np.float32],
    seen: NDArray[np.float32],
    asked: NDArray[np.float32],
    used: Numbers,
    tally: Numbers,
    counters: Counters,
    added: Numbers,
    said: Matrix,
    knows: NDArray[np.bool_],
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
    rule : (5,) looks that a rate is drawn to 0 by, clicked items up to which a list counts in full, the share that a
        query's sums keep with each of its lists, the lists of near queries from which a query is known, and how many
        of each count at most.
    table : (h + 1,) what a query counts by the bits in which it differs; those that differ in more do not count.
    bits, items, clicks, seen, asked, used : (m, w), (m, p), (m, p), (m, p), (m,) and (m,) queries, items of each, their
        sums of clicks and of looks, the lists of the query, and when it came last; changed in place, as is all that
        follows. 0 is no item.
    tally : (2,) see above.
    counters, added : (2, c) and (1,) of queries with actors, see `kinstream.learners.kernels.weights.times`.
    said : (t,) the rate of each item.
    knows : (k,) whether enough is known of the query.
    """
    doubt, most, keep, enough, counted = rule
    limit, slots = len(table) - 1, items.shape[1]
    rows, near = np.empty(len(used), np.int64), np.empty(len(used))
    for at in range(len(starts) - 1):
        first, last = starts[at], starts[at + 1]
        query = own[of[at]]
        found, same, lists, directed = 0, -1, 0.0, False
        for word in range(len(query)):
            directed = directed or query[word] != 0
        for row in range(tally[ROWS] if directed else 0):
            apart = _apart(bits[row], query, limit)
            if apart <= limit:
                rows[found], near[found] = row, table[apart]
                lists += near[found] * min(float(asked[row]), counted)
                found += 1
                if apart == 0:
                    same = row
        knows[at] = lists >= enough
        hits = 0
        for t in range(first, last):
            hits += clicked[t]
            chosen, looks = 0.0, 0.0
            for j in range(found):
                row = rows[j]
                for slot in range(slots):
                    if items[row, slot] == names[t]:
                        chosen += near[j] * clicks[row, slot]
                        looks += near[j] * seen[row, slot]
                        break
            said[t] = chosen / (doubt + looks)
        if hits == 0 or not directed:
            continue
        weight = 1.0
        if actors[at] != 0:
            key = actors[at]
            for word in range(len(query)):
                key = (key ^ query[word]) * np.uint64(0x9E3779B97F4A7C15)
                key ^= key >> np.uint64(32)
            weight /= float(times(counters, added, key))
        if same < 0:
            same = _row_of(used, tally)
            asked[same] = 0.0
            for word in range(len(query)):
                bits[same, word] = query[word]
            for slot in range(slots):
                items[same, slot], clicks[same, slot], seen[same, slot] = 0, 0.0, 0.0
        tally[CLOCK] += 1
        used[same] = tally[CLOCK]
        asked[same] = keep * asked[same] + weight
        for slot in range(slots):
            clicks[same, slot] *= keep
            seen[same, slot] *= keep
        share = weight * min(1.0, most / hits)
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
            if place >= 0:
                act = acted[t] if clicked[t] else 1.0
                seen[same, place] += weight * act * (t - first + 1.0) ** -exponent
                if clicked[t]:
                    clicks[same, place] += share * act
