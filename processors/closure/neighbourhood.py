"""The neighbours of two components, and their members by number.

The sums over the edges of large components are cached block by block; the cache never affects results.
"""

from __future__ import annotations

import numpy as np

from kinstream.processors.closure.arrays import (
    ASKED,
    BLOCK_BITS,
    DEGREE,
    EDGES,
    HUB,
    HUBS,
    LIVE,
    MEMBERS,
    READ,
    Around,
)
from kinstream.processors.closure.components import pair_key
from kinstream.streams.compute.compilation import compiled
from kinstream.streams.compute.whole_number_map import place_of


@compiled
def members_of(g, c):  # type: ignore[no-untyped-def]
    """Members of a component that takes part in derivation."""
    return np.int64(g.components[c, LIVE]) if g.components[c, MEMBERS] >= 0 else np.int64(0)


@compiled
def _hub(g, c):  # type: ignore[no-untyped-def]
    """The place of the sums of a component's blocks; -1 if it has few edges."""
    if g.components[c, DEGREE] < HUB:
        return -1
    g.numbers[ASKED] += 1
    used = g.numbers[HUBS]
    found = -1
    for hub in range(used):
        if g.hubs[hub, 0] == c:
            found = hub
    if found < 0 and used < len(g.hubs):
        found = used
        g.numbers[HUBS] += 1
        g.hubs[found, 0] = -1
    if found < 0:
        # The least recently used one.
        found = 0
        for hub in range(used):
            if g.hubs[hub, 1] < g.hubs[found, 1]:
                found = hub
    if g.hubs[found, 0] != c:
        g.hubs[found, 0] = c
        g.hub_stale[found] = True
    g.hubs[found, 1] = g.numbers[ASKED]
    return found


@compiled
def blocks_of(g, c):  # type: ignore[no-untyped-def]
    return (g.components[c, DEGREE] + (1 << BLOCK_BITS) - 1) >> BLOCK_BITS


@compiled
def _running(g, c, shared):  # type: ignore[no-untyped-def]
    """Members, and ordered pairs of members, before each block of edges and after the last, without shared places."""
    blocks = blocks_of(g, c)
    counts, pairs = np.zeros(blocks + 1, np.int64), np.zeros(blocks + 1, np.int64)
    hub = _hub(g, c)
    for block in range(blocks):
        if hub >= 0 and not g.hub_stale[hub, block]:
            counts[block + 1], pairs[block + 1] = g.hub_sums[hub, block, 0], g.hub_sums[hub, block, 1]
            continue
        first = block << BLOCK_BITS
        last = min(first + (1 << BLOCK_BITS), g.components[c, DEGREE])
        g.numbers[READ] += last - first
        for place in range(first, last):
            members = members_of(g, g.pool[g.components[c, EDGES] + 2 * place])
            counts[block + 1] += members
            pairs[block + 1] += members * (members - 1)
        if hub >= 0:
            g.hub_sums[hub, block, 0], g.hub_sums[hub, block, 1] = counts[block + 1], pairs[block + 1]
            g.hub_stale[hub, block] = False
    for place in shared:
        members = members_of(g, g.pool[g.components[c, EDGES] + 2 * place])
        counts[(place >> BLOCK_BITS) + 1] -= members
        pairs[(place >> BLOCK_BITS) + 1] -= members * (members - 1)
    for block in range(blocks):
        counts[block + 1] += counts[block]
        pairs[block + 1] += pairs[block]
    return counts, pairs


@compiled
def _shared(g, p, q):  # type: ignore[no-untyped-def]
    """Places in the edges of p of components that are also next to q, ascending; only the fewer edges of the two are
    read."""
    a, b = g.components[p, DEGREE], g.components[q, DEGREE]
    fewer, other = (p, q) if a <= b else (q, p)
    found = np.empty(min(a, b), np.int32)
    m = 0
    g.numbers[READ] += min(a, b)
    for place in range(min(a, b)):
        c = g.pool[g.components[fewer, EDGES] + 2 * place]
        there = g.where[place_of(g.keys, g.where, pair_key(other, c))]
        if there >= 0:
            found[m] = place if fewer == p else there
            m += 1
    return np.sort(found[:m])


