"""What lists state, packed into blocks of constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.catalogue import Catalogue
from kinstream.processors.base.packing import Packing, References, row_bytes, scores_bytes
from kinstream.processors.clicks import co_clicks
from kinstream.processors.clicks.lists import Flags, Lists, Numbers
from kinstream.processors.clicks.retractions import list_hashes
from kinstream.streams.records.held_out import JUDGED_PLACES, ShownLists
from kinstream.streams.records.values import (
    LIST_RULE,
    PREFERENCE_RULES,
    ConstraintBlock,
    Kind,
    Table,
)

#: Upper bounds of what lists take in a block, and each list of them, without vectors.
SHOWN_BYTES: Final = 64
LIST_BYTES: Final = 4 + 4 + 8 + 8 + (5 + 8) * JUDGED_PLACES


class ClickStatements(NamedTuple):
    """Triplets (p, 3) with rule and weight, and pairs (r, 2), as references, and the list of each.

    A reference r >= 0 is one of the catalogue's, and ~q < 0 the vector of the query in row q. `others` (p,) are the
    impressions of the third items.
    """

    triplets: References
    rule: NDArray[np.int8]
    weights: NDArray[np.float32]
    triplet_lists: Numbers
    pairs: References
    pair_lists: Numbers
    others: Numbers


class JudgedLists(NamedTuple):
    """What judges need of n lists, with references as in `ClickStatements`.

    Parameters
    ----------
    anchors : (n,) of the queries.
    items : (m,) of the impressions; -1 outside the catalogue.
    clicked : (m,) impressions with a click that counts.
    usable : (n,) lists that were taken, and have a query.
    actors : (n,) see `ShownLists`.
    exponent : see there.
    worth : (m,) what the actions on the impressions weigh; None: 1 for all.
    """

    anchors: References
    items: References
    clicked: Flags
    usable: Flags
    actors: NDArray[np.uint64]
    exponent: float
    worth: NDArray[np.float32] | None = None

    def judged(self, lists: Lists) -> Flags:
        """(n,) usable lists whose first places are all known, and of which one was clicked."""
        starts, first = lists.block.starts, np.zeros(len(lists.of), np.bool_)
        first[lists.order] = np.arange(len(first)) - starts[lists.of] < JUDGED_PLACES
        clicked = np.bincount(lists.of[first & self.clicked], minlength=len(lists)) > 0
        unknown = np.bincount(lists.of[first & (self.items < 0)], minlength=len(lists)) > 0
        return np.asarray(self.usable & clicked & ~unknown)


def packed(
    found: ClickStatements,
    lists: Lists,
    catalogue: Catalogue,
    shown: JudgedLists,
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
    again = bool(begun[found.triplet_lists].any())
    made = []
    for rows, places in _with_lists(packing, found, lists, shown, whole, weighted, again):
        part = found._replace(
            triplets=found.triplets[rows],
            rule=found.rule[rows],
            weights=found.weights[rows],
            triplet_lists=found.triplet_lists[rows],
            others=found.others[rows],
        )
        weights = part.weights if weighted else None
        if whole:
            blocks = _whole_lists(packing, vectors, part, lists, weights, again, time_ms)
        else:
            blocks = packing.blocks(
                Kind.TRIPLET,
                rules,
                part.triplets,
                vectors,
                time_ms,
                rule_of=part.rule,
                weights=weights,
                events=part.triplet_lists,
                begun=again,
            )
        made += blocks if places is None else [_shown(blocks[0], part, places, lists, shown, vectors)]
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


def _with_lists(
    packing: Packing,
    found: ClickStatements,
    lists: Lists,
    shown: JudgedLists,
    whole: bool,
    weighted: bool,
    again: bool,
) -> Iterator[tuple[slice, NDArray[np.int64] | None]]:
    """Rows of triplets in runs of whole lists that fit into a block with what was shown, and their impressions.

    None for impressions: these rows have no lists, because they fit into no block with them, or because a part
    of them came before.
    """
    of = found.triplet_lists
    if again or not len(of):
        if len(of):
            yield slice(0, len(of)), None
        return
    names_of_scores, of_scores = scores_bytes(lists.block.scores)
    room = packing.room(*(() if whole else PREFERENCE_RULES), LIST_RULE) - SHOWN_BYTES
    room -= names_of_scores * (2 if whole else 1)
    one_row = row_bytes(Kind.PAIR if whole else Kind.TRIPLET, weighted, grouped=True)
    one_row += of_scores if whole else 0
    one_list = LIST_BYTES + JUDGED_PLACES * (of_scores + (0 if shown.worth is None else 4))
    bounds = np.searchsorted(of, np.arange(len(lists) + 1))
    judged = shown.judged(lists)
    parts: list[Numbers] = []
    begin = used = 0
    for i in np.flatnonzero(judged | (np.diff(bounds) > 0)).tolist():
        first, end = bounds[i : i + 2].tolist()
        own = lists.order[lists.block.starts[i] : lists.block.starts[i + 1]]
        vectors = 1 + (len(own) if end > first else min(len(own), JUDGED_PLACES))
        need = vectors * packing.vector_bytes + (end - first) * one_row + one_list
        if used + need > room:
            if first > begin:
                yield slice(begin, first), _joined(parts)
            begin, used, parts = first, 0, []
        if need > room:
            if end > first:
                yield slice(first, end), None
            begin = end
            continue
        used += need
        if judged[i]:
            parts.append(own[:JUDGED_PLACES])
    if begin < len(of):
        yield slice(begin, len(of)), _joined(parts)


def _joined(parts: list[Numbers]) -> NDArray[np.int64] | None:
    return np.concatenate(parts).astype(np.int64) if parts else None


def _shown(
    block: ConstraintBlock,
    part: ClickStatements,
    places: NDArray[np.int64],
    lists: Lists,
    shown: JudgedLists,
    vectors: Callable[[References], tuple[Table, ...]],
) -> ConstraintBlock:
    """The block with the lists of these impressions, and their vectors in its tables."""
    of = lists.of[places]
    firsts = np.flatnonzero(np.diff(of, prepend=-1))
    queries, items = shown.anchors[of[firsts]], shown.items[places]
    # A pair of a whole list names no item that was preferred.
    before = np.unique(part.triplets[:, (0, 2)] if block.kind is Kind.PAIR else part.triplets)
    every = np.unique(np.concatenate([before, queries, items]))
    return replace(
        block,
        tables=vectors(every),
        index=np.searchsorted(every, before)[block.index].astype(np.int32),
        lists=ShownLists(
            np.searchsorted(every, queries).astype(np.int32),
            np.append(firsts, len(places)).astype(np.int32),
            np.searchsorted(every, items).astype(np.int32),
            shown.clicked[places],
            shown.actors[of[firsts]],
            shown.exponent,
            None if lists.block.scores is None else lists.block.scores.take(places).given(),
            None if shown.worth is None else shown.worth[places],
            lists.keys[lists.block.item[places], 0],
            list_hashes([lists.block.list_ids[i] for i in of[firsts].tolist()]),
        ),
    )


def _whole_lists(
    packing: Packing,
    vectors: Callable[[References], tuple[Table, ...]],
    found: ClickStatements,
    lists: Lists,
    weights: NDArray[np.float32] | None,
    begun: bool,
    time_ms: int,
) -> list[ConstraintBlock]:
    """Pairs of each query with what was clicked, and then with what was passed over, each item once a list."""
    clicked = found.triplets[:, 1] == found.triplets[:, 2]
    order = np.lexsort((~clicked, found.triplet_lists))
    of, item = found.triplet_lists[order], found.triplets[order, 2]
    first = np.sort(np.unique(np.column_stack([of, item]), axis=0, return_index=True)[1])
    rows = order[first]
    scores = lists.block.scores
    return packing.blocks(
        Kind.PAIR,
        LIST_RULE,
        found.triplets[rows][:, (0, 2)],
        vectors,
        time_ms,
        signs=np.where(clicked[rows], 1, -1).astype(np.int8),
        weights=None if weights is None else weights[rows],
        events=found.triplet_lists[rows],
        begun=begun,
        scores=None if scores is None else scores.take(found.others[rows]),
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
