"""One split of a corpus: the ranking that people have, what engineers try first, learners that learned online, and the
batch adapter beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.queries.baselines import (
    Scores,
    clicked_at_all,
    clicked_for_the_query,
    counted,
    fused,
)
from kinstream.evaluation.queries.batch import batch_adapter
from kinstream.evaluation.queries.measures import AnswerRanks, ranked
from kinstream.evaluation.queries.signals import HALF_AND_HALF, Again, Signals
from kinstream.evaluation.queries.sources import Corpus
from kinstream.evaluation.queries.split import Split, split
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.registry import create, offers
from kinstream.producers.simulated.searchers import Searchers, Searches
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import LIST_RULE, PREFERENCE_RULES, ConstraintBlock, Kind
from kinstream.streams.signals import ADAPTED, TEXT

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

NOTHING = "similarity"
BATCH = "batch adapter"
BY_QUERY = "clicks of the query"
BY_ITEM = "clicks of the item"
BM25 = "BM25"
FUSED = "reciprocal rank fusion"
HALVES = "half and half"
HINDSIGHT = "best fixed weights in hindsight"
#: What a learner of a map is called where its similarity and BM25 count half each.
WITH_TEXT = "{} and BM25, half and half"


class Both(NamedTuple):
    """Measures of queries that were never asked, and of those that were."""

    never: AnswerRanks
    asked: AnswerRanks


class SearchTrial(NamedTuple):
    """What is compared.

    Parameters
    ----------
    contenders : kind and settings by name.
    people : who click; None: contenders learn the pairs themselves.
    lists : that people see.
    tested : queries to measure.
    batch : whether to fit the batch adapter too; it learns the pairs.
    """

    contenders: dict[str, tuple[str, dict[str, Any]]]
    people: Searchers | None
    lists: int
    tested: int
    batch: bool = False


class Comparison:
    """One split, with the lists that people saw in it.

    Parameters
    ----------
    corpus : what is searched.
    signals : of the corpus.
    seed : of the split, and of what people do.

    Raises
    ------
    SettingsError : a contender has no similarity of queries to items, or does not learn from pairs where there are no
        clicks.
    """

    def __init__(self, corpus: Corpus, signals: Signals, request: SearchTrial, seed: int) -> None:
        self._signals, self._request, self._seed = signals, request, seed
        queries, items = (np.asarray(one, np.float32) for one in (corpus.queries, corpus.items))
        learned = corpus.answered - request.tested
        self._parts: Split = split(queries, items, seed, learned, request.tested, corpus.judgements)
        self._scores: dict[str, Rows] = {}
        self._searches: Searches | None = None
        if request.people is not None:
            best, self._scores = signals.shown(self._parts.learned, request.people.shown)
            self._searches = self._parts.searches(request.people, request.lists, seed, best)
        self._blocks: dict[bool, list[ConstraintBlock]] = {}

    def rows(self) -> Iterator[tuple[str, Both]]:
        """Each metric's name, and how well queries find their items that were never asked, and that were."""
        parts, found = self._parts, self._searches
        again = parts.learned if found is None else parts.learned[np.unique(found.query)]
        again = np.random.default_rng([self._seed, 4]).permutation(again)[: len(parts.tested)]

        def both(scores: Scores) -> Both:
            return Both(*(ranked(scores, rows, parts.judgements) for rows in (parts.tested, again)))

        for name, scores in self._unlearned():
            yield name, both(scores)
        if self._signals.text is not None:
            fixed = [self._signals.blended(blend) for blend in self._signals.shares()]
            best = max(fixed, key=lambda scores: ranked(scores, parts.tested, parts.judgements).ndcg)
            yield HINDSIGHT, both(best)
        for name, (kind, settings) in self._request.contenders.items():
            for full, scores in self._learned(name, kind, settings):
                yield full, both(scores)
        if self._request.batch:
            query, item = parts.pairs().T
            W = batch_adapter(parts.queries[query], parts.items[item], self._seed)
            yield BATCH, both(self._signals.mapped(lambda queries: np.asarray(queries @ W)))

    def _unlearned(self) -> Iterator[tuple[str, Scores]]:
        signals, found = self._signals, self._searches
        yield NOTHING, signals.similarity
        if signals.text is not None:
            yield BM25, signals.text
            yield FUSED, fused(signals.similarity, signals.text)
            yield HALVES, signals.blended(HALF_AND_HALF)
        if found is not None:
            by_query, by_item = counted(found, self._parts.learned, len(self._parts.items))
            had = signals.similarity if signals.text is None else signals.blended(HALF_AND_HALF)
            yield BY_QUERY, clicked_for_the_query(had, by_query)
            yield BY_ITEM, clicked_at_all(had, by_item)

    def _learned(self, name: str, kind: str, settings: dict[str, Any]) -> Iterator[tuple[str, Scores]]:
        learner: Any = create(kind, **settings)
        for block in self._blocks_of(kind):
            learner.learn(block)

        def query_map(queries: Rows) -> Rows:
            found = np.asarray(learner.scale(queries) @ learner.W)
            # As a store of a cosine answers, and as lists have it.
            return found if learner.scaler != "unit" else found / np.linalg.norm(found, axis=1, keepdims=True)

        blend: Blend | None = getattr(learner, "blend", None)
        if blend is not None:
            names = [str(row) for row in range(len(self._parts.items))]
            yield name, self._signals.blended(blend, query_map, Again.of(learner, names))
            return
        yield name, self._signals.mapped(query_map)
        if self._signals.text is not None:
            yield (
                WITH_TEXT.format(name),
                self._signals.blended(Blend.fixed({ADAPTED: 0.5, TEXT: 0.5}), query_map),
            )

    def _blocks_of(self, kind: str) -> list[ConstraintBlock]:
        """Lists of clicks are whole for a learner that takes pairs, and preferences for another one."""
        learner, found = create(kind), self._searches
        if not offers(kind, "W"):
            raise SettingsError(f"{kind} has no similarity of queries to items")
        pairs = Kind.PAIR in learner.accepts
        if not pairs and found is None:
            raise SettingsError(f"{kind} learns from triplets, and a query with its item is a pair")
        if pairs not in self._blocks:
            rule = LIST_RULE if pairs else PREFERENCE_RULES[0]
            parts = self._parts
            made = parts.labels(self._seed) if found is None else parts.clicks(found, rule, self._scores)
            self._blocks[pairs] = [*made]
        return self._blocks[pairs]


