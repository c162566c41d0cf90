"""Components of similar items and the dissimilar edges between them: union-find that tells what each relation adds.

The four rules of transitive closure, run to a fixpoint, hold exactly these facts: two items of one component are
similar, and items of two components with an edge between them are dissimilar. So the facts are never stored; a
component has a list of members and a list of the components that it is dissimilar from, and what is new with a
relation are products of such lists, which are numbered and drawn from by number.

Everything here is compiled and works on arrays that `kinstream.processors.closure_graph` owns and lets grow: `take`
stops before a row for which there is no room, with nothing of that row done, and is called again from there.

Two trees lie over the items. `parent` is the union-find of components. `proof` is a forest of the similar relations
themselves, turned around where two trees meet, so that the way between two items is the chain of relations that
makes them similar.

References
----------
Tarjan: Efficiency of a good but not linear set union algorithm. Journal of the ACM 22, 1975.
Nieuwenhuis, Oliveras: Proof-producing congruence closure. RTA 2005 (the proof forest).
Floyd, in Bentley: Programming pearls. Communications of the ACM 30, 1987 (samples without replacement).
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011 (Philox).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.compiled import compiled

Ints = NDArray[np.int32]


class Graph(NamedTuple):
    """The arrays of a graph of n items.

    Parameters
    ----------
    parent : (n,) towards the root; -1 for an item without a component yet, -2 - c for the root of component c.
    proof, proof_seed : (n,) the neighbour towards the root of the proof tree, -1 at the root, and the number of the
        seed between the two.
    gone : (n,) bool, items that were erased; they hold their component together and are no members of it.
    components : (c, 8) see `ROOT` and those after it.
    pool : regions of 2^k places: members of a component, or its edges (component, seed), two places each.
    free : (32,) the first free region of each size; each names the next.
    keys, where : a map from (component, other component) to the place of the other in the edges of the first.
    numbers : see `TOP` and those after it.
    hubs : (h, 2) components of many edges whose sums are kept, -1 for none, and when each was asked for last.
    hub_sums : (h, b, 2) of each block of a hub's edges: members of the other components, and ordered pairs of members.
    hub_stale : (h, b) bool, blocks whose sums are to be made anew. All three are a cache: what they hold never shows.
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


class Votes(NamedTuple):
    """Votes on pairs of items, in the order of their coming, and maps to their places.

    Parameters
    ----------
    pair, net, standing : (p,) the two items as one number, the sum of its votes, the sign for which it counts now.
    vote, vote_pair, vote_sign : (v,) hash of pair and source, the pair, and what the source said last.
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
    """What lies next to two components: first what is next to p only, then to q only, then to both.

    Parameters
    ----------
    ends : (3,) members before the end of each part.
    inner : (3,) the same of ordered pairs of members of one component.
    p_counts, q_counts : (b + 1,) members before each block of the edges of p and q, without those next to both.
    p_pairs, q_pairs : the same of ordered pairs of members.
    p_shared, q_shared : places of what is next to both in the edges of each, ascending.
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
    """What is made of a relation; 0 is no limit, a budget below 0 is none, and support 0 is no voting."""

    pairs: bool
    triplets: bool
    max_new_pairs: int
    max_new_triplets: int
    max_component: int
    budget: float
    support: int


class Rows(NamedTuple):
    """Relations between items that are known: (n,) each; `row` and `part` key the draws, `source` is a hash."""

    left: Ints
    right: Ints
    sign: NDArray[np.int8]
    row: Ints
    part: Ints
    source: NDArray[np.int64]


#: Fields of a component. `MEMBERS` and `EDGES` are places in the pool, -1 for none.
ROOT, LIVE, TOTAL, MEMBERS, MEMBERS_SIZE, EDGES, EDGES_SIZE, DEGREE = range(8)
#: Fields of `Graph.numbers`. `ROOM` is what `take` would need where it stopped; `HUBS` is how many places for hubs have
#: been used, `ASKED` the number of times that a hub was asked for, `READ` that of edges that were read for it all.
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
#: What came of a row.
NOTHING, ACCEPTED, KNOWN, CONTRADICTION, VOTED, SUPPORTED = range(6)
#: Why `take` stopped.
DONE, NO_POOL, NO_KEYS, NO_COMPONENTS, NO_PAIRS, NO_TRIPLETS, WITHDRAW, NO_HUBS = range(8)
#: Rules, as numbers.
SEED, SIMILAR, DISSIMILAR = range(3)

