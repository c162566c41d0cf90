"""What `ranking` with a memory, as `kinstream init` writes it, gains soon on queries that people ask.

On the logs of `benchmarks.studies.adapter_defaults`, beside `adapter` and the defaults of adapter/1: means over seeds
of changes of NDCG@10 against no adaptation in percent, never asked / asked. A seed is that of the split, too. Results:
`benchmarks/studies/adapter_defaults.md`.

Example: python -m benchmarks.studies.asked_gains --corpora scientific --seeds 300
"""

from __future__ import annotations

import argparse
from typing import Any, Final

import numpy as np

from benchmarks.real_embeddings.corpora import opened
from benchmarks.real_embeddings.trial import Quality, Trial, map_of, trial
from benchmarks.studies.adapter_defaults import CONDITIONS, CONTENDERS
from benchmarks.studies.memory import Asked, as_served
from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.signals import ADAPTED, SIMILARITY

SIZES: Final = (250, 500, 1_000, 2_000)
REMEMBERED: Final = 10_000


def quality(model: Ranking, one: Trial) -> Quality:
    """As a service answers: what is remembered by one blend, and the rest by the other."""
    queries, items = one.corpus.queries, one.corpus.items
    found = []
    for rows in (one.never, one.asked):
        moved = map_of(model)(queries[rows])
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        some = Asked(queries[rows], None, rows, np.ones(len(rows)), np.full(len(rows), -1))
        found.append(as_served(model, some, {ADAPTED: moved @ items.T, SIMILARITY: queries[rows] @ items.T}))
    return Quality(*found)


def changes(name: str, condition: str, seed: int) -> dict[str, list[Quality]]:
    """Of each learner after each number of lists."""
    people = CONDITIONS[condition]
    one = trial(opened(name), seed, seed, SIZES[-1], people.who, asked=people.asked)
    before = one.quality()
    learners: dict[str, Any] = {
        "ranking": Ranking(remember=REMEMBERED, seed=seed),
        "adapter": Adapter(seed=seed),
        "adapter/1": Adapter(seed=seed, **CONTENDERS["adapter/1"]),
    }
    found: dict[str, list[Quality]] = {name: [] for name in learners}
    for lists, blocks in one.constraints():
        for kind, learner in learners.items():
            for block in blocks:
                learner.learn(block)
            if lists in SIZES:
                after = quality(learner, one) if kind == "ranking" else one.quality(map_of(learner))
                found[kind].append(after.change(before))
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", nargs="+", default=["scientific", "mathematics"])
    parser.add_argument("--conditions", nargs="+", default=["500 queries", "2 % wrong clicks"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[300, 301, 302])
    a = parser.parse_args()
    print("| corpus, clicks | learner | " + " | ".join(f"{size:,}" for size in SIZES) + " |")
    print("|---" * (len(SIZES) + 2) + "|")
    with one_blas_thread():
        for name in a.corpora:
            for condition in a.conditions:
                runs = [changes(name, condition, seed) for seed in a.seeds]
                for kind in runs[0]:
                    means = np.mean([one[kind] for one in runs], axis=0)
                    cells = " | ".join(f"{never:+.1f} / {asked:+.1f}" for never, asked in means)
                    print(f"| {name}, {condition} | `{kind}` | {cells} |", flush=True)


if __name__ == "__main__":
    main()
