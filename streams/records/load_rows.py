"""Loads whose rows have numbers: a reader that has some rows of a block takes the others.

The agent of a source packs the records that wait into one block, so a run after a crash may pack the same rows in
other blocks. The number of a row is the offset of its record and its place among the rows of it, so it stays the same
where the log has lost records in between. The sequence of a block is the number of its last row; the numbers of all
are in a header.

Sources of earlier versions counted rows from 0. Their blocks have no such header: their numbers follow each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise, repeat
from typing import Final

import numpy as np

from kinstream.streams.errors import BadRecord, Reason
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
#: The header with the numbers of a block of several rows.
NUMBERS: Final = "kinstream-rows"
#: Rows of one record. Offsets stay below 2^43.
MAX_ROWS: Final = 2**20


def number_of(offset: int, row: int) -> int:
    """The number of a row of the record at an offset.

    Raises
    ------
    BadRecord : the record has too many rows.
    """
    if row >= MAX_ROWS:
        raise BadRecord(Reason.TOO_LARGE, f"a record with more than {MAX_ROWS} rows")
    return offset * MAX_ROWS + row


def numbers_text(numbers: Sequence[int]) -> bytes:
    """The header: the first number, and the steps to the others, each with how often it comes.

    Examples
    --------
    >>> numbers_text([7, 8, 9, 20])
    b'7 1*2 11*1'
    """
    steps = (f"{step}*{sum(1 for _ in same)}" for step, same in groupby(b - a for a, b in pairwise(numbers)))
    return " ".join((str(numbers[0]), *steps)).encode()


def numbers_of(
    load: LoadPosition, headers: Sequence[tuple[str, bytes | None]], rows: int
) -> list[int] | None:
    """The numbers of the rows of a block; None if it has no such header.

    Raises
    ------
    BadRecord : the header is not that of these rows.
    """
    text = next((value for name, value in headers if name == NUMBERS), None) if counts_rows(load) else None
    if text is None:
        return None
    try:
        first, *steps = text.decode("ascii").split(" ")
        runs = [(int(step), int(count)) for step, count in (one.split("*") for one in steps)]
        if min(chain.from_iterable(runs), default=1) < 1 or sum(count for _, count in runs) != rows - 1:
            raise ValueError("other rows")
        found = [int(first)]
        for step in chain.from_iterable(repeat(step, count) for step, count in runs):
            found.append(found[-1] + step)
    except ValueError as error:
        raise BadRecord(Reason.BAD_IDENTITY, f"{NUMBERS}: not the numbers of {rows} rows") from error
    if found[-1] != load.sequence:
        raise BadRecord(
            Reason.BAD_IDENTITY, f"{NUMBERS}: its last number is not the sequence {load.sequence}"
        )
    return found


def counts_rows(load: LoadPosition) -> bool:
    """Whether the sequence is the number of a row; otherwise it counts blocks."""
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


def known_rows(event: Loaded, load: LoadPosition, seen: int, numbers: Sequence[int] | None = None) -> int:
    """How many of the first rows a reader has that has seen the sequence `seen`; all of them for a duplicate.

    Parameters
    ----------
    numbers : of the rows, where a header has them.
    """
    rows = rows_of(event)
    if load.sequence <= seen:
        return rows
    if numbers is not None:
        return bisect_right(numbers, seen)
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
        scores=None if block.scores is None else block.scores.take(slice(first, None)),
        action=None if block.action is None else block.action[kept],
        weight=None if block.weight is None else block.weight[kept],
    ), first