#: Edges of a block, as a power of two, and from how many edges on the sums of blocks are kept.
BLOCK_BITS: Final = 6
HUB: Final = 512

_EMPTY: Final = -1
#: Triplets of a relation are not numbered beyond this; counts saturate there.
_MOST: Final = 2**62


# ---- maps of whole numbers --------------------------------------------------------------------------------------


@compiled
def _mixed(key):  # type: ignore[no-untyped-def]
    """SplitMix64's last step."""
    z = np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _place(keys, where, key):  # type: ignore[no-untyped-def]
    """Where a key is, or would go."""
    mask = len(keys) - 1
    at = np.int64(_mixed(key) & np.uint64(mask))
    while where[at] != _EMPTY and keys[at] != key:
        at = (at + 1) & mask
    return at


@compiled
def _put(keys, where, key, value):  # type: ignore[no-untyped-def]
    at = _place(keys, where, key)
    keys[at] = key
    where[at] = value


@compiled
def _drop(keys, where, key):  # type: ignore[no-untyped-def]
    """Remove a key and close the gap, so that no trace is left of it."""
    mask = len(keys) - 1
    hole = _place(keys, where, key)
    at = hole
    while True:
        at = (at + 1) & mask
        if where[at] == _EMPTY:
            break
        home = np.int64(_mixed(keys[at]) & np.uint64(mask))
        if ((at - home) & mask) >= ((at - hole) & mask):
            keys[hole], where[hole] = keys[at], where[at]
            hole = at
    where[hole] = _EMPTY


@compiled
def fill_map(keys, where, old_keys, old_where):  # type: ignore[no-untyped-def]
    """Put everything that a smaller map holds into an empty one."""
    for at in range(len(old_keys)):
        if old_where[at] != _EMPTY:
            _put(keys, where, old_keys[at], old_where[at])


@compiled
def number_map(keys, where, values):  # type: ignore[no-untyped-def]
    """Map each value to its place in the list."""
    for at in range(len(values)):
        _put(keys, where, values[at], at)


# ---- components -------------------------------------------------------------------------------------------------


@compiled
def _size_of(count):  # type: ignore[no-untyped-def]
    """The smallest k with 2^k >= count."""
    size = 0
    while (1 << size) < count:
        size += 1
    return size


@compiled
def _region(g, size):  # type: ignore[no-untyped-def]
    at = g.free[size]
    if at >= 0:
        g.free[size] = g.pool[at]
        return at
    at = np.int32(g.numbers[TOP])
    g.numbers[TOP] += 1 << size
    return at


@compiled
def _release(g, at, size):  # type: ignore[no-untyped-def]
    g.pool[at] = g.free[size]
    g.free[size] = at


@compiled
def _resized(g, at, size, used, wanted):  # type: ignore[no-untyped-def]
    """A region of the wanted size with the first `used` places of another, which is given back."""
    new = _region(g, wanted)
    if at >= 0:
        for place in range(used):
            g.pool[new + place] = g.pool[at + place]
        _release(g, at, size)
    return new


@compiled
def component_of(g, item):  # type: ignore[no-untyped-def]
    """The number of an item's component; -1 where it has none. Halves the way to the root."""
    parent = g.parent
    while parent[item] >= 0:
        above = parent[item]
        if parent[above] >= 0:
            parent[item] = parent[above]
            item = parent[item]
        else:
            item = above
    return -parent[item] - 2


