"""A click record or a block of them as one checked form in columns.

A bad list raises no error here: it gets a fault, so that the other lists of its block can be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import Origin
from kinstream.processors.base.id_table import Hashes, hashes
from kinstream.streams.compute.compilation import compiled
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.scores import MOST_NAMES
from kinstream.streams.records.values import Click, ClickBlock

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int32]
Times = NDArray[np.int64]

#: Times and dwell times are below it: milliseconds far beyond any calendar.
END_OF_TIME: Final = 2**53
_MAX_POSITION: Final = 2**31 - 1
#: Characters that the rows of one refusal may take as text, so that they fit a header.
_ROWS_TEXT: Final = 3_500
#: Number of names in a detail, and characters of each.
_NAMED: Final = 3
_NAME_LENGTH: Final = 40


class Fault(IntEnum):
    """The fault of a list; 0 means none."""

    NONE = 0
    TOO_LONG = 1
    POSITION_TWICE = 2
    ITEM_TWICE = 3
    BAD_TIME = 4
    BAD_POSITION = 5
    NOT_SHOWN = 6
    QUERY_DIMENSION = 7
    AHEAD = 8
    UNKNOWN_QUERY = 9
    TOO_MANY_NAMES = 10


#: Fault -> reason of the refusal, and the text of its detail.
FAULTS: Final = {
    Fault.TOO_LONG: (Reason.TOO_LARGE, "more items in one list than are allowed"),
    Fault.POSITION_TWICE: (Reason.BAD_SHAPE, "two items at one position"),
    Fault.ITEM_TWICE: (Reason.BAD_SHAPE, "an item shown twice in one list"),
    Fault.BAD_TIME: (Reason.BAD_SHAPE, "a time or dwell time that is negative or out of range"),
    Fault.BAD_POSITION: (Reason.BAD_SHAPE, "a position that is negative or out of range"),
    Fault.NOT_SHOWN: (Reason.BAD_SHAPE, "a click on an item that was not shown"),
    Fault.QUERY_DIMENSION: (Reason.WRONG_DIMENSION, "a query vector that does not fit the items"),
    Fault.AHEAD: (Reason.AHEAD_OF_LOG, "a time too far ahead of the log"),
    Fault.UNKNOWN_QUERY: (Reason.UNKNOWN_ITEM, "a query item that is not in the catalogue"),
    Fault.TOO_MANY_NAMES: (
        Reason.BAD_SHAPE,
        f"scores by a new name in a space that has {MOST_NAMES}, which is the most",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """n checked lists of m impressions.

    Parameters
    ----------
    block : the columns.
    of : (m,) int32 list of each impression.
    order : (m,) int32 impressions from the top of each list down; those of list i are starts[i] .. starts[i + 1].
    time_ms : (n,) int64 newest time in each list.
    faults : (n,) int8 `Fault`.
    keys : (u, 2) hashes of the item names.
    """

    block: ClickBlock
    of: Numbers
    order: Numbers
    time_ms: Times
    faults: NDArray[np.int8]
    keys: Hashes

    def __len__(self) -> int:
        return len(self.time_ms)


def read_lists(event: Click | ClickBlock, max_list: int) -> Lists:
    """Check an event list by list.

    Parameters
    ----------
    max_list : a list of more items has the fault TOO_LONG.

    Raises
    ------
    BadRecord : EMPTY or BAD_SHAPE, for an event without separable lists.
    """
    block, fault = (_owned(event), Fault.NONE) if isinstance(event, ClickBlock) else _one_list(event)
    count, shown = len(block.list_ids), len(block.item)
    if not count or not shown:
        raise BadRecord(Reason.EMPTY, "a click record without shown items")
    if len(block.starts) != count + 1 or len(block.position) != shown:
        raise BadRecord(Reason.BAD_SHAPE, "the columns of a click block do not match")
    if block.scores is not None:
        if len(block.scores) != shown:
            raise BadRecord(Reason.BAD_SHAPE, f"scores of {len(block.scores)} items for {shown}")
        # A name without a value says no more than no name.
        block = replace(block, scores=block.scores.given())
    of, order = np.empty(shown, np.int32), np.empty(shown, np.int32)
    time_ms, faults = np.empty(count, np.int64), np.full(count, int(fault), np.int8)
    _inspect(
        block.starts,
        block.item,
        block.position,
        block.shown_at_ms,
        block.clicked,
        block.click_ms,
        block.dwell_ms,
        len(block.ids),
        max_list,
        END_OF_TIME,
        of,
        order,
        time_ms,
        faults,
    )
    return Lists(block, of, order, time_ms, faults, hashes(block.ids))


@compiled
def _inspect(
    starts: Numbers,
    item: Numbers,
    position: Numbers,
    shown_at_ms: Times,
    clicked: Numbers,
    click_ms: Times,
    dwell_ms: Times,
    names: int,
    max_list: int,
    end_of_time: int,
    of: Numbers,
    order: Numbers,
    time_ms: Times,
    faults: NDArray[np.int8],
) -> None:
    """Fill the last four arrays; an existing fault stays."""
    seen = np.full(names, -1, np.int32)
    for i in range(len(time_ms)):
        low, high = starts[i], starts[i + 1]
        time_ms[i] = shown_at_ms[i]
        for at in range(low, high):
            of[at] = i
            order[at] = at
        fault = faults[i]
        if high - low > max_list:
            if fault == 0:
                faults[i] = 1
            continue
        for at in range(low, high):
            if fault == 0 and seen[item[at]] == i:
                fault = 3
            seen[item[at]] = i
            # Most lists come sorted, and then this loop does not run.
            place = at
            while place > low and position[order[place - 1]] > position[at]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = at
        for at in range(low + 1, high):
            if fault == 0 and position[order[at]] == position[order[at - 1]]:
                fault = 2
        if fault == 0 and not 0 <= shown_at_ms[i] < end_of_time:
            fault = 4
        faults[i] = fault
    for j in range(len(clicked)):
        i = of[clicked[j]]
        if not (0 <= click_ms[j] < end_of_time and -1 <= dwell_ms[j] < end_of_time) and faults[i] == 0:
            faults[i] = 4
        time_ms[i] = max(time_ms[i], click_ms[j])


def partly(lists: Lists, arriving: Flags) -> Flags:
    """(n,) lists of which a redrive applies some impressions and others came before."""
    found = np.zeros(len(lists), np.bool_)
    found[lists.of[~arriving]] = True
    return found


def rows_of(origin: Origin, shown: int) -> tuple[Flags, Flags]:
    """Impressions that arrive, and those that stay refused, (m,) both."""
    arriving, waiting = np.ones(shown, np.bool_), np.zeros(shown, np.bool_)
    if origin.rows is None:
        return arriving, waiting
    if not origin.rows or min(origin.rows) < 0 or max((*origin.rows, *origin.refused)) >= shown:
        raise BadRecord(Reason.BAD_SHAPE, f"the redrive names rows beyond the {shown} impressions")
    arriving[:] = False
    arriving[list(origin.rows)] = True
    waiting[list(origin.refused)] = True
    return arriving, waiting & ~arriving


def _owned(block: ClickBlock) -> ClickBlock:
    """The block with columns of one kind: kernels would be compiled again for read-only arrays."""
    return replace(
        block,
        starts=np.array(block.starts, np.int32),
        item=np.array(block.item, np.int32),
        position=np.array(block.position, np.int32),
        clicked=np.array(block.clicked, np.int32),
        shown_at_ms=np.array(block.shown_at_ms, np.int64),
        click_ms=np.array(block.click_ms, np.int64),
        dwell_ms=np.array(block.dwell_ms, np.int64),
    )


def _one_list(click: Click) -> tuple[ClickBlock, Fault]:
    """The record as a block of one list, and the fault that the block cannot represent."""
    if not click.items:
        raise BadRecord(Reason.EMPTY, "a click record without shown items")
    if len(click.positions) != len(click.items):
        raise BadRecord(Reason.BAD_SHAPE, f"{len(click.positions)} positions of {len(click.items)} items")
    numbers: dict[str, int] = {}
    item = [numbers.setdefault(name, len(numbers)) for name in click.items]
    impression = {number: at for at, number in reversed(list(enumerate(item)))}
    fault = Fault.NONE
    positions = click.positions
    if min(positions) < 0 or max(positions) > _MAX_POSITION:
        fault, positions = Fault.BAD_POSITION, tuple(range(len(item)))
    clicked, times, dwells, action, weight = [], [], [], [], []
    kinds: dict[str, int] = {}
    for one in click.clicks:
        number = numbers.get(one.item)
        if number is None:
            fault = fault or Fault.NOT_SHOWN
            continue
        clicked.append(impression[number])
        times.append(_bounded(one.time_ms))
        action.append(-1 if one.action is None else kinds.setdefault(one.action, len(kinds)))
        weight.append(1.0 if one.weight is None else one.weight)
        dwells.append(-1 if one.dwell_ms is None else _bounded(one.dwell_ms if one.dwell_ms >= 0 else -2))
    query = -1 if click.query_item is None else numbers.setdefault(click.query_item, len(numbers))
    named = (click.session, click.user, click.address)
    actors = tuple(dict.fromkeys(name for name in named if name is not None))
    block = ClickBlock(
        space=click.space,
        ids=tuple(numbers),
        list_ids=(click.list_id,),
        actors=actors,
        session=_column([-1 if click.session is None else actors.index(click.session)]),
        user=_column([-1 if click.user is None else actors.index(click.user)]),
        query=_column([query]),
        query_row=_column([0 if click.query_vector else -1]),
        query_vectors=click.query_vector,
        shown_at_ms=np.array([_bounded(click.shown_at_ms)], np.int64),
        starts=_column([0, len(item)]),
        item=_column(item),
        position=_column(positions),
        clicked=_column(clicked),
        click_ms=np.array(times, np.int64),
        dwell_ms=np.array(dwells, np.int64),
        load=click.load,
        address=None if click.address is None else _column([actors.index(click.address)]),
        scores=click.scores,
        kinds=tuple(kinds),
        action=_column(action) if kinds else None,
        weight=np.array(weight, np.float32) if any(one.weight is not None for one in click.clicks) else None,
    )
    return block, fault


def _column(values: Sequence[int]) -> Numbers:
    return np.array(values, np.int32)


def _bounded(value: int) -> int:
    """A number of any size as one that an int64 holds and that is as far out of range."""
    return max(-2, min(value, END_OF_TIME))


# ---- texts about bad lists -----------------------------------------------------------------------------------


def refusals(lists: Lists, arriving: Flags) -> list[BadRecord]:
    """Refusals of the lists that have a fault, by the arriving rows that are theirs."""
    if not lists.faults.any():
        return []
    made = []
    for fault in sorted(set(lists.faults.tolist()) - {int(Fault.NONE)}):
        bad = lists.faults == fault
        rows = np.flatnonzero(bad[lists.of] & arriving)
        touched = np.unique(lists.of[rows]).tolist()
        reason, text = FAULTS[Fault(fault)]
        detail = f"{text}: {named([lists.block.list_ids[i] for i in touched], 'list')}"
        made += [BadRecord(reason, detail, part) for part in split_rows(rows)]
    return made


def named(names: Sequence[str], what: str) -> str:
    """A few of the names, cut short: "list 'a', 'b', 'c' and 7 more"."""
    some = ", ".join(repr(n if len(n) <= _NAME_LENGTH else n[:_NAME_LENGTH] + "...") for n in names[:_NAMED])
    return f"{what} {some}" + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def split_rows(rows: NDArray[Any]) -> list[tuple[int, ...]]:
    """Rising row numbers in parts, each of them short when it is written as runs (`0-3,7`)."""
    if not len(rows):
        return []
    cuts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    parts, first, length = [], 0, 0
    for low, high in pairwise(cuts):
        text = len(f"{rows[low]}-{rows[high - 1]},")
        if length + text > _ROWS_TEXT:
            parts.append((first, low))
            first, length = low, 0
        length += text
    return [tuple(rows[low:high].tolist()) for low, high in [*parts, (first, len(rows))]]
