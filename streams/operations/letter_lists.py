"""Who and what the result lists of a dead letter are of, so that people can find those of a user or an item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kinstream.streams.agents.refusals import Rows
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.values import Click, ClickBlock

#: What lists can be found by. An item is one that was clicked.
SOUGHT: Final = ("user", "session", "address", "item")


def names_of(value: bytes | None, rows: Rows) -> dict[str, set[str]]:
    """The names by kind (`SOUGHT`) in the refused lists of a record; empty for one without lists.

    Parameters
    ----------
    rows : numbers of refused impressions; None for all.
    """
    try:
        record = decode(value, Click, ClickBlock)
    except BadRecord:
        return {}
    if isinstance(record, Click):
        found = {name: {getattr(record, name)} for name in SOUGHT[:3]}
        found["item"] = {one.item for one in record.clicks}
    else:
        assert isinstance(record, ClickBlock)
        found = _names_of_block(record, rows)
    return {name: {one for one in some if one is not None} for name, some in found.items()}


def _names_of_block(block: ClickBlock, rows: Rows) -> dict[str, set[Any]]:
    wanted = None if rows is None else set(rows)
    found: dict[str, set[Any]] = {name: set() for name in SOUGHT}
    for number in range(len(block)):
        first, end = int(block.starts[number]), int(block.starts[number + 1])
        if wanted is not None and wanted.isdisjoint(range(first, end)):
            continue
        for name in SOUGHT[:3]:
            column = getattr(block, name)
            if column is not None and column[number] >= 0:
                found[name].add(block.actors[column[number]])
        mine = block.clicked[(block.clicked >= first) & (block.clicked < end)]
        found["item"].update(block.ids[block.item[at]] for at in mine)
    return found


def has_all(value: bytes | None, rows: Rows, sought: Mapping[str, str]) -> bool:
    """Whether the refused lists of a record are of all these names, by kind."""
    if not sought:
        return True
    found = names_of(value, rows)
    return all(name in found.get(kind, ()) for kind, name in sought.items())