@compiled
def _component(g, item):  # type: ignore[no-untyped-def]
    """The number of an item's component, which is made if there is none."""
    c = component_of(g, item)
    if c >= 0:
        return c
    c = g.numbers[FREE_COMPONENT]
    if c >= 0:
        g.numbers[FREE_COMPONENT] = g.components[c, ROOT]
    else:
        c = g.numbers[COMPONENTS]
        g.numbers[COMPONENTS] += 1
    at = _region(g, 0)
    g.pool[at] = item
    g.components[c, ROOT] = item
    g.components[c, LIVE] = 0 if g.gone[item] else 1
    g.components[c, TOTAL] = 1
    g.components[c, MEMBERS] = at
    g.components[c, MEMBERS_SIZE] = 0
    g.components[c, EDGES] = -1
    g.components[c, EDGES_SIZE] = 0
    g.components[c, DEGREE] = 0
    g.parent[item] = -2 - c
    return c


@compiled
def _key(a, b):  # type: ignore[no-untyped-def]
    return (np.int64(a) << 32) | np.int64(b)


@compiled
def edge_seed(g, a, b):  # type: ignore[no-untyped-def]
    """The seed that makes two components dissimilar; -1 where none does."""
    place = g.where[_place(g.keys, g.where, _key(a, b))]
    return -1 if place < 0 else g.pool[g.components[a, EDGES] + 2 * place + 1]


@compiled
def _edge_changed(g, c, place):  # type: ignore[no-untyped-def]
    """Another component, or none, stands at a place of the edges of c."""
    for hub in range(g.numbers[HUBS]):
        if g.hubs[hub, 0] == c:
            block = place >> BLOCK_BITS
            if block < g.hub_stale.shape[1]:
                g.hub_stale[hub, block] = True
            else:
                g.hubs[hub, 0] = -1


@compiled
def _members_changed(g, c):  # type: ignore[no-untyped-def]
    """A component has another number of members."""
    for hub in range(g.numbers[HUBS]):
        if g.hubs[hub, 0] >= 0:
            place = g.where[_place(g.keys, g.where, _key(g.hubs[hub, 0], c))]
            if place >= 0:
                g.hub_stale[hub, place >> BLOCK_BITS] = True


@compiled
def _add_edge(g, a, b, seed):  # type: ignore[no-untyped-def]
    """Append b to the edges of a."""
    degree = g.components[a, DEGREE]
    size = g.components[a, EDGES_SIZE]
    if g.components[a, EDGES] < 0 or 2 * degree + 2 > (1 << size):
        wanted = _size_of(2 * degree + 2)
        g.components[a, EDGES] = _resized(g, g.components[a, EDGES], size, 2 * degree, wanted)
        g.components[a, EDGES_SIZE] = wanted
    at = g.components[a, EDGES] + 2 * degree
    g.pool[at], g.pool[at + 1] = b, seed
    g.components[a, DEGREE] = degree + 1
    _edge_changed(g, a, degree)
    _put(g.keys, g.where, _key(a, b), degree)


@compiled
def _part(g, a, b, seed):  # type: ignore[no-untyped-def]
    """Make two components dissimilar."""
    _add_edge(g, a, b, seed)
    _add_edge(g, b, a, seed)
    g.numbers[KEYS] += 2


@compiled
def _repoint(g, c, old, new):  # type: ignore[no-untyped-def]
    """In the edges of c, put `new` in the place of `old`, or take `old` out where `new` is there already.

    Returns
    -------
    bool : whether it was there.
    """
    edges = g.components[c, EDGES]
    place = g.where[_place(g.keys, g.where, _key(c, old))]
    seed = g.pool[edges + 2 * place + 1]
    _drop(g.keys, g.where, _key(c, old))
    _edge_changed(g, c, place)
    other = g.where[_place(g.keys, g.where, _key(c, new))]
    if other < 0:
        g.pool[edges + 2 * place] = new
        _put(g.keys, g.where, _key(c, new), place)
        return False
    g.pool[edges + 2 * other + 1] = min(seed, g.pool[edges + 2 * other + 1])
    last = g.components[c, DEGREE] - 1
    if place != last:
        g.pool[edges + 2 * place] = g.pool[edges + 2 * last]
        g.pool[edges + 2 * place + 1] = g.pool[edges + 2 * last + 1]
        _put(g.keys, g.where, _key(c, g.pool[edges + 2 * place]), place)
    g.components[c, DEGREE] = last
    _edge_changed(g, c, last)
    g.numbers[KEYS] -= 1
    return True


