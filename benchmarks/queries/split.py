"""A corpus of queries and items in two parts, and what learners are given of the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    queries, items : (n, d); row i of `items` answers row i of `queries`.
    learned, tested : rows of the queries.
    """

    queries: Vectors
    items: Vectors
    learned: Numbers
    tested: Numbers

    def labels(self, seed: int) -> Iterator[ConstraintBlock]:
        """Every pair of a learned query and its item, once."""
        order = np.random.default_rng([seed, 3]).permutation(self.learned)
        for first in range(0, len(order), PAIRS):
            rows = order[first : first + PAIRS]
            m = len(rows)
            yield ConstraintBlock(
                space="search",
                kind=Kind.PAIR,
                tables=(Table(DEFAULT_MODALITY, np.concatenate([self.queries[rows], self.items[rows]])),),
                index=np.arange(2 * m, dtype=np.int32).reshape(2, m).T,
                signs=np.ones(m, np.int8),
                rules=(RULE,),
                rule=np.zeros(m, np.uint8),
                derived=np.zeros(m, np.bool_),
                weights=np.ones(m, np.float32),
                time_ms=first,
            )

    def searches(self, people: Searchers, lists: int, seed: int) -> Searches:
        """The lists of people who ask the learned queries, which are named by their places among these."""
        return searches(self.queries[self.learned], self.items, self.learned, people, lists, seed)

    def clicks(
        self, people: Searchers, lists: int, seed: int, rule: str = LIST_RULE
    ) -> Iterator[ConstraintBlock]:
        """What the builder `clicks` makes by a rule of the lists of people who ask the learned queries."""
        builder, queries = Clicks(rules=(rule,)), self.queries[self.learned]
        found = self.searches(people, lists, seed)
        events: list[ItemBlock | ClickBlock] = [*catalogue("search", self.items)]
        events += click_blocks("search", found, queries)
        for offset, event in enumerate(events):
            newest = event.time_ms if isinstance(event, ItemBlock) else int(event.click_ms.max(initial=0))
            yield from builder.process(event, Origin(offset=offset, append_ms=newest)).blocks


def split(queries: Vectors, items: Vectors, seed: int, learned: int, tested: int = TESTED) -> Split:
    """Random queries to learn from and others to measure."""
    order = np.random.default_rng([seed, 1]).permutation(len(queries))
    return Split(queries, items, order[tested : tested + learned], order[:tested])
