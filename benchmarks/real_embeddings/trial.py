"""People search a corpus and click; half of its queries are never asked, and both halves are measured apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.real_embeddings.corpora import Corpus
from kinstream.evaluation.queries.judgements import Judgements
from kinstream.evaluation.queries.measures import answered
from kinstream.evaluation.queries.split import Split
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks, searches
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import LIST_RULE, ConstraintBlock, ItemBlock

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

SPACE: Final = "search"
#: Lists of a block of clicks: what is measured is measured between blocks.
LISTS: Final = 50
#: Queries asked by rank^-.5, places looked at by place^-.5, near-duplicates clicked half as often.
PEOPLE: Final = Searchers(demand=0.5, alike=0.85)


class Quality(NamedTuple):
    """NDCG@10 of queries that nobody has asked, and of those that people ask."""

    never: float
    asked: float

    def change(self, before: Quality) -> Quality:
        """In percent of what it was."""
        return Quality(100.0 * (self.never / before.never - 1.0), 100.0 * (self.asked / before.asked - 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One log of searches.

    Parameters
    ----------
    corpus : whose items are all searched.
    asked, never : rows of the queries that people ask, the most demanded one first, and of those nobody asks.
    found : the lists; its queries are rows of `asked`.
    seed : of people, and of the order of labels.
    """

    corpus: Corpus
    asked: Numbers
    never: Numbers
    found: Searches
    seed: int

    def events(self) -> Iterator[Any]:
        """The catalogue, then blocks of `LISTS` lists each, a second from each other."""
        yield from catalogue(SPACE, self.corpus.items)
        yield from click_blocks(SPACE, self.found, self.corpus.queries[self.asked], LISTS)

    def constraints(
        self, rules: tuple[str, ...] = (LIST_RULE,), **settings: Any
    ) -> Iterator[tuple[int, list[ConstraintBlock]]]:
        """Lists so far, and what the builder `clicks` made of the last `LISTS` of them."""
        builder, lists = Clicks(rules=rules, **settings), 0
        for offset, event in enumerate(self.events()):
            items = isinstance(event, ItemBlock)
            newest = event.time_ms if items else int(event.click_ms.max(initial=0))
            made = list(builder.process(event, Origin(offset=offset, append_ms=newest)).blocks)
            if not items:
                lists += len(event)
                yield lists, made

    def labels(self, most: int | None = None) -> Iterator[ConstraintBlock]:
        """Pairs of asked queries and their items, each once; those most demanded where not all are wanted."""
        queries, items = self.corpus.queries, self.corpus.items
        parts = Split(queries, items, self.asked[:most], self.never, Judgements.of_rows(len(queries)))
        return parts.labels(self.seed)

    def quality(self, mapped: Callable[[Rows], Rows] = lambda queries: queries) -> Quality:
        """How well mapped queries find their items."""
        queries, items = self.corpus.queries, self.corpus.items
        with one_blas_thread():
            never, asked = (ndcg(mapped(queries[rows]), items, rows) for rows in (self.never, self.asked))
        return Quality(never, asked)


def trial(
    corpus: Corpus,
    split: int,
    seed: int,
    lists: int,
    people: Searchers = PEOPLE,
    *,
    asked: int | None = None,
) -> Trial:
    """Half of the queries are never asked; of the others people ask the first so many.

    Parameters
    ----------
    split : says which queries are asked.
    seed : of people.
    lists : that people see.
    people : near-duplicates are those of the corpus.
    asked : queries that are asked; all of that half where it is left out.
    """
    order = np.random.default_rng([split, 11]).permutation(len(corpus.queries))
    half = len(order) // 2
    rows, never = order[:half][:asked], order[half:]
    if people.alike <= 1.0:
        people = replace(people, alike=corpus.alike)
    found = searches(corpus.queries[rows], corpus.items, rows, people, lists, 1_000 * split + seed)
    return Trial(corpus, rows, never, found, seed)


def ndcg(queries: Rows, items: Rows, relevant: Numbers) -> float:
    """Mean NDCG@10 of queries (q, d), of which each has one relevant item."""
    return answered(queries, items, relevant, ()).ndcg


def map_of(learner: Any) -> Callable[[Rows], Rows]:
    """A learner of a similarity q' W x as a map of queries (n, d)."""
    return lambda queries: np.asarray(learner.scale(queries) @ learner.W)


def learned(learner: Any, trial: Trial, at: tuple[int, ...], **settings: Any) -> dict[int, Quality]:
    """Quality after so many lists; `settings` are of the builder."""
    found = {}
    for lists, blocks in trial.constraints(**settings):
        for block in blocks:
            learner.learn(block)
        if lists in at:
            found[lists] = trial.quality(map_of(learner))
    return found
