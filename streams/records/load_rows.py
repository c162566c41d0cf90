"""Loads whose sequence counts rows: a reader that has some rows of a block takes the others.

The agent of a source packs the records that wait into one block, so a run after a crash may pack the same rows in
other blocks. The sequence of its block is the number of the block's last row in the load and the space, counted from 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from kinstream.streams.records.values import (
    ClickBlock,
    ItemBlock,
    Loaded,
    LoadPosition,
    RelationBlock,
    SampleBlock,
    Table,
)

#: Begins the ids of such loads. Ids that users give to their loads hold no slash.
ROWS: Final = "source/"


def counts_rows(load: LoadPosition) -> bool:
    """Whether the sequence counts rows; otherwise it counts blocks."""
    return load.load_id.startswith(ROWS)


def rows_of(event: Loaded) -> int:
    """The rows of an event: samples, items and removed items, lists, relations."""
    match event:
        case SampleBlock():
            return len(event.labels)
        case ItemBlock():
            return len(event.ids) + len(event.tombstones)
        case ClickBlock() | RelationBlock():
            return len(event)
    return 1


def known_rows(event: Loaded, load: LoadPosition, seen: int) -> int:
    """How many of the first rows a reader has that has seen the sequence `seen`; all of them for a duplicate."""
    rows = rows_of(event)
    if load.sequence <= seen:
        return rows
    if not counts_rows(load):
        return 0
    return min(rows, max(0, seen - (load.sequence - rows)))


def without_first(event: Loaded, rows: int) -> tuple[Loaded, int]:
    """The event without its first rows, and the number of the first part that is left.

    Parts are what can be refused by number: impressions in result lists, rows in all others.
    """
    if not rows:
        return event, 0
    match event:
        case SampleBlock():
            ids = None if event.ids is None else event.ids[rows:]
            return replace(event, tables=_rest(event.tables, rows), labels=event.labels[rows:], ids=ids), rows
        case ItemBlock():
            named = min(rows, len(event.ids))
            tables = _rest(event.tables, named) if named < len(event.ids) else ()
            left = event.tombstones[rows - named :]
            return replace(event, ids=event.ids[named:], tables=tables, tombstones=left), named
        case RelationBlock():
            return replace(
                event,
                left=event.left[rows:],
                right=event.right[rows:],
                similar=event.similar[rows:],
                time_ms=event.time_ms[rows:],
                source=event.source[rows:],
            ), rows
        case ClickBlock():
            return _lists(event, rows)
    raise ValueError(f"{type(event).__name__} has one row")


def _rest(tables: tuple[Table, ...], rows: int) -> tuple[Table, ...]:
    return tuple(Table(table.name, table.vectors[rows:]) for table in tables)


def _lists(block: ClickBlock, rows: int) -> tuple[ClickBlock, int]:
    first = int(block.starts[rows])
    kept = block.clicked >= first
    return replace(
        block,
        list_ids=block.list_ids[rows:],
        session=block.session[rows:],
        user=block.user[rows:],
        query=block.query[rows:],
        query_row=block.query_row[rows:],
        address=None if block.address is None else block.address[rows:],
        shown_at_ms=block.shown_at_ms[rows:],
        starts=np.ascontiguousarray(block.starts[rows:] - first),
        item=block.item[first:],
        position=block.position[first:],
        clicked=np.ascontiguousarray(block.clicked[kept] - first),
        click_ms=block.click_ms[kept],
        dwell_ms=block.dwell_ms[kept],
    ), first