@compiled
def _join_members(g, a, b, limit):  # type: ignore[no-untyped-def]
    """Append the members of b to those of a. Beyond the limit there is no list of members any more."""
    p, q = g.components[a, LIVE], g.components[b, LIVE]
    at, size = g.components[a, MEMBERS], g.components[a, MEMBERS_SIZE]
    other, other_size = g.components[b, MEMBERS], g.components[b, MEMBERS_SIZE]
    g.components[a, LIVE] = p + q
    if at < 0 or other < 0 or (limit > 0 and p + q > limit):
        if at >= 0:
            _release(g, at, size)
        if other >= 0:
            _release(g, other, other_size)
        g.components[a, MEMBERS] = -1
        return
    if p + q > (1 << size):
        wanted = _size_of(p + q)
        at = _resized(g, at, size, p, wanted)
        g.components[a, MEMBERS], g.components[a, MEMBERS_SIZE] = at, wanted
    for place in range(q):
        g.pool[at + p + place] = g.pool[other + place]
    _release(g, other, other_size)


@compiled
def _turn(g, item):  # type: ignore[no-untyped-def]
    """Make an item the root of its proof tree."""
    before, seed = np.int32(-1), np.int32(-1)
    while item >= 0:
        above, above_seed = g.proof[item], g.proof_seed[item]
        g.proof[item], g.proof_seed[item] = before, seed
        before, seed, item = item, above_seed, above


@compiled
def _unite(g, p, q, i, j, seed, limit):  # type: ignore[no-untyped-def]
    """Make one component of those of i and j; the lists of the lighter one are moved."""
    if g.components[p, TOTAL] < g.components[q, TOTAL]:
        _turn(g, i)
        g.proof[i], g.proof_seed[i] = j, seed
    else:
        _turn(g, j)
        g.proof[j], g.proof_seed[j] = i, seed
    heavy = g.components[p, TOTAL] + g.components[p, DEGREE]
    if heavy >= g.components[q, TOTAL] + g.components[q, DEGREE]:
        a, b = p, q
    else:
        a, b = q, p
    g.parent[g.components[b, ROOT]] = g.components[a, ROOT]
    g.components[a, TOTAL] += g.components[b, TOTAL]
    _join_members(g, a, b, limit)
    edges = g.components[b, EDGES]
    for place in range(g.components[b, DEGREE]):
        c, edge = g.pool[edges + 2 * place], g.pool[edges + 2 * place + 1]
        _drop(g.keys, g.where, _key(b, c))
        if _repoint(g, c, b, a):
            at = g.components[a, EDGES] + 2 * g.where[_place(g.keys, g.where, _key(a, c))] + 1
            g.pool[at] = min(edge, g.pool[at])
            g.numbers[KEYS] -= 1
        else:
            _add_edge(g, a, c, edge)
    if edges >= 0:
        _release(g, edges, g.components[b, EDGES_SIZE])
    g.components[b, ROOT] = g.numbers[FREE_COMPONENT]
    g.numbers[FREE_COMPONENT] = b
    for hub in range(g.numbers[HUBS]):
        if g.hubs[hub, 0] == b:
            g.hubs[hub, 0] = -1
    _members_changed(g, a)


@compiled
def _room(g, i, j):  # type: ignore[no-untyped-def]
    """DONE where a relation of i and j finds room whatever it is, else what must grow; sets `ROOM`."""
    p, q = component_of(g, i), component_of(g, j)
    members = 2
    a = b = 0
    if p >= 0:
        members += g.components[p, LIVE]
        a = g.components[p, DEGREE]
    if q >= 0:
        members += g.components[q, LIVE]
        b = g.components[q, DEGREE]
    # Two new components, then either one longer list of members and one of edges, or two longer lists of edges.
    need = 2 + (1 << _size_of(members))
    for degree in (a + 1, b + 1, a + b + 1):
        need += 1 << _size_of(2 * degree)
    # The edges of the heavier one may grow in several steps.
    need += 4 * (a + b + 1)
    if g.numbers[TOP] + need > len(g.pool):
        g.numbers[ROOM] = g.numbers[TOP] + need
        return NO_POOL
    if 3 * (g.numbers[KEYS] + 2) > 2 * len(g.keys):
        return NO_KEYS
    if g.numbers[COMPONENTS] + 2 > len(g.components):
        return NO_COMPONENTS
    return DONE


