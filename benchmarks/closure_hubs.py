"""The closure where it is lopsided: an item with many dissimilar ones, long chains, contradictions, names.

Beside what takes time now stands the form that reads all there is: every name of a segment for one of them, and every
edge of a hub for one join.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from benchmarks.closure import catalogue
from benchmarks.figures import Figure
from kinstream.processors.base.builder import Origin
from kinstream.processors.closure import arrays as arrays
from kinstream.processors.closure.closure import Closure
from kinstream.processors.closure.item_log import SEGMENT
from kinstream.streams.records.values import RelationBlock

BLOCK: Final = 4_000
#: What is asked: times faster than reading everything, and milliseconds for a join of a hub of 100,000 edges.
TIMES: Final = 20.0
JOIN_MS: Final = 1.0


def tell(builder: Closure, left: list[int], right: list[int], similar: bool) -> None:
    """Relations in blocks."""
    for first in range(0, len(left), BLOCK):
        rows = slice(first, first + BLOCK)
        ids, places = np.unique(np.array([left[rows], right[rows]]), return_inverse=True)
        one, other = places.reshape(2, -1).astype(np.int32)
        n = len(one)
        block = RelationBlock(
            "shop",
            tuple(f"item-{number}" for number in ids.tolist()),
            one,
            other,
            np.full(n, similar, np.bool_),
            np.full(n, 1_000, np.int64),
            (),
            np.full(n, -1, np.int32),
        )
        builder.process(block, Origin(first))


def each(work: Callable[[int], object], numbers: range) -> float:
    """Median seconds of a call."""
    taken = []
    for number in numbers:
        began = time.perf_counter()
        work(number)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken))


def hub(edges: int, joins: int = 40) -> tuple[float, float]:
    """Milliseconds of a join of a hub of so many edges, and of one that has to read them all."""
    builder = Closure(from_labels=False, from_co_clicks=False)
    catalogue(builder, edges + 2 * joins + 2)
    tell(builder, [0] * edges, list(range(1, edges + 1)), similar=False)

    def join(number: int) -> None:
        tell(builder, [0], [number], similar=True)

    def join_anew(number: int) -> None:
        builder._graph.parts.numbers[arrays.HUBS] = 0
        join(number)

    join(edges + 1)
    warm = each(join, range(edges + 2, edges + 2 + joins))
    return 1e3 * warm, 1e3 * each(join_anew, range(edges + 2 + joins, edges + 2 + 2 * joins))


def chain(items: int) -> Closure:
    """Items each of which is similar to the next."""
    builder = Closure(max_new_pairs=1, max_new_triplets=1, from_labels=False, from_co_clicks=False)
    catalogue(builder, items)
    tell(builder, list(range(items - 1)), list(range(1, items)), similar=True)
    return builder


def all_names(builder: Closure, number: int) -> str:
    """A name from its whole segment decoded."""
    text, ends = builder._items._sealed[number // SEGMENT]
    return [text[a:b].decode() for a, b in pairwise([0, *ends.tolist()])][number % SEGMENT]


def figures(quick: bool) -> list[Figure]:
    """Joins of hubs, names, contradictions, explanations."""
    found = []
    for edges in (1_000, 20_000 if quick else 100_000):
        warm, cold = hub(edges)
        facts = {"reading_all_edges_ms": cold}
        name = f"a hub of {edges:,} dissimilar edges: a join"
        found.append(Figure("closure-hubs", name, warm, "ms", at_most=JOIN_MS, facts=facts))
    length = 20_000 if quick else 150_000
    builder = chain(length)
    name_now = each(lambda n: builder._items.name(7 * n), range(1_000))
    name_all = each(lambda n: all_names(builder, 7 * n), range(50))
    found.append(Figure("closure-hubs", "the name of an item", 1e6 * name_now, "us"))
    over = name_all / name_now
    found.append(Figure("closure-hubs", "the same, over decoding its segment", over, "times", at_least=TIMES))
    refused = each(lambda n: tell(builder, [n], [n + 5_000], similar=False), range(100))
    found.append(Figure("closure-hubs", "a contradictory relation", 1e3 * refused, "ms"))
    for links in (1_000, length - 1):
        seconds = each(lambda n, links=links: builder.explain("item-0", f"item-{links}"), range(3))  # type: ignore[misc]
        found.append(Figure("closure-hubs", f"explaining a chain of {links:,}", seconds, "s"))
    return found
