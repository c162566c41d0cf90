"""One split of a corpus: the ranking as it is, adapters that learned online, and the batch adapter beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.registry import create, offers
from kinstream.producers.simulated.searchers import Searchers
from kinstream.replay.evaluation.queries.batch import batch_adapter
from kinstream.replay.evaluation.queries.measures import Found, answered
from kinstream.replay.evaluation.queries.split import Split, split
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import LIST_RULE, PREFERENCE_RULES, ConstraintBlock, Kind

Rows = NDArray[np.floating[Any]]

NOTHING = "no adaptation"
BATCH = "batch adapter"


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
) -> Iterator[tuple[str, Found]]:
    """Each contender's name, and how well queries that it never learned find their items.

    Parameters
    ----------
    queries, items : (n, d); row i of `items` answers row i of `queries`.
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

    def measured(mapped: Callable[[Rows], Rows]) -> Found:
        return answered(mapped(parts.queries[parts.tested]), parts.items, parts.tested)

    yield NOTHING, measured(lambda rows: rows)
    for name, (kind, settings) in contenders.items():
        yield name, measured(learned(kind, settings, blocks_of(kind)))
    if batch:
        yield BATCH, measured(_fitted(parts, seed))


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
) -> list[dict[str, Any]]:
    """Means over splits, a row for each metric, un-adapted first; parameters as of `compared`.

    `change` is the mean change of NDCG@10 against no adaptation in percent, and `error` its standard error.
    """
    pairs = len(queries) - tested
    runs = []
    for seed in seeds:
        with one_blas_thread():
            arguments: Any = (queries, items, seed, pairs, tested, contenders, people, lists, batch)
            runs.append(dict(compared(*arguments)))
    found = []
    for name in runs[0]:
        of_name = [run[name] for run in runs]
        changes = np.array([100.0 * (run[name].ndcg / run[NOTHING].ndcg - 1.0) for run in runs])
        several = len(runs) > 1
        found.append(
            {
                "metric": name,
                "ndcg_at_10": float(np.mean([one.ndcg for one in of_name])),
                "change": None if name == NOTHING else float(changes.mean()),
                "error": float(changes.std(ddof=1) / np.sqrt(len(runs))) if several else 0.0,
                "mrr": float(np.mean([one.mrr for one in of_name])),
                "recall": {k: float(np.mean([one.recall[k] for one in of_name])) for k in of_name[0].recall},
            }
        )
    return found
