"""The arrays of the closure's graph, of its votes and of its output, and the names of their fields.

`kinstream.processors.closure.graph` owns them and lets them grow.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class GraphArrays(NamedTuple):
    """The arrays of a graph of n items.

    Parameters
    ----------
    parent : (n,) towards the root; -1 for an item without a component yet, -2 - c for the root of component c.
    proof, proof_seed : (n,) the neighbour towards the root of the proof tree, -1 at the root, and the number of the
        seed between the two.
    gone : (n,) bool, erased items; they link their component but are not members of it.
    components : (c, 8) see `ROOT` and those after it.
    pool : regions of 2^k places: members of a component, or its edges (component, seed), two places each.
    free : (32,) the first free region of each size; each names the next.
    keys, where : a map from (component, other component) to the place of the other in the edges of the first.
    numbers : see `TOP` and those after it.
    hubs : (h, 2) components of many edges whose sums are kept, -1 for none, and the last use of each.
    hub_sums : (h, b, 2) of each block of a hub's edges: members of the other components, and ordered pairs of members.
    hub_stale : (h, b) bool, blocks whose sums must be recomputed. All three are a cache and never affect results.
    """

    parent: Ints
    proof: Ints
    proof_seed: Ints
    gone: NDArray[np.bool_]
    components: Ints
    pool: Ints
    free: Ints
    keys: NDArray[np.int64]
    where: Ints
    numbers: NDArray[np.int64]
    hubs: NDArray[np.int64]
    hub_sums: NDArray[np.int64]
    hub_stale: NDArray[np.bool_]


class PairVotes(NamedTuple):
    """Votes on pairs of items, in order of arrival, and maps to their places.

    Parameters
    ----------
    pair, net, standing : (p,) the two items as one number, the sum of its votes, the sign for which it counts now.
    vote, vote_pair, vote_sign : (v,) hash of pair and source, the pair, and the source's last vote.
    """

    pair: NDArray[np.int64]
    net: Ints
    standing: NDArray[np.int8]
    vote: NDArray[np.int64]
    vote_pair: NDArray[np.int64]
    vote_sign: NDArray[np.int8]
    pair_keys: NDArray[np.int64]
    pair_where: Ints
    vote_keys: NDArray[np.int64]
    vote_where: Ints
    counts: NDArray[np.int64]


class Outbox(NamedTuple):
    """Constraints as items: pairs (m, 2) with sign and rule, triplets (t, 3), and the row of the event of each."""

    pairs: Ints
    signs: NDArray[np.int8]
    rules: NDArray[np.uint8]
    pair_rows: Ints
    triplets: Ints
    triplet_rows: Ints


class Around(NamedTuple):
    """The neighbours of two components: first those of p only, then of q only, then of both.

    Parameters
    ----------
    ends : (3,) members before the end of each part.
    inner : (3,) the same of ordered pairs of members of one component.
    p_counts, q_counts : (b + 1,) members before each block of the edges of p and q, without those next to both.
    p_pairs, q_pairs : the same of ordered pairs of members.
    p_shared, q_shared : places of the neighbours of both in the edges of each, ascending.
    both, both_counts : components next to both in the order of p's edges, and the members before each.
    """

    ends: NDArray[np.int64]
    inner: NDArray[np.int64]
    p_counts: NDArray[np.int64]
    q_counts: NDArray[np.int64]
    p_pairs: NDArray[np.int64]
    q_pairs: NDArray[np.int64]
    p_shared: Ints
    q_shared: Ints
    both: Ints
    both_counts: NDArray[np.int64]


class Options(NamedTuple):
    """Settings of derivation; 0 means no limit, a budget below 0 no budget, and support 0 no voting."""

    pairs: bool
    triplets: bool
    max_new_pairs: int
    max_new_triplets: int
    max_component: int
    budget: float
    support: int


class RelationArrays(NamedTuple):
    """Relations between known items: (n,) each; `row` and `part` key the draws, `source` is a hash."""

    left: Ints
    right: Ints
    sign: NDArray[np.int8]
    row: Ints
    part: Ints
    source: NDArray[np.int64]


#: Fields of a component. `MEMBERS` and `EDGES` are places in the pool, -1 for none.
ROOT, LIVE, TOTAL, MEMBERS, MEMBERS_SIZE, EDGES, EDGES_SIZE, DEGREE = range(8)
#: Fields of `Graph.numbers`. `ROOM` is the room that `take` needed when it stopped; `HUBS` is the number of used places
#: for hubs, `ASKED` the number of uses of hubs, `READ` the number of edges read in all.
(
    TOP,
    COMPONENTS,
    FREE_COMPONENT,
    KEYS,
    NEXT_SEED,
    SEEDS,
    DERIVED,
    PAIRS,
    TRIPLETS,
    PAIRS_WITHHELD,
    TRIPLETS_WITHHELD,
    OVER_CAP,
    SEEDS_WITHHELD,
    ROOM,
    HUBS,
    ASKED,
    READ,
) = range(17)
#: Fields of `Votes.counts`.
PAIRS_VOTED, VOTES = range(2)
#: Results of a row.
NOTHING, ACCEPTED, KNOWN, CONTRADICTION, VOTED, SUPPORTED = range(6)
#: Why `take` stopped.
DONE, NO_POOL, NO_KEYS, NO_COMPONENTS, NO_PAIRS, NO_TRIPLETS, WITHDRAW, NO_HUBS = range(8)
#: Rules, as numbers.
SEED, SIMILAR, DISSIMILAR = range(3)

#: Edges of a block, as a power of two, and the number of edges from which sums of blocks are kept.
BLOCK_BITS: Final = 6
HUB: Final = 512


def new_numbers() -> NDArray[np.int64]:
    """`Graph.numbers` of an empty graph."""
    numbers: NDArray[Any] = np.zeros(READ + 1, np.int64)
    numbers[FREE_COMPONENT] = -1
    return numbers
