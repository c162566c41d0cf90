"""What weights beside the map cost: whole lists a second of `ranking` and `adapter`, and the blend of a query.

Lists of twenty with six scores, so eight signals, of 384 features; clicks by the simulator. Both learners get the same
blocks, in turns. Times are the thread's, the least of several tries for each block.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.figures import Figure
from kinstream.evaluation.queries.split import split
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.registry import create
from kinstream.producers.simulated.searchers import Searchers
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ConstraintBlock

FEATURES: Final = 384
ITEMS: Final = 1_500
SCORES: Final = 6
NAMES: Final = [f"score {k}" for k in range(SCORES)]
CANDIDATES: Final = 200
LEAST_SHARE: Final = 80.0
MOST_MS: Final = 0.3


def figures(quick: bool = False) -> list[Figure]:
    """The two figures; `quick` takes fewer tries."""
    with one_blas_thread():
        lists, tries = (800, 4) if quick else (3_000, 9)
        made = blocks(lists)
        times = {kind: np.empty((tries + 1, len(made))) for kind in ("adapter", "ranking")}
        for attempt in range(tries + 1):
            for kind, found in times.items():
                learner = create(kind)
                for at, block in enumerate(made):
                    begun = time.thread_time()
                    learner.learn(block)
                    found[attempt, at] = time.thread_time() - begun
        # The least of each block: whatever else runs on the machine only adds to it.
        best = {kind: lists / float(found.min(axis=0).sum()) for kind, found in times.items()}
        share = 100.0 * best["ranking"] / best["adapter"]
        title = f"ranking, d = {FEATURES}, {SCORES + 2} signals: share of adapter's lists a second"
        return [
            Figure("whole-lists", title, share, "%", at_least=LEAST_SHARE, facts={"lists a second": best}),
            Figure(
                "whole-lists",
                f"blend of {CANDIDATES} candidates, {SCORES + 2} signals",
                _blend_ms(200 if quick else 2_000),
                "ms",
                at_most=MOST_MS,
            ),
        ]


def blocks(lists: int, d: int = FEATURES, names: Sequence[str] = NAMES) -> list[ConstraintBlock]:
    """What the builder makes of lists with scores."""
    draw = np.random.default_rng(1)
    items = draw.normal(size=(ITEMS, d)).astype(np.float32)
    queries = (items + draw.normal(size=items.shape)).astype(np.float32)
    parts = split(queries, items, 0, ITEMS - 100, 100)
    people = Searchers()
    scores = {name: draw.normal(size=(len(parts.learned), people.shown)) for name in names}
    return [*parts.clicks(parts.searches(people, lists, 0), scores=scores)]


def _blend_ms(tries: int) -> float:
    draw = np.random.default_rng(0)
    names = tuple(f"signal {k}" for k in range(SCORES + 2))
    blend = Blend(names, draw.normal(size=len(names)), draw.uniform(0.5, 2.0, size=len(names)))
    signals = {name: draw.normal(size=CANDIDATES) for name in names}
    found = []
    for _ in range(tries):
        begun = time.perf_counter()
        blend(signals)
        found.append(time.perf_counter() - begun)
    return 1_000.0 * float(np.median(found))
