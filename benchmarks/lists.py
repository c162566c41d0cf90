"""What it costs to judge all triplets of a result list before any of them is learned.

Blocks of lists of ten: a query, ten items, one click, and so nine triplets that share the query and the clicked item.
The same blocks are learned with their events and without, by two learners, one after the other. What is learned is the
same; the share that the verdicts cost beside it is largest where little is learned, so there are two streams: one that
never reaches the margin, and one in which clicked items are close to their queries.

Times are the thread's: all of this runs on one thread.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks.blocks import constraint_block
from benchmarks.figures import Figure
from kinstream.learners.base.learner import Learner
from kinstream.learners.registry import create
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ConstraintBlock

DIMENSIONS: Final = (64, 310, 784)
DTYPES: Final = ("float32", "float64")
#: Settings by kind of learner, none of which takes long to warm up.
LEARNERS: Final[dict[str, dict[str, Any]]] = {
    "opml": {"gamma": 0.01, "unit": "published"},
    "oasis": {"aggressiveness": 0.01, "unit": "published"},
    "sors": {"unit": "published"},
    "soml-tg": {"unit": "published"},
    "lego": {"eta": 0.1, "unit": "published", "warm_up": 64},
    "oahu": {},
    "pola": {"cap": 0.01},
    "rdml": {"learning_rate": 0.01, "start": "identity"},
    "mdml": {"eta": 0.1},
    "omdml": {},
    "lomdml": {},
    "omks": {"warm_up": 64},
    "kernel-lego": {"warm_up": 64},
    "euclidean": {"warm_up": 64},
}
#: Share of the time without events that verdicts may cost.
ALLOWED: Final = 0.5
ITEMS: Final = 10
#: Lists of a block by dimension: the first block of each stream warms up and compiles.
LISTS: Final = {64: 120, 310: 48, 784: 32}
_REPEATS: Final = {64: 16, 310: 8, 784: 4}
#: Seconds that all repeats take at least, unless there are so many times as many.
SHORT: Final = 0.1
LONGEST: Final = 10


def block_of_lists(d: int, lists: int, near: bool, seed: int) -> ConstraintBlock:
    """Nine triplets (query, clicked, not clicked) of each list.

    Parameters
    ----------
    near : whether clicked items lie beside their queries, and lists far apart; otherwise all lie by chance.
    """
    draw = np.random.default_rng((seed, d))
    X = draw.normal(size=(lists, 1 + ITEMS, d)) * np.sqrt((20.0 if near else 0.2) / d)
    if near:
        X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    rows = np.arange(lists * (1 + ITEMS)).reshape(lists, 1 + ITEMS)
    index = np.stack(np.broadcast_arrays(rows[:, :1], rows[:, 1:2], rows[:, 2:]), axis=2).reshape(-1, 3)
    events = np.repeat(np.arange(1, lists + 1, dtype=np.int32), ITEMS - 1)
    return replace(constraint_block({"x": X.reshape(-1, d)}, index), events=events)


def _seconds(learner: Learner, block: ConstraintBlock) -> tuple[float, float]:
    """Of one block, and the share of it that changed the model."""
    begun = time.thread_time()
    outcomes = learner.learn(block)
    return time.thread_time() - begun, float(outcomes.utilised.mean())


def cost(kind: str, d: int, dtype: str, near: bool, repeats: int) -> Figure:
    """By how much events lengthen the learning of the same blocks."""
    settings = LEARNERS[kind] | {"dtype": dtype}
    judging, plain = create(kind, **settings), create(kind, **settings)
    with_events: list[float] = []
    without: list[float] = []
    active: list[float] = []
    number = 0
    # Short blocks are repeated until their fastest is known.
    while number <= repeats or (number <= LONGEST * repeats and sum(without) < SHORT):
        block = block_of_lists(d, LISTS[d], near, number)
        # Whoever comes first finds a block that is in no cache.
        turns = ((judging, block), (plain, replace(block, events=None)))
        found = [_seconds(*turn) for turn in (turns if number % 2 else turns[::-1])]
        if number:
            first, second = found if number % 2 else found[::-1]
            with_events.append(first[0])
            without.append(second[0])
            active.append(first[1])
        number += 1
    m = LISTS[d] * (ITEMS - 1)
    # The fastest of both: what else the machine does makes either only slower.
    extra = min(with_events) / min(without) - 1.0
    stream = "near" if near else "by chance"
    return Figure(
        "lists",
        f"{kind}, d = {d}, {dtype}, {stream} ({100 * np.mean(active):.0f} % active): more with events",
        100.0 * extra,
        "%",
        at_most=100.0 * ALLOWED,
        facts={"with": min(with_events) / m, "without": min(without) / m, "constraints": m},
    )


def figures(quick: bool) -> list[Figure]:
    """All learners, sizes and types, over both streams."""
    with one_blas_thread():
        return [
            cost(kind, d, dtype, near, 2 if quick else _REPEATS[d])
            for kind in LEARNERS
            for d in DIMENSIONS
            for dtype in DTYPES
            for near in (False, True)
        ]
