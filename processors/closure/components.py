"""Components of similar items and the dissimilar edges between them: union-find over arrays that other code grows.

The four rules of transitive closure, run to a fixpoint, give exactly these facts: two items of one component are
similar, and items of two components with an edge between them are dissimilar. So the facts are not stored. A component
has a list of members and a list of the components that it is dissimilar from. The new facts of a relation are products
of such lists, which are numbered and drawn by number.

There are two forests over the items. `parent` is the union-find of components. `proof` is a forest of the similar
relations themselves, re-rooted where two trees join, so that the path between two items is the chain of relations that
makes them similar.

References
----------
Tarjan: Efficiency of a good but not linear set union algorithm. Journal of the ACM 22, 1975.
Nieuwenhuis, Oliveras: Proof-producing congruence closure. RTA 2005 (the proof forest).
"""

from __future__ import annotations

import numpy as np

from kinstream.processors.closure.arrays import (
    BLOCK_BITS,
    COMPONENTS,
    DEGREE,
    DONE,
    EDGES,
    EDGES_SIZE,
    FREE_COMPONENT,
    HUBS,
    KEYS,
    LIVE,
    MEMBERS,
    MEMBERS_SIZE,
    NO_COMPONENTS,
    NO_KEYS,
    NO_POOL,
    ROOM,
    ROOT,
    TOP,
    TOTAL,
)
from kinstream.streams.compute.compilation import compiled
from kinstream.streams.compute.whole_number_map import drop_key, place_of, put_key, size_of


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
    """A region of the wanted size with the first `used` places of another, which is freed."""
    new = _region(g, wanted)
    if at >= 0:
        for place in range(used):
            g.pool[new + place] = g.pool[at + place]
        _release(g, at, size)
    return new


@compiled
def component_of(g, item):  # type: ignore[no-untyped-def]
    """The number of an item's component; -1 if it has none. Applies path halving."""
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
def component_for(g, item):  # type: ignore[no-untyped-def]
    """The number of an item's component, which is created if there is none."""
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
def pair_key(a, b):  # type: ignore[no-untyped-def]
    return (np.int64(a) << 32) | np.int64(b)


@compiled
def edge_seed(g, a, b):  # type: ignore[no-untyped-def]
    """The seed that makes two components dissimilar; -1 if none does."""
    place = g.where[place_of(g.keys, g.where, pair_key(a, b))]
    return -1 if place < 0 else g.pool[g.components[a, EDGES] + 2 * place + 1]


@compiled
def _edge_changed(g, c, place):  # type: ignore[no-untyped-def]
    """Update c for another component, or none, at a place of its edges."""
    for hub in range(g.numbers[HUBS]):
        if g.hubs[hub, 0] == c:
            block = place >> BLOCK_BITS
            if block < g.hub_stale.shape[1]:
                g.hub_stale[hub, block] = True
            else:
                g.hubs[hub, 0] = -1


@compiled
def _members_changed(g, c):  # type: ignore[no-untyped-def]
    """Update the sums for another number of members of a component."""
    for hub in range(g.numbers[HUBS]):
        if g.hubs[hub, 0] >= 0:
            place = g.where[place_of(g.keys, g.where, pair_key(g.hubs[hub, 0], c))]
            if place >= 0:
                g.hub_stale[hub, place >> BLOCK_BITS] = True


@compiled
def _add_edge(g, a, b, seed):  # type: ignore[no-untyped-def]
    """Append b to the edges of a."""
    degree = g.components[a, DEGREE]
    size = g.components[a, EDGES_SIZE]
    if g.components[a, EDGES] < 0 or 2 * degree + 2 > (1 << size):
        wanted = size_of(2 * degree + 2)
        g.components[a, EDGES] = _resized(g, g.components[a, EDGES], size, 2 * degree, wanted)
        g.components[a, EDGES_SIZE] = wanted
    at = g.components[a, EDGES] + 2 * degree
    g.pool[at], g.pool[at + 1] = b, seed
    g.components[a, DEGREE] = degree + 1
    _edge_changed(g, a, degree)
    put_key(g.keys, g.where, pair_key(a, b), degree)


@compiled
def make_dissimilar(g, a, b, seed):  # type: ignore[no-untyped-def]
    """Make two components dissimilar."""
    _add_edge(g, a, b, seed)
    _add_edge(g, b, a, seed)
    g.numbers[KEYS] += 2


@compiled
def _repoint(g, c, old, new):  # type: ignore[no-untyped-def]
    """In the edges of c, replace `old` by `new`, or remove `old` if `new` is already there.

    Returns
    -------
    bool : whether `new` was there.
    """
    edges = g.components[c, EDGES]
    place = g.where[place_of(g.keys, g.where, pair_key(c, old))]
    seed = g.pool[edges + 2 * place + 1]
    drop_key(g.keys, g.where, pair_key(c, old))
    _edge_changed(g, c, place)
    other = g.where[place_of(g.keys, g.where, pair_key(c, new))]
    if other < 0:
        g.pool[edges + 2 * place] = new
        put_key(g.keys, g.where, pair_key(c, new), place)
        return False
    g.pool[edges + 2 * other + 1] = min(seed, g.pool[edges + 2 * other + 1])
    last = g.components[c, DEGREE] - 1
    if place != last:
        g.pool[edges + 2 * place] = g.pool[edges + 2 * last]
        g.pool[edges + 2 * place + 1] = g.pool[edges + 2 * last + 1]
        put_key(g.keys, g.where, pair_key(c, g.pool[edges + 2 * place]), place)
    g.components[c, DEGREE] = last
    _edge_changed(g, c, last)
    g.numbers[KEYS] -= 1
    return True


@compiled
def _join_members(g, a, b, limit):  # type: ignore[no-untyped-def]
    """Append the members of b to those of a. Beyond the limit the list of members is dropped."""
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
        wanted = size_of(p + q)
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
def unite(g, p, q, i, j, seed, limit):  # type: ignore[no-untyped-def]
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
        drop_key(g.keys, g.where, pair_key(b, c))
        if _repoint(g, c, b, a):
            at = g.components[a, EDGES] + 2 * g.where[place_of(g.keys, g.where, pair_key(a, c))] + 1
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
def room_for(g, i, j):  # type: ignore[no-untyped-def]
    """DONE if any relation of i and j has room, otherwise what must grow; sets `ROOM`."""
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
    need = 2 + (1 << size_of(members))
    for degree in (a + 1, b + 1, a + b + 1):
        need += 1 << size_of(2 * degree)
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
    """Items stay in their components but are no longer members."""
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
        status = room_for(g, i, j)
        if status != DONE:
            return n, status
        p, q = component_for(g, i), component_for(g, j)
        if p == q:
            continue
        if sign[n] > 0:
            unite(g, p, q, i, j, seed[n], limit)
        elif edge_seed(g, p, q) < 0:
            make_dissimilar(g, p, q, seed[n])
    return len(left), DONE


@compiled
def chains(g, left, right, most):  # type: ignore[no-untyped-def]
    """The seeds between two items of a component, from left to right.

    Returns
    -------
    (n, most) the first seeds of each chain, -1 after its end, and (n,) their numbers.
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


@compiled
def first_with(g, item, others):  # type: ignore[no-untyped-def]
    """The first of `others` that is similar to an item, or is the item; -1 if none is."""
    c = component_of(g, item)
    for n in range(len(others)):
        if others[n] == item or (c >= 0 and component_of(g, others[n]) == c):
            return n
    return -1