def summarised(corpus: Corpus, seeds: range, request: SearchTrial) -> list[dict[str, Any]]:
    """Means over splits, a row for each metric; `had` is true in that of the ranking that people have.

    `change` is the mean change of NDCG@10 against that ranking in percent, `error` its standard error, and `changes`
    those of the splits. A row is of queries that were never asked; its entry `asked` has the same of those that were.
    """
    runs = []
    with one_blas_thread():
        signals = Signals(corpus)
        for seed in seeds:
            runs.append(dict(Comparison(corpus, signals, request, seed).rows()))
    had = NOTHING if corpus.texts is None else HALVES
    return [
        {"metric": name, "had": name == had}
        | _means(runs, name, had, "never")
        | {"asked": _means(runs, name, had, "asked")}
        for name in runs[0]
    ]


def _means(runs: list[dict[str, Both]], name: str, had: str, of: str) -> dict[str, Any]:
    found: list[AnswerRanks] = [getattr(run[name], of) for run in runs]
    before: list[AnswerRanks] = [getattr(run[had], of) for run in runs]
    changes = np.array([100.0 * (one.ndcg / was.ndcg - 1.0) for one, was in zip(found, before, strict=True)])
    return {
        "ndcg_at_10": float(np.mean([one.ndcg for one in found])),
        "change": None if name == had else float(changes.mean()),
        "error": float(changes.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0,
        "changes": changes.tolist(),
        "mrr": float(np.mean([one.mrr for one in found])),
        "recall": {k: float(np.mean([one.recall[k] for one in found])) for k in found[0].recall},
    }