@compiled
def erase(g, items):  # type: ignore[no-untyped-def]
    """Items stay in their components and are no members any more."""
    for n in range(len(items)):
        item = items[n]
        if g.gone[item]:
            continue
        g.gone[item] = True
        c = component_of(g, item)
        if c < 0:
            continue
        g.components[c, LIVE] -= 1
        at, last = g.components[c, MEMBERS], g.components[c, LIVE]
        if at >= 0:
            place = at
            while g.pool[place] != item:
                place += 1
            g.pool[place] = g.pool[at + last]
        _members_changed(g, c)


@compiled
def replay(g, left, right, sign, seed, start, limit):  # type: ignore[no-untyped-def]
    """Apply accepted relations (sign 1 or -1) and erasures (0, of `left`) again.

    Returns
    -------
    The row before which it stopped, and why.
    """
    for n in range(start, len(left)):
        i, j = left[n], right[n]
        if sign[n] == 0:
            erase(g, left[n : n + 1])
            continue
        status = _room(g, i, j)
        if status != DONE:
            return n, status
        p, q = _component(g, i), _component(g, j)
        if p == q:
            continue
        if sign[n] > 0:
            _unite(g, p, q, i, j, seed[n], limit)
        elif edge_seed(g, p, q) < 0:
            _part(g, p, q, seed[n])
    return len(left), DONE


@compiled
def chains(g, left, right, most):  # type: ignore[no-untyped-def]
    """The seeds between two items of a component, from left to right.

    Returns
    -------
    (n, most) the first seeds of each chain, -1 behind its end, and (n,) how many there are.
    """
    seeds = np.full((len(left), most), -1, np.int32)
    lengths = np.zeros(len(left), np.int64)
    for n in range(len(left)):
        i, j = left[n], right[n]
        depth = 0
        at = i
        while g.proof[at] >= 0:
            at = g.proof[at]
            depth += 1
        at = j
        while g.proof[at] >= 0:
            at = g.proof[at]
            depth -= 1
        up = down = 0
        a, b = i, j
        while a != b:
            if depth >= 0:
                if up < most:
                    seeds[n, up] = g.proof_seed[a]
                a = g.proof[a]
                up += 1
                depth -= 1
            else:
                b = g.proof[b]
                down += 1
                depth += 1
        lengths[n] = up + down
        at = j
        for place in range(up + down - 1, up - 1, -1):
            if place < most:
                seeds[n, place] = g.proof_seed[at]
            at = g.proof[at]
    return seeds, lengths


# ---- draws ------------------------------------------------------------------------------------------------------