@compiled
def surroundings(g, p, q):  # type: ignore[no-untyped-def]
    """The neighbours of two components."""
    p_shared = _shared(g, p, q)
    q_shared = np.empty(len(p_shared), np.int32)
    both = np.empty(len(p_shared), np.int32)
    both_counts = np.zeros(len(p_shared) + 1, np.int64)
    both_pairs = np.int64(0)
    for n in range(len(p_shared)):
        c = g.pool[g.components[p, EDGES] + 2 * p_shared[n]]
        both[n] = c
        q_shared[n] = g.where[place_of(g.keys, g.where, pair_key(q, c))]
        members = members_of(g, c)
        both_counts[n + 1] = both_counts[n] + members
        both_pairs += members * (members - 1)
    q_shared = np.sort(q_shared)
    p_counts, p_pairs = _running(g, p, p_shared)
    q_counts, q_pairs = _running(g, q, q_shared)
    ends, inner = np.empty(3, np.int64), np.empty(3, np.int64)
    ends[0], inner[0] = p_counts[-1], p_pairs[-1]
    ends[1], inner[1] = ends[0] + q_counts[-1], inner[0] + q_pairs[-1]
    ends[2], inner[2] = ends[1] + both_counts[-1], inner[1] + both_pairs
    return Around(ends, inner, p_counts, q_counts, p_pairs, q_pairs, p_shared, q_shared, both, both_counts)


@compiled
def no_surroundings():  # type: ignore[no-untyped-def]
    none, places = np.zeros(1, np.int64), np.empty(0, np.int32)
    zeros = np.zeros(3, np.int64)
    return Around(zeros, zeros, none, none, none, none, places, places, places, none)


@compiled
def member_at(g, c, place):  # type: ignore[no-untyped-def]
    return g.pool[g.components[c, MEMBERS] + place]


@compiled
def _last_not_above(sums, value):  # type: ignore[no-untyped-def]
    """The largest n with sums[n] <= value < sums[n + 1]."""
    low, high = 0, len(sums) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if sums[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@compiled
def two_members(g, c, number):  # type: ignore[no-untyped-def]
    """Two different members of a component, by a number below n (n - 1)."""
    less = members_of(g, c) - 1
    first, second = number // less, number % less
    return member_at(g, c, first), member_at(g, c, second + (second >= first))


@compiled
def edge_at(g, c, running, shared, inner, number):  # type: ignore[no-untyped-def]
    """The component next to c in whose part of the running sum a number lies, and the number within that part.

    Parameters
    ----------
    running, shared : of c in `Around`.
    inner : whether ordered pairs of members are numbered instead of members.
    """
    block = _last_not_above(running, number)
    number -= running[block]
    first = block << BLOCK_BITS
    out = np.searchsorted(shared, first)
    place = first
    while True:
        g.numbers[READ] += 1
        if out < len(shared) and shared[out] == place:
            out += 1
        else:
            c_there = g.pool[g.components[c, EDGES] + 2 * place]
            members = members_of(g, c_there)
            size = members * (members - 1) if inner else members
            if number < size:
                return c_there, number
            number -= size
        place += 1


@compiled
def neighbour_member(g, p, q, around, number):  # type: ignore[no-untyped-def]
    """A member of the neighbours, by its number."""
    if number < around.ends[0]:
        c, place = edge_at(g, p, around.p_counts, around.p_shared, False, number)
        return member_at(g, c, place)
    if number < around.ends[1]:
        number -= around.ends[0]
        c, place = edge_at(g, q, around.q_counts, around.q_shared, False, number)
        return member_at(g, c, place)
    number -= around.ends[1]
    n = _last_not_above(around.both_counts, number)
    return member_at(g, around.both[n], number - around.both_counts[n])
