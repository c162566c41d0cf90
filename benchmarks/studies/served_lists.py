"""Whether lists that a learned model ranked, or drafted with the un-learned order, are judged better than others.

Two made-up corpora, as in tests/learners/test_judge_of_spaces.py: queries lack much or little of what items have. Fifty
lists are shown at a time: by the un-learned similarity, by the newest model, or drafted from both by a coin at each
pair of picks. What is printed is the truth and what is judged after 3,000 lists, as in
`benchmarks.studies.judged_lists`, and the mean error by how lists were ranked. What came out is in judged_lists.md.

Example: python -m benchmarks.studies.served_lists --first-seed 500
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.real_embeddings.corpora import Corpus, made_up
from benchmarks.real_embeddings.trial import SPACE, Trial, ndcg, trial
from benchmarks.studies.judged_lists import PEOPLES, SHARE, Found, learner_of, made, quality
from kinstream.learners.held_out.judge import Judge
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import LIST_RULE, ItemBlock

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

RANKED: Final = ("un-learned", "newest model", "drafted")
MISSING: Final = (1.6, 0.7)
LEARNERS: Final = ("default", "rank 64, step 1")
TOGETHER: Final = 50


def best(queries: Rows, items: Rows, shown: int) -> Numbers:
    """(q, shown) the items of the largest inner product."""
    return np.argsort(-(queries @ items.T), axis=1, kind="stable")[:, :shown]


def drafted(first: Numbers, second: Numbers, draw: np.random.Generator) -> Numbers:
    """Each side picks in turn what is not there yet; a coin says who is first of two picks."""
    found = np.empty_like(first)
    for i, sides in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        picks: dict[int, None] = {}
        while len(picks) < first.shape[1]:
            for side in draw.permutation(2):
                picks.setdefault(next(item for item in sides[side] if item not in picks))
        found[i] = [*picks][: first.shape[1]]
    return found


def clicked(
    shown: Numbers, relevant: Numbers, items: Rows, people: Searchers, draw: np.random.Generator
) -> tuple[NDArray[np.bool_], Numbers]:
    """Clicks on lists (n, shown) of which each has one relevant item, and who poisons; as `searches` has them."""
    right = shown == relevant[:, None]
    alike = np.einsum("lsd,ld->ls", items[shown], items[relevant]) >= people.alike
    likely = np.where(right, people.attraction, np.where(alike, people.attraction / 2.0, people.noise))
    found = draw.random(shown.shape) < likely * np.arange(1.0, shown.shape[1] + 1.0) ** -people.bias
    bad = draw.random(len(shown)) < people.poisoned
    found = np.where(bad[:, None], ~right & (draw.random(shown.shape) < 0.5), found)
    return found, np.where(bad, draw.integers(people.poisoners, size=len(shown)), -1)


def space(corpus: Corpus, ranked: str, name: str, people: Searchers, lists: int, seed: int) -> Found:
    """What is true and what is judged after so many lists."""
    one, draw = trial(corpus, seed, seed, TOGETHER, people), np.random.default_rng([seed, 5])
    learner: Any = learner_of(name, corpus.items.shape[1], seed)
    builder, judge, report = Clicks(rules=(LIST_RULE,)), Judge(SHARE, SPACE), None
    for offset, event in enumerate(events(one, ranked, learner, people, lists, draw)):
        newest = event.time_ms if isinstance(event, ItemBlock) else int(event.click_ms.max(initial=0))
        for block in builder.process(event, Origin(offset=offset, append_ms=newest)).blocks:
            held = judge.rows(block)
            if not judge.knows(block):
                learner.learn(block.take(slice(0, 0)))
            judge, found = judge.after(learner, block, held)
            report = found or report
            learner.learn(block.without_lists().take(~held))
    before = ndcg(corpus.queries[one.never], corpus.items, one.never)
    return made(corpus.name, name, ranked, lists, quality(learner, one) / before - 1.0, report)


def events(
    one: Trial, ranked: str, learner: Any, people: Searchers, lists: int, draw: np.random.Generator
) -> Iterator[Any]:
    """The catalogue, then blocks of lists as the learner of the moment ranks them."""
    queries, items = one.corpus.queries[one.asked], one.corpus.items
    yield from catalogue(SPACE, items)
    demand = np.arange(1.0, len(queries) + 1.0) ** -people.demand
    for first in range(0, lists, TOGETHER):
        rows = draw.choice(len(queries), TOGETHER, p=demand / demand.sum())
        shown = best(queries[rows], items, people.shown)
        if first and ranked != "un-learned":
            newest = best(learner.scale(queries[rows]) @ learner.W, items, people.shown)
            shown = newest if ranked == "newest model" else drafted(shown, newest, draw)
        found = Searches(rows, shown, *clicked(shown, one.asked[rows], items, people, draw))
        yield from click_blocks(SPACE, found, queries, TOGETHER, first=first)


def main() -> None:
    """Print a line for each space, and the mean errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lists", type=int, default=3_000)
    chosen = parser.parse_args()
    errors = defaultdict(list)
    with one_blas_thread():
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
            for missing in MISSING:
                corpus = made_up(seed, missing)
                for name in LEARNERS:
                    for who, people in PEOPLES.items():
                        for ranked in RANKED:
                            one = space(corpus, ranked, name, people, chosen.lists, seed)
                            print(json.dumps(one._asdict() | {"clicks": who, "missing": missing}), flush=True)
                            errors[ranked].append((one.judged or 0.0) - one.truth)
    for ranked, found in errors.items():
        spread = np.std(found, ddof=1) / np.sqrt(len(found))
        print(f"{ranked}: judged less the truth {100 * np.mean(found):+.1f} ± {100 * spread:.1f} %")


if __name__ == "__main__":
    main()
