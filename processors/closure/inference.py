"""The new pairs and triplets of a relation, numbered, and drawn by number."""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.processors.closure.arrays import (
    DERIVED,
    DISSIMILAR,
    DONE,
    MEMBERS,
    NO_HUBS,
    NO_PAIRS,
    NO_TRIPLETS,
    OVER_CAP,
    PAIRS,
    PAIRS_WITHHELD,
    ROOM,
    SEED,
    SEEDS,
    SEEDS_WITHHELD,
    SIMILAR,
    TRIPLETS,
    TRIPLETS_WITHHELD,
)
from kinstream.processors.closure.neighbourhood import (
    blocks_of,
    edge_at,
    member_at,
    members_of,
    neighbour_member,
    no_surroundings,
    surroundings,
    two_members,
)
from kinstream.streams.compute.compilation import compiled
from kinstream.streams.compute.philox import philox, sample, upper_half

#: Triplets of a relation are not numbered beyond this; counts saturate there.
_MOST: Final = 2**62


@compiled
def _share(pairs, triplets, left, key0, key1, row, part):  # type: ignore[no-untyped-def]
    """The number of pairs among `left` draws from the pairs and triplets together."""
    found = 0
    for n in range(left):
        word = philox(key0, key1, n, 2, part, row)[0]
        if np.int64(upper_half(word, np.uint64(pairs - found + triplets - n + found))) < pairs - found:
            found += 1
    return found


