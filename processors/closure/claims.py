"""Adds relations: counts votes, compares with known facts, and updates the graph with their consequences.

`take` stops before a row without room, with nothing of that row done, and is called again from there.
"""

from __future__ import annotations

import numpy as np

from kinstream.processors.closure.arrays import (
    ACCEPTED,
    CONTRADICTION,
    DONE,
    KNOWN,
    NEXT_SEED,
    PAIRS_VOTED,
    SUPPORTED,
    VOTED,
    VOTES,
    WITHDRAW,
)
from kinstream.processors.closure.components import (
    component_for,
    edge_seed,
    make_dissimilar,
    pair_key,
    room_for,
    unite,
)
from kinstream.processors.closure.inference import derive
from kinstream.streams.compute.compilation import compiled
from kinstream.streams.compute.whole_number_map import mixed, place_of


@compiled
def _vote(votes, i, j, sign, source, support):  # type: ignore[no-untyped-def]
    """Count a vote. Returns the place of the pair and the sign for which it counts with its votes."""
    pair = pair_key(min(i, j), max(i, j))
    at = place_of(votes.pair_keys, votes.pair_where, pair)
    number = votes.pair_where[at]
    if number < 0:
        number = np.int32(votes.counts[PAIRS_VOTED])
        votes.counts[PAIRS_VOTED] += 1
        votes.pair[number], votes.net[number], votes.standing[number] = pair, 0, 0
        votes.pair_keys[at], votes.pair_where[at] = pair, number
    vote = np.int64(mixed(pair) ^ np.uint64(source))
    at = place_of(votes.vote_keys, votes.vote_where, vote)
    known = votes.vote_where[at]
    if known < 0:
        known = np.int32(votes.counts[VOTES])
        votes.counts[VOTES] += 1
        votes.vote[known], votes.vote_pair[known], votes.vote_sign[known] = vote, pair, 0
        votes.vote_keys[at], votes.vote_where[at] = vote, known
    votes.net[number] += sign - votes.vote_sign[known]
    votes.vote_sign[known] = sign
    net = votes.net[number]
    return number, 1 if net >= support else -1 if net <= -support else 0


@compiled
def take(g, out, votes, options, rows, key0, key1, start, fates, contrary):  # type: ignore[no-untyped-def]
    """Add relations from row `start` on.

    Parameters
    ----------
    fates : (n,) int8, result of each row.
    contrary : (n,) int32, the seed that makes the two dissimilar, for a similar relation that contradicts it.

    Returns
    -------
    The row before which it stopped, and why. With WITHDRAW the votes of that row are counted, and its pair counts
    no longer: remove its seed and continue with the same row.
    """
    for r in range(start, len(rows.left)):
        i, j, sign = rows.left[r], rows.right[r], rows.sign[r]
        status = room_for(g, i, j)
        if status != DONE:
            return r, status
        pair = -1
        if options.support > 0:
            pair, counts = _vote(votes, i, j, sign, rows.source[r], options.support)
            if votes.standing[pair] != 0 and votes.standing[pair] != counts:
                return r, WITHDRAW
            if counts != sign or votes.standing[pair] == sign:
                fates[r] = KNOWN if votes.standing[pair] == sign else VOTED
                continue
        p, q = component_for(g, i), component_for(g, j)
        similar = sign > 0
        known = p == q if similar else edge_seed(g, p, q) >= 0
        if known:
            fates[r] = KNOWN
            if pair >= 0:
                fates[r] = SUPPORTED
                votes.standing[pair] = sign
                g.numbers[NEXT_SEED] += 1
            continue
        if p == q or (similar and edge_seed(g, p, q) >= 0):
            fates[r] = CONTRADICTION
            contrary[r] = edge_seed(g, p, q) if similar else -1
            continue
        status = derive(g, out, options, key0, key1, rows.row[r], rows.part[r], i, j, similar, p, q)
        if status != DONE:
            return r, status
        seed = np.int32(g.numbers[NEXT_SEED])
        g.numbers[NEXT_SEED] += 1
        if similar:
            unite(g, p, q, i, j, seed, options.max_component)
        else:
            make_dissimilar(g, p, q, seed)
        fates[r] = ACCEPTED
        if pair >= 0:
            votes.standing[pair] = sign
    return len(rows.left), DONE