@compiled
def _high(a, b):  # type: ignore[no-untyped-def]
    """The upper half of a product of two uint64."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    return a1 * b1 + (middle >> half) + (((middle & low) + a0 * b1) >> half)


@compiled
def philox(key0, key1, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """Philox4x64 with ten rounds: four uint64 for a counter of four."""
    m0, m1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
    w0, w1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    k0, k1 = np.uint64(key0), np.uint64(key1)
    for _ in range(10):
        h0, l0, h1, l1 = _high(m0, c0), m0 * c0, _high(m1, c2), m1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 += w0
        k1 += w1
    return c0, c1, c2, c3


@compiled
def sample(total, count, key0, key1, row, part, purpose):  # type: ignore[no-untyped-def]
    """`count` distinct numbers below `total`, each set of them as likely; all, in order, where count is total.

    Floyd's algorithm. The draws are those of the key at the counters (., purpose, part, row).
    """
    found = np.empty(count, np.int64)
    if count == total:
        for n in range(count):
            found[n] = n
        return found
    places = 1 << _size_of(2 * count)
    keys = np.empty(places, np.int64)
    where = np.full(places, _EMPTY, np.int8)
    words = (np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0))
    for n in range(count):
        if n & 3 == 0:
            words = philox(key0, key1, n >> 2, purpose, part, row)
        word = words[0] if n & 3 == 0 else words[1] if n & 3 == 1 else words[2] if n & 3 == 2 else words[3]
        last = total - count + n
        drawn = np.int64(_high(word, np.uint64(last + 1)))
        at = _place(keys, where, drawn)
        if where[at] != _EMPTY:
            drawn = last
            at = _place(keys, where, drawn)
        keys[at], where[at] = drawn, 0
        found[n] = drawn
    return found


@compiled
def _share(pairs, triplets, left, key0, key1, row, part):  # type: ignore[no-untyped-def]
    """How many of `left` drawn from the pairs and triplets together are pairs."""
    found = 0
    for n in range(left):
        word = philox(key0, key1, n, 2, part, row)[0]
        if np.int64(_high(word, np.uint64(pairs - found + triplets - n + found))) < pairs - found:
            found += 1
    return found


# ---- what a relation adds ---------------------------------------------------------------------------------------


@compiled
def _count(g, c):  # type: ignore[no-untyped-def]
    """Members of a component that takes part in derivation."""
    return np.int64(g.components[c, LIVE]) if g.components[c, MEMBERS] >= 0 else np.int64(0)


@compiled
def _hub(g, c):  # type: ignore[no-untyped-def]
    """Where the sums of a component's blocks are kept; -1 where it has few edges."""
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
        # The one that was not asked for the longest.
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
def _blocks(g, c):  # type: ignore[no-untyped-def]
    return (g.components[c, DEGREE] + (1 << BLOCK_BITS) - 1) >> BLOCK_BITS


@compiled
def _running(g, c, shared):  # type: ignore[no-untyped-def]
    """Members, and ordered pairs of members, before each block of edges and after the last, without shared places."""
    blocks = _blocks(g, c)
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
            members = _count(g, g.pool[g.components[c, EDGES] + 2 * place])
            counts[block + 1] += members
            pairs[block + 1] += members * (members - 1)
        if hub >= 0:
            g.hub_sums[hub, block, 0], g.hub_sums[hub, block, 1] = counts[block + 1], pairs[block + 1]
            g.hub_stale[hub, block] = False
    for place in shared:
        members = _count(g, g.pool[g.components[c, EDGES] + 2 * place])
        counts[(place >> BLOCK_BITS) + 1] -= members
        pairs[(place >> BLOCK_BITS) + 1] -= members * (members - 1)
    for block in range(blocks):
        counts[block + 1] += counts[block]
        pairs[block + 1] += pairs[block]
    return counts, pairs


@compiled
def _shared(g, p, q):  # type: ignore[no-untyped-def]
    """Places in the edges of p of what is next to q, too, ascending; only the fewer edges of the two are read."""
    a, b = g.components[p, DEGREE], g.components[q, DEGREE]
    fewer, other = (p, q) if a <= b else (q, p)
    found = np.empty(min(a, b), np.int32)
    m = 0
    g.numbers[READ] += min(a, b)
    for place in range(min(a, b)):
        c = g.pool[g.components[fewer, EDGES] + 2 * place]
        there = g.where[_place(g.keys, g.where, _key(other, c))]
        if there >= 0:
            found[m] = place if fewer == p else there
            m += 1
    return np.sort(found[:m])