@compiled
def _pair(g, p, q, similar, around, number):  # type: ignore[no-untyped-def]
    """A pair by its number: q with the neighbours of p only, p with the neighbours of q only, then p with q."""
    m, n = members_of(g, p), members_of(g, q)
    ends = around.ends
    if number < n * ends[0]:
        return member_at(g, q, number % n), neighbour_member(g, p, q, around, number // n), DISSIMILAR
    number -= n * ends[0]
    there = m * (ends[1] - ends[0])
    if number < there:
        other = neighbour_member(g, p, q, around, ends[0] + number // m)
        return member_at(g, p, number % m), other, DISSIMILAR
    number -= there
    rule = SIMILAR if similar else DISSIMILAR
    return member_at(g, p, number // n), member_at(g, q, number % n), rule


@compiled
def _triplet_ends(g, p, q, similar, around):  # type: ignore[no-untyped-def]
    """Triplets by kind, as running sums: (4,).

    Of a dissimilar edge: two of p and one of q, two of q and one of p. Of a union: one of each and a neighbour; two
    of p and one next to q only; two of q and one next to p only; two of a neighbour and one of q or p.
    """
    m, n = members_of(g, p), members_of(g, q)
    ends = np.zeros(4, np.int64)
    if not similar:
        ends[0] = m * (m - 1) * n
        ends[1:] = ends[0] + n * (n - 1) * m
        return ends
    ends[0] = 2 * m * n * around.ends[2]
    ends[1] = ends[0] + m * (m - 1) * (around.ends[1] - around.ends[0])
    ends[2] = ends[1] + n * (n - 1) * around.ends[0]
    ends[3] = ends[2] + n * around.inner[0] + m * (around.inner[1] - around.inner[0])
    return ends


@compiled
def _triplet(g, p, q, similar, around, ends, number):  # type: ignore[no-untyped-def]
    """A triplet (anchor, positive, negative) by its number."""
    m, n = members_of(g, p), members_of(g, q)
    if not similar:
        if number < ends[0]:
            anchor, positive = two_members(g, p, number // n)
            return anchor, positive, member_at(g, q, number % n)
        number -= ends[0]
        anchor, positive = two_members(g, q, number // m)
        return anchor, positive, member_at(g, p, number % m)
    if number < ends[0]:
        negative = neighbour_member(g, p, q, around, number // (2 * m * n))
        number %= 2 * m * n
        one, other = member_at(g, p, (number >> 1) // n), member_at(g, q, (number >> 1) % n)
        return (one, other, negative) if number & 1 == 0 else (other, one, negative)
    if number < ends[1]:
        number -= ends[0]
        anchor, positive = two_members(g, p, number % (m * (m - 1)))
        place = around.ends[0] + number // (m * (m - 1))
        return anchor, positive, neighbour_member(g, p, q, around, place)
    if number < ends[2]:
        number -= ends[1]
        anchor, positive = two_members(g, q, number % (n * (n - 1)))
        return anchor, positive, neighbour_member(g, p, q, around, number // (n * (n - 1)))
    number -= ends[2]
    if number < n * around.inner[0]:
        c, two = edge_at(g, p, around.p_pairs, around.p_shared, True, number // n)
        anchor, positive = two_members(g, c, two)
        return anchor, positive, member_at(g, q, number % n)
    number -= n * around.inner[0]
    c, two = edge_at(g, q, around.q_pairs, around.q_shared, True, number // m)
    anchor, positive = two_members(g, c, two)
    return anchor, positive, member_at(g, p, number % m)


@compiled
def derive(g, out, options, key0, key1, row, part, i, j, similar, p, q):  # type: ignore[no-untyped-def]
    """Emit the seed and its consequences, before the graph is changed. Returns DONE, or what has no room."""
    seed_live = not g.gone[i] and not g.gone[j]
    numbers = g.numbers
    m, n = members_of(g, p), members_of(g, q)
    limit = options.max_component
    over = g.components[p, MEMBERS] < 0 or g.components[q, MEMBERS] < 0
    over = over or (similar and limit > 0 and m + n > limit)
    around = no_surroundings()
    pairs = triplets = np.int64(0)
    ends = np.zeros(4, np.int64)
    if not over:
        if similar:
            most_blocks = max(blocks_of(g, p), blocks_of(g, q))
            if most_blocks > g.hub_stale.shape[1]:
                numbers[ROOM] = most_blocks
                return NO_HUBS
            around = surroundings(g, p, q)
        if options.pairs:
            pairs = n * around.ends[0] + m * (around.ends[1] - around.ends[0]) + m * n
            # The seed is one of them; its number is never drawn, because the last takes its place.
            if seed_live:
                pairs -= 1
        if options.triplets:
            # Without a limit to components the number of triplets can leave 64 bits.
            size = np.float64(m + n)
            most = size * size * np.float64(around.ends[2] + m + n)
            most += np.float64(around.inner[2] + around.ends[2]) * size
            if most < _MOST:
                ends = _triplet_ends(g, p, q, similar, around)
                triplets = ends[3]
            else:
                over = True
    k, t = pairs, triplets
    if options.max_new_pairs > 0:
        k = min(k, options.max_new_pairs)
    if options.max_new_triplets > 0:
        t = min(t, options.max_new_triplets)
    if options.budget >= 0:
        left = np.int64(np.floor(options.budget * np.float64(numbers[SEEDS] + 1))) - numbers[DERIVED]
        left = max(left, 0)
        if k + t > left:
            share = _share(k, t, left, key0, key1, row, part) if k > 0 and t > 0 else min(k, left)
            k, t = share, left - share
    if numbers[PAIRS] + k + 1 > len(out.pairs):
        numbers[ROOM] = numbers[PAIRS] + k + 1
        return NO_PAIRS
    if numbers[TRIPLETS] + t > len(out.triplets):
        numbers[ROOM] = numbers[TRIPLETS] + t
        return NO_TRIPLETS
    numbers[SEEDS] += 1
    numbers[DERIVED] += k + t
    numbers[OVER_CAP] += over
    numbers[PAIRS_WITHHELD] = min(numbers[PAIRS_WITHHELD] + (pairs - k), _MOST)
    numbers[TRIPLETS_WITHHELD] = min(numbers[TRIPLETS_WITHHELD], _MOST - (triplets - t)) + (triplets - t)
    at = numbers[PAIRS]
    if options.pairs and seed_live:
        out.pairs[at, 0], out.pairs[at, 1] = i, j
        out.signs[at], out.rules[at], out.pair_rows[at] = 1 if similar else -1, SEED, row
        at += 1
    elif options.pairs:
        numbers[SEEDS_WITHHELD] += 1
    for number in sample(pairs, k, key0, key1, row, part, 0):
        a, b, rule = _pair(g, p, q, similar, around, number)
        if a == i and b == j:
            a, b, rule = _pair(g, p, q, similar, around, pairs)
        out.pairs[at, 0], out.pairs[at, 1] = a, b
        out.signs[at], out.rules[at], out.pair_rows[at] = 1 if rule == SIMILAR else -1, rule, row
        at += 1
    numbers[PAIRS] = at
    at = numbers[TRIPLETS]
    for number in sample(triplets, t, key0, key1, row, part, 1):
        a, b, c = _triplet(g, p, q, similar, around, ends, number)
        out.triplets[at, 0], out.triplets[at, 1], out.triplets[at, 2] = a, b, c
        out.triplet_rows[at] = row
        at += 1
    numbers[TRIPLETS] = at
    return DONE
