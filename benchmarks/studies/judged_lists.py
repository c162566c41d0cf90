"""Whether the judge of whole lists is right: its sign against the truth, over spaces with real embeddings.

A space is a corpus, a split into queries that are asked and never asked, people, and a learner. It is looked at after
500, 1,000, 2,000, 4,000 and 10,000 lists, every fifth space after all of these, the others after the first ones. The
truth is NDCG@10 of the queries never asked, the learned ranking against the un-learned one; what is judged is what the
learner agent publishes at that moment. Learners and people are good and bad: steps from .08 to 1, no pull, a full
matrix, labels before the clicks, learners of triplets that read ranked lists as if they were fair; 2, 5 and 15 % wrong
clicks, and a fifth of the lists of 20 accounts that click what is wrong. What came out is in judged_lists.md.

Example: python -m benchmarks.studies.judged_lists scientific packages --first-split 1000 --all-looks 4000
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.real_embeddings.corpora import Corpus, opened
from benchmarks.real_embeddings.trial import PEOPLE, Trial, ndcg, trial
from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.held_out.judge import Judge
from kinstream.learners.registry import create
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.held_out import HeldOut

#: The default of `held_out`.
SHARE: Final = 0.02
PEOPLES: Final = {
    "2 % wrong": replace(PEOPLE, noise=0.02),
    "5 % wrong": replace(PEOPLE, noise=0.05),
    "15 % wrong": replace(PEOPLE, noise=0.15),
    "poisoned": replace(PEOPLE, poisoned=0.2),
}
ADAPTERS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "rank 64, step .08": {"rank": 64, "step": 0.08, "pull": 0.012},
    "rank 64, step .25": {"rank": 64, "step": 0.25, "pull": 0.012},
    "rank 64, step 1": {"rank": 64, "step": 1.0, "pull": 0.012},
    "rank 64, step .3, no pull": {"rank": 64, "step": 0.3, "pull": 0.0},
}
#: Labels before the clicks, and learners of triplets behind ranked lists.
OTHERS: Final = (
    ("adapter, 1,000 labels", "2 % wrong"),
    ("adapter, 1,000 labels", "poisoned"),
    ("opml", "2 % wrong"),
    ("opml", "5 % wrong"),
    ("oasis", "2 % wrong"),
    ("oasis", "15 % wrong"),
    ("mixture", "2 % wrong"),
    ("random", "2 % wrong"),
    ("random", "5 % wrong"),
)
LISTS: Final = (500, 1_000, 2_000, 4_000, 10_000)
#: Least change that has a sign.
LEAST: Final = 0.01


class Found(NamedTuple):
    """The truth in a space, as a share of the un-learned NDCG@10, and what was judged, as a share of the gain.

    Users see what was judged if it is `shown`, and its bounds otherwise.
    """

    corpus: str
    learner: str
    people: str
    lists: int
    truth: float
    judged: float | None
    low: float | None
    high: float | None
    seen: int
    shown: bool

    @property
    def right(self) -> bool:
        """Whether the signs agree."""
        return self.judged is not None and self.judged * self.truth > 0.0

    @property
    def significantly_wrong(self) -> bool:
        """Whether the interval lies on the wrong side of 0."""
        if self.low is None or self.high is None:
            return False
        return self.low > 0.0 > self.truth or self.high < 0.0 < self.truth


class Moved:
    """A map that nothing has taught: directions are turned a little."""

    accepts = Adapter.accepts
    form = Adapter.form

    def __init__(self, d: int, seed: int, size: float = 1.0) -> None:
        draw = np.random.default_rng(seed)
        self.W = np.eye(d, dtype=np.float32) + size / np.sqrt(d) * draw.normal(size=(d, d)).astype(np.float32)

    def learn(self, block: Any) -> None:
        """Learns nothing."""

    def scale(self, rows: Any) -> Any:
        return rows

    def similarity(self, X: Any, Y: Any) -> Any:
        return np.einsum("ij,ij->i", X @ self.W, Y)

    def similarities(self, X: Any, Y: Any) -> Any:
        return X @ self.W @ Y.T


def learner_of(name: str, d: int, seed: int) -> Any:
    if name in ADAPTERS:
        return Adapter(seed=seed, **ADAPTERS[name])
    if name == "random":
        return Moved(d, seed)
    return Adapter(seed=seed) if name.startswith("adapter") else create(name)


def quality(learner: Any, one: Trial) -> float:
    """NDCG@10 of the queries never asked."""
    queries, items = one.corpus.queries[one.never], one.corpus.items
    if hasattr(type(learner), "similarities"):
        return ndcg(learner.scale(queries) @ learner.W, items, one.never)
    # The order by squared distance is that of a product with one more column.
    mapped = np.asarray(learner.transform(items), np.float64)
    beside = np.column_stack([mapped, -0.5 * np.einsum("ij,ij->i", mapped, mapped)])
    left = np.asarray(learner.transform(queries), np.float64)
    return ndcg(np.column_stack([left, np.ones(len(left))]), beside, one.never)


def space(corpus: Corpus, name: str, people: str, lists: tuple[int, ...], split: int) -> Iterator[Found]:
    """What is true and what is judged in a space after so many lists."""
    one = trial(corpus, split, split, max(lists), PEOPLES[people])
    learner = learner_of(name, corpus.items.shape[1], split)
    before = ndcg(corpus.queries[one.never], corpus.items, one.never)
    if name.endswith("labels"):
        for block in one.labels(1_000):
            learner.learn(block)
    rule = "click-list" if isinstance(learner, Adapter | Moved) else "click-skip-above"
    judge, report = Judge(SHARE, "search"), None
    for n, blocks in one.constraints(rules=(rule,)):
        for block in blocks:
            held = judge.rows(block)
            if not judge.knows(block):
                learner.learn(block.take(slice(0, 0)))
            judge, found = judge.after(learner, block, held)
            report = found or report
            learner.learn(block.without_lists().take(~held))
        if n in lists:
            yield made(corpus.name, name, people, n, quality(learner, one) / before - 1.0, report)


def made(corpus: str, name: str, people: str, lists: int, truth: float, report: HeldOut | None) -> Found:
    """With the sign of a gain: the loss that is less."""
    seen = 0 if report is None else report.seen
    if report is None or report.difference is None:
        return Found(corpus, name, people, lists, truth, None, None, None, seen, False)
    gain = 1.0 - float(report.window.rate(report.best) or 0.0)
    value, low, high = report.difference
    judged = -value / gain, -high / gain, -low / gain
    return Found(corpus, name, people, lists, truth, *judged, seen, report.published)


def spaces(corpora: list[Corpus]) -> Iterator[tuple[Corpus, str, str, tuple[int, ...], int]]:
    """Every learner with all people, each space with its own split and number of lists."""
    pairs = [(name, people) for name in ADAPTERS for people in PEOPLES] + list(OTHERS)
    for place, corpus in enumerate(corpora):
        for number, (name, people) in enumerate(pairs):
            most = (number + place) % len(LISTS)
            yield corpus, name, people, LISTS[: most + 1], 100 * place + number


def summary(found: list[Found]) -> dict[str, Any]:
    """How often the sign was right."""
    told = [one for one in found if one.judged is not None and abs(one.truth) > LEAST]
    shown = [one for one in told if one.shown]
    decided = [one for one in told if one.low is not None and not one.low <= 0.0 <= (one.high or 0.0)]
    errors: NDArray[np.float64] = np.array([(one.judged or 0.0) - one.truth for one in told])
    return {
        "spaces": len({one[:3] for one in found}),
        "looks": len(found),
        "with an interval": len(told),
        "of these, right": sum(one.right for one in told),
        "shown": len(shown),
        "shown right": sum(one.right for one in shown),
        "significantly wrong": sum(one.significantly_wrong for one in told),
        "decided": len(decided),
        "decided right": sum(one.right for one in decided),
        "mean error of small differences": float(
            np.mean([e for e, o in zip(errors, told, strict=True) if abs(o.truth) < 0.06] or [0.0])
        ),
    }


def main(measure: Callable[..., Iterator[Found]] = space) -> None:
    """Print a line for each space, and a summary of each corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--only", help="learners whose name contains this text")
    parser.add_argument("--first-split", type=int, default=0, help="the others follow")
    parser.add_argument("--all-looks", type=int, help="look at every space after up to so many lists")
    chosen = parser.parse_args()
    found: list[Found] = []
    with one_blas_thread():
        for some in spaces([opened(name) for name in chosen.corpora]):
            corpus, name, people, lists, split = some
            if chosen.only and chosen.only not in name:
                continue
            if chosen.all_looks:
                lists = tuple(n for n in LISTS if n <= chosen.all_looks)
            for one in measure(corpus, name, people, lists, chosen.first_split + split):
                found.append(one)
                print(json.dumps(one._asdict()), flush=True)
    for name in chosen.corpora:
        print(name, json.dumps(summary([one for one in found if one.corpus == name])))


if __name__ == "__main__":
    main()
