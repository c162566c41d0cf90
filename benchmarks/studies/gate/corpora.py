"""The two corpora of the study: searches of the Python documentation, and synthetic topics under loud directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.clicked_embeddings import WORLDS, World
from kinstream.producers.simulated.documentation import corpus

Rows = NDArray[np.floating[Any]]
Ranking = NDArray[np.int64]
Answers = Callable[[Ranking, Ranking], NDArray[np.bool_]]

NAMES: Final = ("documents", "synthetic")
#: Items of a list, and those of a ranking that may enter it.
SHOWN, DEPTH = 10, 30
_TESTED: Final = 1_500
_WORTH: Final = 1.0 / np.log2(np.arange(2, SHOWN + 2))


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Items, queries that people ask, and others that are measured.

    Parameters
    ----------
    items, asked, tested : (n, d), (q, d) and (t, d), of length 1.
    answers, tested_answers : whether items (m, k) answer asked, or tested, queries, given by number: (m, 1).
    best : NDCG@10 of ideal rankings, by which others are divided.
    better : (d, d), a map of queries that is known to improve rankings.
    """

    items: Rows
    asked: Rows
    tested: Rows
    answers: Answers
    tested_answers: Answers
    best: float
    better: Rows

    def ndcg(self, mapped: Rows) -> float:
        """NDCG@10 of tested queries (t, d) that are mapped already."""
        return self._ndcg(ranked(mapped, self.items, SHOWN), self.tested_answers)

    def ndcg_asked(self, mapped: Rows) -> float:
        """The same of the first queries that are asked."""
        return self._ndcg(ranked(mapped, self.items, SHOWN), self.answers)

    def of_quality(self, change: float) -> tuple[Ranking, Ranking]:
        """(q, `DEPTH`) rankings of the asked queries: un-adapted, and with an NDCG@10 that differs by that share.

        Raises
        ------
        SystemExit : no map on the way to the better one, or away from it, has that quality.
        """
        queries = np.asarray(self.asked, np.float64)
        towards = queries @ (self.better - np.eye(self.better.shape[0]))

        def at(way: float) -> Ranking:
            return ranked(queries + way * towards, self.items, DEPTH)

        plain = at(0.0)
        if not change:
            return plain, plain
        base = self._ndcg(plain, self.answers)
        low, high = (0.0, 1.0) if change > 0 else (-4.0, 0.0)
        for _ in range(14):
            middle = (low + high) / 2
            above = self._ndcg(at(middle), self.answers) / base - 1 > change
            low, high = (low, middle) if above else (middle, high)
        found = at((low + high) / 2)
        reached = self._ndcg(found, self.answers) / base - 1
        if abs(reached - change) > 0.01:
            raise SystemExit(f"no map changes NDCG@10 by {change:+.0%}; the nearest by {reached:+.1%}")
        return plain, found

    def _ndcg(self, ranking: Ranking, answers: Answers) -> float:
        gains = answers(np.arange(len(ranking))[:, None], ranking[:, :SHOWN]) @ _WORTH
        return float(gains.mean()) / self.best


def ranked(queries: Rows, items: Rows, size: int) -> Ranking:
    """(q, size) nearest items by inner product, best first."""
    scores = queries @ items.T
    some = np.argpartition(scores, -size, axis=1)[:, -size:]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
    found: Ranking = np.take_along_axis(some, order, axis=1)
    return found


@cache
def opened(name: str, file: Path, seed: int = 0) -> Corpus:
    """A corpus by name.

    Parameters
    ----------
    file : NPZ of the documentation; made where it is not there, in about a minute.
    seed : of the synthetic corpus, and of which queries of the documentation are asked.
    """
    return _synthetic(seed) if name == "synthetic" else _documents(file, seed)


def _synthetic(seed: int) -> Corpus:
    """The better map leaves the loud directions out. Ten items of the topic are ideal."""
    world = World(seed, *WORLDS["loud"])
    return Corpus(
        world.items.astype(np.float32),
        world.queries.astype(np.float32),
        world.tested.astype(np.float32),
        lambda queries, items: world.topics[items] == world.wanted[queries],
        lambda queries, items: world.topics[items] == world.sought[queries],
        float(_WORTH.sum()),
        np.eye(world.items.shape[1]) - world.idle.T @ world.idle,
    )


def _documents(file: Path, seed: int) -> Corpus:
    """The better map is the ridge regression of items on queries. It has seen the queries: only quality matters."""
    if not file.exists():
        made = corpus()
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, queries=made.queries, items=made.items)
    with np.load(file) as found:
        queries, items = np.asarray(found["queries"], np.float32), np.asarray(found["items"], np.float32)
    order = np.random.default_rng([seed, 1]).permutation(len(queries))
    tested, asked = order[:_TESTED], order[_TESTED:]
    Q = queries.astype(np.float64)
    better = np.linalg.solve(Q.T @ Q + np.eye(Q.shape[1]), Q.T @ items)
    return Corpus(
        items,
        queries[asked],
        queries[tested],
        lambda numbers, shown: shown == asked[numbers],
        lambda numbers, shown: shown == tested[numbers],
        1.0,
        better,
    )
