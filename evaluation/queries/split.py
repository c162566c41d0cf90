"""A corpus of queries and items in two parts, and what learners are given of the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.queries.judgements import Judgements
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.simulated.searchers import Searchers, Searches, catalogue, click_blocks, searches
from kinstream.streams.records.values import (
    DEFAULT_MODALITY,
    LIST_RULE,
    ClickBlock,
    ConstraintBlock,
    ItemBlock,
    Kind,
    Table,
)

Vectors = NDArray[np.float32]
Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

#: Queries that are measured, and pairs of a block of labels.
TESTED = 1_500
PAIRS = 64
RULE = "label"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Queries that are learned from and others that are measured; all items are searched.

    Parameters
    ----------
    queries, items : (q, d) and (n, d).
    learned, tested : rows of the queries.
    judgements : which items answer them.
    """

    queries: Vectors
    items: Vectors
    learned: Numbers
    tested: Numbers
    judgements: Judgements

    def pairs(self) -> Numbers:
        """(m, 2) rows of each learned query and its items."""
        return np.array([(row, item) for row in self.learned.tolist() for item in self.judgements.of(row)[0]])

    def labels(self, seed: int) -> Iterator[ConstraintBlock]:
        """Every pair of a learned query and its item, once."""
        order = np.random.default_rng([seed, 3]).permutation(self.pairs())
        for first in range(0, len(order), PAIRS):
            rows = order[first : first + PAIRS]
            m = len(rows)
            yield ConstraintBlock(
                space="search",
                kind=Kind.PAIR,
                tables=(
                    Table(
                        DEFAULT_MODALITY, np.concatenate([self.queries[rows[:, 0]], self.items[rows[:, 1]]])
                    ),
                ),
                index=np.arange(2 * m, dtype=np.int32).reshape(2, m).T,
                signs=np.ones(m, np.int8),
                rules=(RULE,),
                rule=np.zeros(m, np.uint8),
                derived=np.zeros(m, np.bool_),
                weights=np.ones(m, np.float32),
                time_ms=first,
            )

    def searches(self, people: Searchers, lists: int, seed: int, best: Numbers | None = None) -> Searches:
        """The lists of people who ask the learned queries, which are named by their places among these.

        Parameters
        ----------
        best : (q, shown) rows of the items that each learned query is shown; by default the most similar ones.
        """
        asked = self.queries[self.learned]
        if best is None:
            best = np.argsort(-(asked @ self.items.T), axis=1, kind="stable")[:, : people.shown]
        right = self.judgements.answers(self.learned, best)
        relevant = self.judgements.best(self.learned)
        return searches(asked, self.items, relevant, people, lists, seed, best, right)

    def clicks(
        self, found: Searches, rule: str = LIST_RULE, scores: Mapping[str, Rows] | None = None
    ) -> Iterator[ConstraintBlock]:
        """What the builder `clicks` makes by a rule of the lists of `searches`.

        Parameters
        ----------
        scores : (q, shown) by name, of the items that each learned query is shown.
        """
        builder, queries = Clicks(rules=(rule,)), self.queries[self.learned]
        of_lists = {name: one[found.query] for name, one in (scores or {}).items()}
        events: list[ItemBlock | ClickBlock] = [*catalogue("search", self.items)]
        events += click_blocks("search", found, queries, scores=of_lists)
        for offset, event in enumerate(events):
            newest = event.time_ms if isinstance(event, ItemBlock) else int(event.click_ms.max(initial=0))
            yield from builder.process(event, Origin(offset=offset, append_ms=newest)).blocks


def split(
    queries: Vectors,
    items: Vectors,
    seed: int,
    learned: int,
    tested: int = TESTED,
    judgements: Judgements | None = None,
) -> Split:
    """Random queries to learn from and others to measure, of those that have an answer.

    Parameters
    ----------
    judgements : by default row i of the items answers row i of the queries.
    """
    judged = Judgements.of_rows(len(queries)) if judgements is None else judgements
    order = np.random.default_rng([seed, 1]).permutation(judged.queries)
    return Split(queries, items, order[tested : tested + learned], order[:tested], judged)
