"""Whether learning from clicks improves rankings of embeddings, and leaves those alone that fit already.

4,000 items and 3,000 queries of 40 topics are vectors of length 1 in 384 dimensions. A topic is a direction among 24;
items differ from it by noise there, and all vectors have 8 loud directions that say nothing. Each query is shown ten
items, drawn from the 40 that are nearest to it in the embedding. Place r is looked at with probability r^-1/2; an item
of the query's topic is clicked with .9 then, another one with .02. A clicked item is preferred to those above it that
were not. NDCG@10 is that of 1,000 other queries, and of 1,000 of those, over all items, relevant being those of their
topic.

Example: python -m benchmarks.studies.clicked_embeddings --learner mixture --seeds 3
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.blocks import constraint_block
from kinstream.learners.base.learner import Learner
from kinstream.learners.distances import between
from kinstream.learners.registry import create
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ConstraintBlock

Rows = NDArray[np.float64]
Codes = NDArray[np.int64]

ITEMS, QUERIES, TESTED, TOPICS = 4_000, 3_000, 1_000, 40
DIMENSIONS, TOPICAL, LOUD = 384, 24, 8
NEAR, SHOWN, LISTS = 40, 10, 60
#: Noise within a topic, and length of the loud part: where cosine fails, and where it fits.
WORLDS: Final = {"loud": (0.9, 1.5), "fits": (1.2, 0.8)}


class World:
    """Items and queries with their topics.

    Parameters
    ----------
    noise : length of an item's difference from its topic.
    loud : length of its part in directions that say nothing.
    """

    def __init__(self, seed: int, noise: float, loud: float) -> None:
        self._draw = np.random.default_rng(seed)
        self._noise, self._loud = noise, loud
        axes = np.linalg.qr(self._draw.normal(size=(DIMENSIONS, TOPICAL + LOUD)))[0].T
        self._topical, self.idle = axes[:TOPICAL], axes[TOPICAL:]
        topics = self._draw.normal(size=(TOPICS, TOPICAL))
        self._topics = topics / np.linalg.norm(topics, axis=1, keepdims=True)
        self.items, self.topics = self._vectors(ITEMS)
        self.queries, self.wanted = self._vectors(QUERIES)
        self.tested, self.sought = self._vectors(TESTED)

    def _vectors(self, n: int) -> tuple[Rows, Codes]:
        draw = self._draw
        topics = draw.integers(0, TOPICS, n)
        inner = self._topics[topics] + self._noise * draw.normal(size=(n, TOPICAL)) / np.sqrt(TOPICAL)
        idle = self._loud * draw.normal(size=(n, LOUD)) / np.sqrt(LOUD)
        rest = 0.3 * draw.normal(size=(n, DIMENSIONS)) / np.sqrt(DIMENSIONS)
        X = inner @ self._topical + idle @ self.idle + rest
        return X / np.linalg.norm(X, axis=1, keepdims=True), topics

    def blocks(self) -> list[ConstraintBlock]:
        """What the clicks on 60 lists each say."""
        draw = self._draw
        near = np.argsort(between(self.queries, self.items), axis=1)[:, :NEAR]
        found = []
        for first in range(0, QUERIES, LISTS):
            vectors: list[Rows] = []
            index: list[tuple[int, int, int]] = []
            events: list[int] = []
            for q in range(first, first + LISTS):
                shown = draw.choice(near[q], SHOWN, replace=False)
                looked = draw.random(SHOWN) < np.arange(1, SHOWN + 1) ** -0.5
                likely = np.where(self.topics[shown] == self.wanted[q], 0.9, 0.02)
                clicked = looked & (draw.random(SHOWN) < likely)
                at = len(vectors)
                vectors += [self.queries[q], *self.items[shown]]
                for c in np.flatnonzero(clicked):
                    for other in np.flatnonzero(~clicked[:c]):
                        index.append((at, at + 1 + int(c), at + 1 + int(other)))
                        events.append(q - first + 1)
            block = constraint_block({"x": np.array(vectors)}, np.array(index, np.int32))
            found.append(replace(block, events=np.array(events, np.int32), rules=("click-skip-above",)))
        return found

    def ndcg(self, queries: Rows, sought: Codes, items: Rows) -> float:
        """NDCG@10 of queries (q, d) of topics (q,), by squared Euclidean distance."""
        best = np.argsort(between(queries, items), axis=1, kind="stable")[:, :10]
        gains = self.topics[best] == sought[:, None]
        worth = 1.0 / np.log2(np.arange(2, 12))
        return float(np.mean(gains @ worth) / worth.sum())


def main() -> None:
    """Print a row for each world and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--learner", default="mixture")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    a = parser.parse_args()
    print(
        f"| embeddings | seed | triplets | cosine, never asked | asked | {a.learner}, never asked | asked |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (noise, loud) in WORLDS.items():
        for seed in range(a.first_seed, a.first_seed + a.seeds):
            world = World(seed, noise, loud)
            learner: Any = create(a.learner, **a.settings)
            triplets = learned(learner, world)
            measured = [
                f"{world.ndcg(to(queries), sought, to(world.items)):.3f}"
                for to in (np.asarray, lambda X, of=learner: np.asarray(of.transform(X), np.float64))
                for queries, sought in (
                    (world.tested, world.sought),
                    (world.queries[:TESTED], world.wanted[:TESTED]),
                )
            ]
            print(f"| {name} | {seed} | {triplets} | {' | '.join(measured)} |", flush=True)


def learned(learner: Learner, world: World) -> int:
    """Let it learn all lists; how many triplets these gave."""
    blocks = world.blocks()
    with one_blas_thread():
        for block in blocks:
            learner.learn(block)
    return sum(map(len, blocks))


if __name__ == "__main__":
    main()
