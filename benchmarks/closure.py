"""The transitive closure: relations a second, its cost as items grow, its memory, and a networkx form beside it.

Items belong to classes; relations come in random order and join each item to an earlier one of its class, so that
classes grow together from pieces. Some relations in between say that items of two classes are dissimilar. What is
measured is the whole builder, from decoded blocks of relations to blocks of constraints with their vectors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from kinstream.processors.base.builder import Origin
from kinstream.processors.closure.closure import Closure
from kinstream.processors.registry import create
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.values import ItemBlock, RelationBlock, Table

D: Final = 16
#: Relations in a block.
BLOCK: Final = 2_000
#: Of all relations, those that say dissimilar.
DISSIMILAR: Final = 0.05
CLASS: Final = 1_000
TIMES: Final = 50.0
GROWTH: Final = 2.0
BYTES: Final = 200.0


@dataclass(frozen=True, slots=True)
class Data:
    """Relations between items below `count`: (n,) each."""

    count: int
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    similar: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.left)


def data(count: int, size: int, seed: int = 1) -> Data:
    """Relations that join `count` items to classes of `size`."""
    draw = np.random.default_rng(seed)
    items = draw.permutation(count)
    place = np.arange(count) % size
    rows = np.flatnonzero(place > 0)
    left = items[rows]
    right = items[rows - 1 - (draw.random(len(rows)) * place[rows]).astype(np.int64)]
    m = int(DISSIMILAR * len(rows))
    one = draw.integers(0, count, m)
    other = (one + size * draw.integers(1, max(2, count // size), m)) % count
    left, right = np.concatenate([left, items[one]]), np.concatenate([right, items[other]])
    similar = np.arange(len(left)) < len(rows)
    order = draw.permutation(len(left))
    return Data(count, left[order], right[order], similar[order])


def catalogue(builder: Closure, count: int) -> None:
    """Items of random vectors."""
    draw = np.random.default_rng(0)
    for first in range(0, count, 10_000):
        numbers = range(first, min(first + 10_000, count))
        vectors = draw.random((len(numbers), D), np.float32)
        ids = tuple(f"item-{number}" for number in numbers)
        builder.process(ItemBlock("shop", ids, (Table("x", vectors),), 0), Origin(first))


def blocks(relations: Data) -> Iterator[RelationBlock]:
    """The relations as a producer sends them."""
    for first in range(0, len(relations), BLOCK):
        rows = slice(first, first + BLOCK)
        left, right, similar = relations.left[rows], relations.right[rows], relations.similar[rows]
        ids, places = np.unique(np.concatenate([left, right]), return_inverse=True)
        yield RelationBlock(
            "shop",
            tuple(f"item-{number}" for number in ids.tolist()),
            places[: len(left)].astype(np.int32),
            places[len(left) :].astype(np.int32),
            similar,
            np.full(len(left), 1_000, np.int64),
            (),
            np.full(len(left), -1, np.int32),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What a run took and made."""

    builder: Closure
    seconds: float
    relations: int
    constraints: int
    contradictions: int

    @property
    def rate(self) -> float:
        return self.relations / self.seconds


def run_builder(relations: Data, **settings: Any) -> Run:
    """Time the builder over all relations, on a catalogue that is there."""
    builder = create("closure", from_labels=False, from_co_clicks=False, **settings)
    assert isinstance(builder, Closure)
    catalogue(builder, relations.count)
    waiting = list(blocks(relations))
    constraints = 0
    refused: list[BadRecord] = []
    began = time.perf_counter()
    for offset, block in enumerate(waiting):
        made = builder.process(block, Origin(offset))
        constraints += sum(map(len, made.blocks))
        refused += made.refused
    seconds = time.perf_counter() - began
    contradictions = builder.counts()["contradiction"]
    return Run(builder, seconds, len(relations), constraints, contradictions)


def straightforward(relations: Data, most: int) -> tuple[float, int, int]:
    """The closure as one writes it with networkx: two graphs, components by search, products as lists.

    Returns
    -------
    Seconds, pairs that it made, contradictions.
    """
    similar, dissimilar = nx.Graph(), nx.Graph()
    similar.add_nodes_from(range(relations.count))
    dissimilar.add_nodes_from(range(relations.count))
    draw = random.Random(0)
    made = contradictions = 0
    rows = list(
        zip(relations.left.tolist(), relations.right.tolist(), relations.similar.tolist(), strict=True)
    )
    began = time.perf_counter()
    for left, right, alike in rows:
        one = nx.node_connected_component(similar, left)
        other = nx.node_connected_component(similar, right)
        next_to_one = {item for member in one for item in dissimilar[member]}
        apart = not next_to_one.isdisjoint(other)
        if left in other or apart:
            contradictions += (left in other) != alike
            continue
        new = [(a, b, alike) for a, b in product(one, other) if (a, b) != (left, right)]
        if alike:
            next_to_other = {item for member in other for item in dissimilar[member]}
            for side, near, far in ((other, next_to_one, next_to_other), (one, next_to_other, next_to_one)):
                met: set[int] = set()
                for item in near:
                    if item not in met:
                        component = nx.node_connected_component(similar, item)
                        met |= component
                        if far.isdisjoint(component):
                            new += [(a, b, False) for a, b in product(side, component)]
        made += 1 + len(draw.sample(new, min(most, len(new))))
        (similar if alike else dissimilar).add_edge(left, right)
    return time.perf_counter() - began, made, contradictions


