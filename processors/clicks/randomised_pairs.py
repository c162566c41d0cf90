"""The pairs of impressions that a service has swapped by a coin, as the ids of lists say."""

from __future__ import annotations

import numpy as np

from kinstream.processors.clicks.lists import Lists, Numbers
from kinstream.streams.records.randomised_id import PREFIX, mark_of, parts_of


def uppers(lists: Lists) -> Numbers:
    """(m,) int32: for the lower impression of each drawn pair, the upper one; -1 for all others.

    A pair counts if both items came back in the order and at the distance in which they were shown. So an item that a
    layout has put above them does no harm, and one between them ends the pair. The id is not proved to be genuine: that
    needs the key, and who makes up ids can make up clicks as well.
    """
    block = lists.block
    found = np.full(len(lists.of), -1, np.int32)
    for number, list_id in enumerate(block.list_ids):
        if lists.faults[number] or not list_id.startswith(PREFIX):
            continue
        parts = parts_of(list_id)
        if parts is None:
            continue
        mine = lists.order[block.starts[number] : block.starts[number + 1]].tolist()
        at: dict[int, int] = {}
        for impression in mine:
            mark = mark_of(block.space, block.ids[block.item[impression]])
            # Two items with one hash cannot be distinguished.
            at[mark] = -1 if mark in at else impression
        marks = parts.drawn.marks
        for upper, lower in parts.drawn.pairs:
            one, other = (at.get(marks[place], -1) for place in (upper, lower))
            if one < 0 or other < 0 or marks[upper] == marks[lower]:
                continue
            if int(block.position[other]) - int(block.position[one]) == lower - upper:
                found[other] = one
    return found
