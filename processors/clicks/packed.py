"""What lists state, packed into blocks of constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.clicks import co_clicks
from kinstream.processors.clicks.lists import Flags, Lists, Numbers
from kinstream.processors.shared.catalogue import Catalogue
from kinstream.processors.shared.packing import Packing, References
from kinstream.streams.records.values import LIST_RULE, ConstraintBlock, Kind, Table


class Found(NamedTuple):
    """Triplets (p, 3) with rule and weight, and pairs (r, 2), as references, and the list of each.

    A reference r >= 0 is one of the catalogue's, and ~q < 0 the vector of the query in row q.
    """

    triplets: References
    rule: NDArray[np.int8]
    weights: NDArray[np.float32]
    triplet_lists: Numbers
    pairs: References
    pair_lists: Numbers


def packed(
    found: Found,
    lists: Lists,
    catalogue: Catalogue,
    *,
    rules: tuple[str, ...],
    weighted: bool,
    max_bytes: int,
    begun: Flags,
    time_ms: int,
) -> list[ConstraintBlock]:
    """Blocks of preferences, or of whole lists if that is the rule, and then of co-clicks, of at most max_bytes each.

    `begun` marks lists of which other rows came before.
    """
    if not len(found.triplets) and not len(found.pairs):
        return []
    packing = Packing(lists.block.space, catalogue.modalities, max_bytes)
    vectors = _vectors_of(lists, catalogue)
    whole = LIST_RULE in rules
    both = np.isin(found.pair_lists, found.triplet_lists).any()
    weights = found.weights if weighted else None
    if whole:
        made = _whole_lists(packing, vectors, found, weights, begun, time_ms)
    else:
        made = packing.blocks(
            Kind.TRIPLET,
            rules,
            found.triplets,
            vectors,
            time_ms,
            rule_of=found.rule,
            weights=weights,
            events=found.triplet_lists,
            begun=bool(begun[found.triplet_lists].any()),
        )
    return made + packing.blocks(
        Kind.PAIR,
        co_clicks.RULE,
        found.pairs,
        vectors,
        time_ms,
        events=found.pair_lists,
        begun=bool(begun[found.pair_lists].any()),
        earlier=None if whole or not both else Kind.TRIPLET,
    )


def _whole_lists(
    packing: Packing,
    vectors: Callable[[References], tuple[Table, ...]],
    found: Found,
    weights: NDArray[np.float32] | None,
    begun: Flags,
    time_ms: int,
) -> list[ConstraintBlock]:
    """Pairs of each query with what was clicked, and then with what was passed over, each item once a list."""
    clicked = found.triplets[:, 1] == found.triplets[:, 2]
    order = np.lexsort((~clicked, found.triplet_lists))
    of, item = found.triplet_lists[order], found.triplets[order, 2]
    first = np.sort(np.unique(np.column_stack([of, item]), axis=0, return_index=True)[1])
    rows = order[first]
    return packing.blocks(
        Kind.PAIR,
        LIST_RULE,
        found.triplets[rows][:, (0, 2)],
        vectors,
        time_ms,
        signs=np.where(clicked[rows], 1, -1).astype(np.int8),
        weights=None if weights is None else weights[rows],
        events=found.triplet_lists[rows],
        begun=bool(begun[found.triplet_lists].any()),
    )


def _vectors_of(lists: Lists, catalogue: Catalogue) -> Callable[[References], tuple[Table, ...]]:
    own = {table.name: table.vectors for table in lists.block.query_vectors}

    def vectors(references: References) -> tuple[Table, ...]:
        queries = ~references[references < 0]
        found = catalogue.vectors(references[references >= 0])
        if not len(queries):
            return found
        return tuple(Table(t.name, np.concatenate([own[t.name][queries], t.vectors])) for t in found)

    return vectors
