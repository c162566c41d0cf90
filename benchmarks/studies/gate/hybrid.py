"""How the gate decides between rankings by more than a vector: similarity, BM25, half and half, and `ranking`.

MiniLM's docstrings, as in `benchmarks.studies.ranking text`: `ranking` has learned 5,268 lists of half and half. Then
people ask 1,500 queries that nobody has asked before, drawn with replacement, and see drafted lists of ten; the
challengers come one after the other, with the gate's defaults, as in `comparison`.

Example:
  python -m benchmarks.studies.gate.hybrid --seeds 30 31 32 33
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.studies.gate.comparison import STEP_MS, Series, answers
from benchmarks.studies.gate.corpora import DEPTH, Ranking, Rows
from benchmarks.studies.gate.people import Flags
from benchmarks.studies.ranking import HALF, LISTS, PLACES, TESTED, corpus_of
from kinstream.evaluation.queries.baselines import Scores
from kinstream.evaluation.queries.signals import HALF_AND_HALF, Signals
from kinstream.evaluation.queries.split import Split, split
from kinstream.gate.values import Options
from kinstream.learners.ranking import learner
from kinstream.producers.simulated.searchers import Searchers
from kinstream.streams.compute.blas_threads import one_blas_thread

#: Lists of a run, those of pauses included.
MOST: Final = 12_000
#: Who serves, and who challenges.
PAIRS: Final = (
    ("similarity", "half and half"),
    ("half and half", "ranking"),
    ("half and half", "BM25"),
    ("half and half", "similarity"),
)


def rankings(name: str, seed: int) -> tuple[Split, dict[str, Ranking]]:
    """The best of each tested query, (q, `DEPTH`) by ranking."""
    corpus = corpus_of(name)
    signals = Signals(corpus)
    assert signals.text is not None
    parts = split(corpus.queries, corpus.items, seed, len(corpus.queries) - TESTED, TESTED)
    best, scores = signals.shown(parts.learned, PLACES)
    model = learner.Ranking(HALF)
    for block in parts.clicks(parts.searches(Searchers(), LISTS, seed, best), scores=scores):
        model.learn(block)
    ways: dict[str, Scores] = {
        "similarity": signals.similarity,
        "BM25": signals.text,
        "half and half": signals.blended(HALF_AND_HALF),
        "ranking": signals.blended(model.blend, partial(_mapped, model)),
    }
    return parts, {way: _best(scored, parts) for way, scored in ways.items()}


def _mapped(model: learner.Ranking, queries: Rows) -> Rows:
    moved = np.asarray(model.scale(queries) @ model.W)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True))


def _best(scores: Scores, parts: Split) -> Ranking:
    pieces = np.array_split(parts.tested, 6)
    return np.concatenate([np.argsort(-scores(rows), axis=1, kind="stable")[:, :DEPTH] for rows in pieces])


def measured(name: str, seed: int) -> dict[str, Any]:
    """By pair: change of NDCG@10, lists until the promotion (None: none), and how comparisons ended."""
    parts, found = rankings(name, seed)
    right = parts.tested
    gains = {way: _gain(one == right[:, None]) for way, one in found.items()}
    result: dict[str, Any] = {}
    for serving, candidate in PAIRS:
        series = Series(
            found[serving], found[candidate], answers(right), seed, Options(min_learned=0), STEP_MS
        )
        promoted, ended = series.played(MOST)
        change = round(100.0 * (gains[candidate] / gains[serving] - 1.0), 1)
        result[f"{serving} -> {candidate}"] = {"change": change, "promoted": promoted, "ended": dict(ended)}
    return result


def _gain(right: Flags) -> float:
    return float((right[:, :10] / np.log2(np.arange(2, 12))).sum(axis=1).mean())


def main() -> None:
    """Print a line of JSON for each seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", nargs="+", default=["scientific"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    a = parser.parse_args()
    with one_blas_thread():
        for name in a.corpora:
            for seed in a.seeds:
                print(json.dumps({"corpus": name, "seed": seed} | measured(name, seed)), flush=True)


if __name__ == "__main__":
    main()
