"""One split of a corpus: the ranking as it is, what engineers try first, adapters that learned online, and the batch
adapter beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.queries.baselines import (
    Scores,
    bm25,
    clicked_at_all,
    clicked_for_the_query,
    counted,
    fused,
)
from benchmarks.queries.batch import batch_adapter
from benchmarks.queries.split import Split, split
from kinstream.evaluation.measures.answers import AnswerRanks, ranked
from kinstream.learners.registry import create, offers
from kinstream.producers.simulated.searchers import Searchers, Searches
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import LIST_RULE, PREFERENCE_RULES, ConstraintBlock, Kind

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
#: Of queries, and of items.
Texts = tuple[Sequence[str], Sequence[str]]

NOTHING = "no adaptation"
BATCH = "batch adapter"
BY_QUERY = "clicks of the query"
BY_ITEM = "clicks of the item"
BM25 = "BM25"
FUSED = "BM25 and similarity"


class Both(NamedTuple):
    """Measures of queries that were never asked, and of those that were."""

    never: AnswerRanks
    asked: AnswerRanks


def learned(kind: str, settings: dict[str, Any], blocks: Iterable[ConstraintBlock]) -> Callable[[Rows], Rows]:
    """A learner that has learned the blocks, as a map of queries (n, d)."""
    learner: Any = create(kind, **settings)
    for block in blocks:
        learner.learn(block)
    return lambda queries: np.asarray(learner.scale(queries) @ learner.W)


def compared(
    queries: Rows,
    items: Rows,
    seed: int,
    pairs: int,
    tested: int,
    contenders: dict[str, tuple[str, dict[str, Any]]],
    people: Searchers | None,
    lists: int,
    batch: bool,
    texts: Texts | None = None,
) -> Iterator[tuple[str, Both]]:
    """Each contender's name, and how well queries find their items that were never asked, and that were.

    Parameters
    ----------
    queries, items : (n, d); row i of `items` answers row i of `queries`.
    texts : of both; None: there are none.
    pairs, tested : queries to learn from, and to measure.
    contenders : kind and settings by name.
    people : who click; None: contenders learn the pairs themselves.
    lists : that people see.
    batch : whether to fit the batch adapter too; it learns the pairs.

    Raises
    ------
    SettingsError : a contender has no similarity of queries to items, or does not learn from pairs where there are no
        clicks.
    """
    parts = split(np.asarray(queries, np.float32), np.asarray(items, np.float32), seed, pairs, tested)
    blocks: dict[bool, list[ConstraintBlock]] = {}

    def blocks_of(kind: str) -> list[ConstraintBlock]:
        """Lists of clicks are whole for a learner that takes pairs, and preferences for another one."""
        learner = create(kind)
        if not offers(kind, "W"):
            raise SettingsError(f"{kind} has no similarity of queries to items")
        pairs = Kind.PAIR in learner.accepts
        if not pairs and people is None:
            raise SettingsError(f"{kind} learns from triplets, and a query with its item is a pair")
        if pairs not in blocks:
            rule = LIST_RULE if pairs else PREFERENCE_RULES[0]
            made = parts.labels(seed) if people is None else parts.clicks(people, lists, seed, rule)
            blocks[pairs] = [*made]
        return blocks[pairs]

    found = None if people is None else parts.searches(people, lists, seed)
    again = parts.learned if found is None else parts.learned[np.unique(found.query)]
    again = np.random.default_rng([seed, 4]).permutation(again)[: len(parts.tested)]

    def scored(scores: Scores) -> Both:
        return Both(*(ranked(scores, rows, rows) for rows in (parts.tested, again)))

    def measured(mapped: Callable[[Rows], Rows]) -> Both:
        return scored(lambda rows: np.asarray(mapped(parts.queries[rows]) @ parts.items.T))

    yield NOTHING, measured(lambda rows: rows)
    for name, scores in _baselines(parts, found, texts):
        yield name, scored(scores)
    for name, (kind, settings) in contenders.items():
        yield name, measured(learned(kind, settings, blocks_of(kind)))
    if batch:
        yield BATCH, measured(_fitted(parts, seed))


def _baselines(parts: Split, found: Searches | None, texts: Texts | None) -> Iterator[tuple[str, Scores]]:
    def similarity(rows: Numbers) -> Rows:
        return np.asarray(parts.queries[rows] @ parts.items.T)

    if found is not None:
        by_query, by_item = counted(found, parts.learned, len(parts.items))
        yield BY_QUERY, clicked_for_the_query(similarity, by_query)
        yield BY_ITEM, clicked_at_all(similarity, by_item)
    if texts is not None:
        words = bm25(*texts)
        yield BM25, words
        yield FUSED, fused(similarity, words)


def _fitted(parts: Split, seed: int) -> Callable[[Rows], Rows]:
    W = batch_adapter(parts.queries[parts.learned], parts.items[parts.learned], seed)
    return lambda queries: np.asarray(queries @ W)


def summarised(
    queries: Rows,
    items: Rows,
    seeds: range,
    tested: int,
    contenders: dict[str, tuple[str, dict[str, Any]]],
    people: Searchers | None,
    lists: int,
    *,
    batch: bool,
    texts: Texts | None = None,
) -> list[dict[str, Any]]:
    """Means over splits, a row for each metric, un-adapted first; parameters as of `compared`.

    `change` is the mean change of NDCG@10 against no adaptation in percent, and `error` its standard error. A row is of
    queries that were never asked; its entry `asked` has the same of those that were.
    """
    pairs = len(queries) - tested
    runs = []
    for seed in seeds:
        with one_blas_thread():
            arguments: Any = (queries, items, seed, pairs, tested, contenders, people, lists, batch, texts)
            runs.append(dict(compared(*arguments)))
    return [
        {"metric": name} | _means(runs, name, "never") | {"asked": _means(runs, name, "asked")}
        for name in runs[0]
    ]


def _means(runs: list[dict[str, Both]], name: str, of: str) -> dict[str, Any]:
    found: list[AnswerRanks] = [getattr(run[name], of) for run in runs]
    nothing: list[AnswerRanks] = [getattr(run[NOTHING], of) for run in runs]
    changes = np.array([100.0 * (one.ndcg / was.ndcg - 1.0) for one, was in zip(found, nothing, strict=True)])
    return {
        "ndcg_at_10": float(np.mean([one.ndcg for one in found])),
        "change": None if name == NOTHING else float(changes.mean()),
        "error": float(changes.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0,
        "mrr": float(np.mean([one.mrr for one in found])),
        "recall": {k: float(np.mean([one.recall[k] for one in found])) for k in found[0].recall},
    }
