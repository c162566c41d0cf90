"""Components with many dissimilar edges: what is kept of them to be fast is never seen, and joins read little."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from kinstream.processors.base.builder import Origin
from kinstream.processors.closure import arrays as arrays
from kinstream.processors.closure.closure import Closure
from tests.processors.bounds import closure
from tests.processors.closure_samples import (
    Said,
    items,
    pairs_of,
    relations,
    tell,
    triplets_of,
    unlimited,
)
from tests.processors.test_closure_state import outputs, restored, saved

EDGES = 3 * arrays.HUB
Pair = tuple[frozenset[int], bool]
Triplet = tuple[int, int, int]


def read(builder: Closure) -> int:
    """Edges that were read so far to know what lies next to components."""
    return builder._graph.number(arrays.READ)


def with_hub(builder: Closure, edges: int, others: int) -> Closure:
    """Item 0 is dissimilar from items 1 to `edges`; so many other items have no relation."""
    for first in range(0, edges + others + 1, 5_000):
        builder.process(items(range(first, min(edges + others + 1, first + 5_000))), Origin(0))
    for first in range(1, edges + 1, 5_000):
        tell(builder, *[(0, n, False, None) for n in range(first, min(edges + 1, first + 5_000))])
    return builder


@pytest.mark.parametrize("edges", [EDGES, 20 * EDGES])
def test_a_join_of_a_hub_reads_as_much_whatever_its_edges(edges: int) -> None:
    drawn = 10
    builder = with_hub(Closure(max_new_pairs=drawn, max_new_triplets=drawn), edges, 40)
    before = read(builder)
    tell(builder, (0, edges + 1, True, None))
    assert read(builder) - before >= edges  # once, for the sums
    block = 1 << arrays.BLOCK_BITS
    for n in range(2, 40):
        before = read(builder)
        # The leaves change meanwhile, and the hub gets another edge.
        tell(builder, (n, n + 100, True, None), (0, edges + n, n % 3 > 0, None))
        # Two leaves that join, blocks that have changed, and a block for each draw; a triplet draws from one at most.
        assert read(builder) - before <= (2 * drawn + 8) * block


def mixed(seed: int, hub_edges: int, joins: int) -> list[list[Said]]:
    """Two hubs, whose leaves join each other, the hubs and others, and are dissimilar from one another."""
    rng = np.random.default_rng(seed)
    total = 2 * hub_edges
    said: list[Said] = [(0, n, False, None) for n in range(2, 2 + hub_edges)]
    said += [(1, n, False, None) for n in range(2 + hub_edges // 2, 2 + hub_edges + hub_edges // 2)]
    events = [said]
    for _ in range(joins):
        one, other = rng.integers(2, total, 2).tolist()
        hub = int(rng.integers(0, 2))
        likely = rng.random()
        if likely < 0.5:
            row: Said = (one, other, True, None)
        elif likely < 0.75:
            row = (hub, one, True, None)
        else:
            row = (one if likely < 0.9 else hub, other, False, None)
        if row[0] != row[1]:
            events.append([row])
    return [*events, [(0, 1, True, None)], [(0, total, True, None)]]


class Sets:
    """Components as sets of items, and which are dissimilar: what a relation adds, from all facts before and after."""

    def __init__(self) -> None:
        self.of: dict[int, frozenset[int]] = {}
        self.apart: dict[frozenset[int], set[frozenset[int]]] = {}

    def take(
        self, left: int, right: int, alike: bool, _: str | None = None
    ) -> tuple[set[Pair], set[Triplet]]:
        """Pairs with their sign, and triplets, that are new."""
        one, other = (self.of.setdefault(item, frozenset((item,))) for item in (left, right))
        for c in (one, other):
            self.apart.setdefault(c, set())
        if one == other or other in self.apart[one]:
            return set(), set()
        pairs, triplets = self._facts({one, other})
        if alike:
            joined = one | other
            around = self.apart.pop(one) | self.apart.pop(other)
            self.apart[joined] = around
            for c in around:
                self.apart[c] = self.apart[c] - {one, other} | {joined}
            self.of |= dict.fromkeys(joined, joined)
            now = self._facts({joined})
        else:
            self.apart[one].add(other)
            self.apart[other].add(one)
            now = self._facts({one, other})
        return now[0] - pairs, now[1] - triplets

    def _facts(self, parts: set[frozenset[int]]) -> tuple[set[Pair], set[Triplet]]:
        """Everything that components have a part in."""
        pairs: set[Pair] = {(frozenset(pair), True) for c in parts for pair in combinations(c, 2)}
        triplets: set[Triplet] = set()
        for c in parts:
            for d in self.apart[c]:
                pairs |= {(frozenset((a, b)), False) for a in c for b in d}
                for inner, outer in ((c, d), (d, c)):
                    triplets |= {(a, b, n) for a, b in permutations(inner, 2) for n in outer}
        return pairs, triplets


def adds(builder: Closure, reference: Sets, event: list[Said]) -> None:
    """Without limits each derived pair and triplet comes exactly once: every number stands for another one."""
    made = tell(builder, *event)
    pairs: set[Pair] = set()
    triplets: set[Triplet] = set()
    for row in event:
        new_pairs, new_triplets = reference.take(*row)
        pairs |= new_pairs
        triplets |= new_triplets
    found = [(pair, sign > 0) for pair, sign, *_ in pairs_of(made.blocks)]
    assert len(found) == len(set(found)) and set(found) == pairs
    found_triplets = triplets_of(made.blocks)
    assert len(found_triplets) == len(set(found_triplets)) and set(found_triplets) == triplets


@pytest.mark.parametrize("seed", range(3))
def test_what_a_hub_adds_is_the_fixpoint(seed: int) -> None:
    edges = arrays.HUB + 100
    builder, reference = unlimited(2 * edges + 1), Sets()
    for event in mixed(seed, edges, 60):
        adds(builder, reference, event)


@pytest.mark.parametrize("seed", range(4))
def test_a_builder_that_knows_nothing_of_its_hubs_yet_makes_the_same(seed: int) -> None:
    """Restored from a checkpoint before every few events, against one that goes on with what it keeps."""
    settings: dict[str, object] = {"max_new_pairs": 20, "max_new_triplets": 20, "max_component": 9}
    edges = arrays.HUB + 200
    warm, cold = closure(**settings), closure(**settings)
    start = items(range(2 * edges + 1))
    for builder in (warm, cold):
        builder.process(start, Origin(0))
    rng = np.random.default_rng(seed)
    for offset, event in enumerate(mixed(seed, edges, 60), 1):
        block = relations(event)
        assert repr(outputs(warm, block, offset)) == repr(outputs(cold, block, offset))
        if rng.random() < 0.2:
            gone = items([], [int(n) for n in rng.integers(2, 2 * edges, 2)])
            for builder in (warm, cold):
                builder.process(gone, Origin(1000 + offset))
        if rng.random() < 0.3:
            cold = restored(saved(cold), settings)
    assert saved(warm) == saved(cold)
    assert (warm._graph.parts.hubs[:, 0] >= 0).any()


def test_more_hubs_than_are_kept() -> None:
    hubs, leaves = len(Closure()._graph.parts.hubs) + 3, arrays.HUB + 10
    builder, reference = unlimited(hubs + leaves + 2 * hubs), Sets()
    adds(builder, reference, [(h, hubs + n, False, None) for h in range(hubs) for n in range(leaves)])
    for turn in range(2):
        for h in range(hubs):
            adds(builder, reference, [(h, hubs + leaves + turn * hubs + h, True, None)])
    assert (builder._graph.parts.hubs[:, 0] >= 0).all()