def against_networkx(quick: bool) -> list[Figure]:
    """The same pairs, capped, from the same relations; components as large as they may be, and small ones."""
    count = 4_000 if quick else 20_000
    figures = []
    for size, wanted in ((CLASS, TIMES), (100, None)):
        relations = data(count, size)
        ours = run_builder(relations, emit="pairs")
        seconds, made, contradictions = straightforward(relations, 50)
        if (made, contradictions) != (ours.constraints, ours.contradictions):
            raise AssertionError(f"networkx made {made} pairs, {contradictions} contradictions; we {ours}")
        facts = {
            "relations": len(relations),
            "networkx_seconds": seconds,
            "seconds": ours.seconds,
            "pairs": made,
        }
        name = f"{count:,} items in classes of {size:,}, over networkx"
        figures.append(Figure("closure", name, seconds / ours.seconds, "times", at_least=wanted, facts=facts))
    return figures


def memory(builder: Closure) -> float:
    """Bytes, without the vectors."""
    features = sum(vectors.nbytes for vectors in builder._catalogue.rows()[1])
    return float(builder.nbytes - features)


def at_scale(quick: bool) -> list[Figure]:
    """A million items in classes as large as a component may be, and the same with a hundredth of them."""
    large, small = (100_000, 10_000) if quick else (1_000_000, 10_000)
    figures = []
    ways: dict[str, dict[str, Any]] = {
        "seeds alone": {"emit": "pairs", "budget": 0.0},
        "pairs, 50 a seed": {"emit": "pairs"},
        "pairs and triplets, 50 a seed": {"emit": "both"},
    }
    for name, settings in ways.items():
        few = [run_builder(data(small, CLASS, seed), **settings) for seed in range(1 if quick else 5)]
        found = run_builder(data(large, CLASS), **settings)
        facts = {"seconds": found.seconds, "relations": found.relations, "constraints": found.constraints}
        label = f"{large:,} items in classes of {CLASS:,}, {name}"
        figures.append(Figure("closure", label, found.rate, "relations/s", facts=facts))
        slowest = sum(run.seconds for run in few) / sum(run.relations for run in few)
        growth = found.seconds / found.relations / slowest
        figures.append(
            Figure("closure", f"the same, cost to {small:,} items", growth, "times", at_most=GROWTH)
        )
        if name == "seeds alone":
            figures += [
                Figure(
                    "closure",
                    "memory besides vectors",
                    memory(found.builder) / large,
                    "bytes/item",
                    goal=BYTES,
                ),
                replayed(found.builder),
            ]
    return figures


def uncapped(quick: bool) -> list[Figure]:
    """Everything that follows, in small classes: pairs grow with the square, triplets with the cube."""
    count = 100_000 if quick else 1_000_000
    figures = []
    for size, emit in ((100, "pairs"), (10, "both")):
        relations = data(count // 10 if emit == "pairs" else count, size)
        found = run_builder(relations, emit=emit, max_new_pairs=0, max_new_triplets=0, max_component=0)
        label = f"{relations.count:,} items in classes of {size}, {emit}, no caps"
        facts = {"seconds": found.seconds, "relations": found.relations, "constraints": found.constraints}
        figures.append(Figure("closure", label, found.rate, "relations/s", facts=facts))
        figures.append(
            Figure("closure", "the same, constraints", found.constraints / found.seconds, "constraints/s")
        )
    return figures


def replayed(builder: Closure) -> Figure:
    """Seconds to make a builder again from its checkpoint."""
    state = builder.state()
    parts = {name: builder.segment(name) for name in builder.segments()}
    again = Closure(emit=builder.emit, budget=builder.budget, from_labels=False, from_co_clicks=False)
    began = time.perf_counter()
    again.restore(state)
    again.restore_segments(parts.__getitem__)
    return Figure("closure", "restored from its checkpoint", time.perf_counter() - began, "s")


def run(quick: bool) -> list[Figure]:
    """All figures of the closure."""
    # Compiled, or read from the cache, before anything is timed.
    for emit in ("pairs", "both"):
        run_builder(data(200, 20), emit=emit)
    return against_networkx(quick) + at_scale(quick) + uncapped(quick)