@compiled
def _around(g, p, q):  # type: ignore[no-untyped-def]
    """What lies next to two components."""
    p_shared = _shared(g, p, q)
    q_shared = np.empty(len(p_shared), np.int32)
    both = np.empty(len(p_shared), np.int32)
    both_counts = np.zeros(len(p_shared) + 1, np.int64)
    both_pairs = np.int64(0)
    for n in range(len(p_shared)):
        c = g.pool[g.components[p, EDGES] + 2 * p_shared[n]]
        both[n] = c
        q_shared[n] = g.where[_place(g.keys, g.where, _key(q, c))]
        members = _count(g, c)
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
def _nothing_around():  # type: ignore[no-untyped-def]
    none, places = np.zeros(1, np.int64), np.empty(0, np.int32)
    zeros = np.zeros(3, np.int64)
    return Around(zeros, zeros, none, none, none, none, places, places, places, none)


@compiled
def _member(g, c, place):  # type: ignore[no-untyped-def]
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
def _two(g, c, number):  # type: ignore[no-untyped-def]
    """Two different members of a component, by a number below n (n - 1)."""
    less = _count(g, c) - 1
    first, second = number // less, number % less
    return _member(g, c, first), _member(g, c, second + (second >= first))


@compiled
def _edge_at(g, c, running, shared, inner, number):  # type: ignore[no-untyped-def]
    """The component next to c in whose part of the running sum a number lies, and the number within that part.

    Parameters
    ----------
    running, shared : of c in `Around`.
    inner : whether ordered pairs of members are numbered, else members.
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
            members = _count(g, c_there)
            size = members * (members - 1) if inner else members
            if number < size:
                return c_there, number
            number -= size
        place += 1


@compiled
def _neighbour_member(g, p, q, around, number):  # type: ignore[no-untyped-def]
    """A member of what lies around, by its number."""
    if number < around.ends[0]:
        c, place = _edge_at(g, p, around.p_counts, around.p_shared, False, number)
        return _member(g, c, place)
    if number < around.ends[1]:
        number -= around.ends[0]
        c, place = _edge_at(g, q, around.q_counts, around.q_shared, False, number)
        return _member(g, c, place)
    number -= around.ends[1]
    n = _last_not_above(around.both_counts, number)
    return _member(g, around.both[n], number - around.both_counts[n])


@compiled
def _pair(g, p, q, similar, around, number):  # type: ignore[no-untyped-def]
    """A pair by its number: q with what is next to p only, p with what is next to q only, then p with q."""
    m, n = _count(g, p), _count(g, q)
    ends = around.ends
    if number < n * ends[0]:
        return _member(g, q, number % n), _neighbour_member(g, p, q, around, number // n), DISSIMILAR
    number -= n * ends[0]
    there = m * (ends[1] - ends[0])
    if number < there:
        other = _neighbour_member(g, p, q, around, ends[0] + number // m)
        return _member(g, p, number % m), other, DISSIMILAR
    number -= there
    rule = SIMILAR if similar else DISSIMILAR
    return _member(g, p, number // n), _member(g, q, number % n), rule


@compiled
def _triplet_ends(g, p, q, similar, around):  # type: ignore[no-untyped-def]
    """Triplets by kind, as running sums: (4,).

    Of a dissimilar edge: two of p and one of q, two of q and one of p. Of a union: one of each and a neighbour; two
    of p and one next to q only; two of q and one next to p only; two of a neighbour and one of q or p.
    """
    m, n = _count(g, p), _count(g, q)
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
    m, n = _count(g, p), _count(g, q)
    if not similar:
        if number < ends[0]:
            anchor, positive = _two(g, p, number // n)
            return anchor, positive, _member(g, q, number % n)
        number -= ends[0]
        anchor, positive = _two(g, q, number // m)
        return anchor, positive, _member(g, p, number % m)
    if number < ends[0]:
        negative = _neighbour_member(g, p, q, around, number // (2 * m * n))
        number %= 2 * m * n
        one, other = _member(g, p, (number >> 1) // n), _member(g, q, (number >> 1) % n)
        return (one, other, negative) if number & 1 == 0 else (other, one, negative)
    if number < ends[1]:
        number -= ends[0]
        anchor, positive = _two(g, p, number % (m * (m - 1)))
        place = around.ends[0] + number // (m * (m - 1))
        return anchor, positive, _neighbour_member(g, p, q, around, place)
    if number < ends[2]:
        number -= ends[1]
        anchor, positive = _two(g, q, number % (n * (n - 1)))
        return anchor, positive, _neighbour_member(g, p, q, around, number // (n * (n - 1)))
    number -= ends[2]
    if number < n * around.inner[0]:
        c, two = _edge_at(g, p, around.p_pairs, around.p_shared, True, number // n)
        anchor, positive = _two(g, c, two)
        return anchor, positive, _member(g, q, number % n)
    number -= n * around.inner[0]
    c, two = _edge_at(g, q, around.q_pairs, around.q_shared, True, number // m)
    anchor, positive = _two(g, c, two)
    return anchor, positive, _member(g, p, number % m)


@compiled
def _derive(g, out, options, key0, key1, row, part, i, j, similar, p, q):  # type: ignore[no-untyped-def]
    """Put out the seed and what it adds, before the graph is changed. DONE, or what there is no room for."""
    seed_live = not g.gone[i] and not g.gone[j]
    numbers = g.numbers
    m, n = _count(g, p), _count(g, q)
    limit = options.max_component
    over = g.components[p, MEMBERS] < 0 or g.components[q, MEMBERS] < 0
    over = over or (similar and limit > 0 and m + n > limit)
    around = _nothing_around()
    pairs = triplets = np.int64(0)
    ends = np.zeros(4, np.int64)
    if not over:
        if similar:
            most_blocks = max(_blocks(g, p), _blocks(g, q))
            if most_blocks > g.hub_stale.shape[1]:
                numbers[ROOM] = most_blocks
                return NO_HUBS
            around = _around(g, p, q)
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


@compiled
def _vote(votes, i, j, sign, source, support):  # type: ignore[no-untyped-def]
    """Count a vote. Returns the place of the pair and the sign for which it counts with its votes."""
    pair = _key(min(i, j), max(i, j))
    at = _place(votes.pair_keys, votes.pair_where, pair)
    number = votes.pair_where[at]
    if number < 0:
        number = np.int32(votes.counts[PAIRS_VOTED])
        votes.counts[PAIRS_VOTED] += 1
        votes.pair[number], votes.net[number], votes.standing[number] = pair, 0, 0
        votes.pair_keys[at], votes.pair_where[at] = pair, number
    vote = np.int64(_mixed(pair) ^ np.uint64(source))
    at = _place(votes.vote_keys, votes.vote_where, vote)
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
    """Take in relations from row `start` on.

    Parameters
    ----------
    fates : (n,) int8, what came of each row.
    contrary : (n,) int32, the seed that makes the two dissimilar, for a similar relation that contradicts it.

    Returns
    -------
    The row before which it stopped, and why. With WITHDRAW the votes of that row are counted, and its pair counts
    no more: take its seed back and go on with the same row.
    """
    for r in range(start, len(rows.left)):
        i, j, sign = rows.left[r], rows.right[r], rows.sign[r]
        status = _room(g, i, j)
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
        p, q = _component(g, i), _component(g, j)
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
        status = _derive(g, out, options, key0, key1, rows.row[r], rows.part[r], i, j, similar, p, q)
        if status != DONE:
            return r, status
        seed = np.int32(g.numbers[NEXT_SEED])
        g.numbers[NEXT_SEED] += 1
        if similar:
            _unite(g, p, q, i, j, seed, options.max_component)
        else:
            _part(g, p, q, seed)
        fates[r] = ACCEPTED
        if pair >= 0:
            votes.standing[pair] = sign
    return len(rows.left), DONE


@compiled
def first_with(g, item, others):  # type: ignore[no-untyped-def]
    """The first of `others` that is similar to an item, or is it; -1 where none is."""
    c = component_of(g, item)
    for n in range(len(others)):
        if others[n] == item or (c >= 0 and component_of(g, others[n]) == c):
            return n
    return -1


def new_numbers() -> NDArray[np.int64]:
    """`Graph.numbers` of an empty graph."""
    numbers: NDArray[Any] = np.zeros(READ + 1, np.int64)
    numbers[FREE_COMPONENT] = -1
    return numbers
