"""Lists of clicks as queries with relevant items, from the triplets that builders of clicks have made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import PREFERENCE_RULES, ConstraintBlock, Kind, Vectors

#: Lists that are measured, at most: the first ones.
LISTS: Final = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class ClickLists:
    """Queries and the items of all lists.

    Parameters
    ----------
    queries, items : (q, d_i) and (n, d_i) by modality; every item once.
    clicked : for each query the rows of `items` that were clicked.
    """

    queries: Mapping[str, Vectors]
    items: Mapping[str, Vectors]
    clicked: Sequence[NDArray[np.int64]]


def click_lists(blocks: Sequence[ConstraintBlock]) -> ClickLists | None:
    """The lists of some blocks; None if none of their triplets comes from a click.

    A list is an event of a block with one query, its anchor. Its items are the positives, which were clicked, and the
    negatives, which were passed over. An item that is in several lists is known by its vectors.
    """
    items: dict[bytes, int] = {}
    rows: list[tuple[ConstraintBlock, int]] = []
    queries: list[tuple[ConstraintBlock, int]] = []
    clicked: list[NDArray[np.int64]] = []

    def number(block: ConstraintBlock, row: int) -> int:
        key = b"".join((table.vectors[row] + 0.0).tobytes() for table in block.tables)
        if key not in items:
            items[key] = len(rows)
            rows.append((block, row))
        return items[key]

    for block in blocks:
        if block.kind is not Kind.TRIPLET:
            continue
        preferred = np.array([rule in PREFERENCE_RULES for rule in block.rules], np.bool_)[block.rule]
        of_block: dict[tuple[int, int], dict[int, None]] = {}
        known = {int(row): number(block, int(row)) for row in np.unique(block.index[preferred, 1:])}
        for at in np.flatnonzero(preferred):
            anchor, positive, _ = (int(row) for row in block.index[at])
            event = int(at) if block.events is None else int(block.events[at])
            of_block.setdefault((event, anchor), {})[known[positive]] = None
        for (_, anchor), found in of_block.items():
            if len(queries) < LISTS:
                queries.append((block, anchor))
                clicked.append(np.array(list(found), np.int64))
    if not queries:
        return None
    return ClickLists(_gathered(queries), _gathered(rows), clicked)


def _gathered(places: Sequence[tuple[ConstraintBlock, int]]) -> dict[str, Vectors]:
    names = [table.name for table in places[0][0].tables]
    return {
        name: np.stack([block.tables[at].vectors[row] for block, row in places])
        for at, name in enumerate(names)
    }
