"""The rows of an events topic, by their numbers: the rule of `load_rows`, written anew without product code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinstream.streams.records.codec.every_kind import decode_event
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    ItemBlock,
    Relation,
    RelationBlock,
    SampleBlock,
)

Rows = dict[tuple[str, str], dict[int, Any]]


def numbered(records: Iterable[Message | Output]) -> tuple[Rows, int]:
    """Each row by (space, load) and number, and how many came again; a row that comes again must be the same."""
    found: Rows = {}
    repeated = 0
    for record in records:
        event: Any = decode_event(record.value)
        rows = list(_rows(event))
        known = found.setdefault((event.space, event.load.load_id), {})
        first = event.load.sequence - len(rows) + 1
        assert first <= len(known), f"rows {len(known)} to {first - 1} are missing before {first}"
        for number, row in enumerate(rows, first):
            repeated += number in known
            assert known.setdefault(number, row) == row
    for rows_of_load in found.values():
        assert sorted(rows_of_load) == list(range(len(rows_of_load)))
    return found, repeated


def rows_of_event(value: bytes | None) -> list[Any]:
    """The rows of one event."""
    return list(_rows(decode_event(value)))


def _rows(event: Any) -> Iterable[Any]:
    match event:
        case Click():
            yield _list(
                event.space,
                event.list_id,
                list(event.items),
                list(event.positions),
                [(one.item, one.time_ms) for one in event.clicks],
                event.shown_at_ms,
                event.session,
                event.user,
                event.query_item,
            )
        case ClickBlock():
            for number in range(len(event.list_ids)):
                yield _of_block(event, number)
        case ItemBlock():
            table = event.tables[0].vectors if event.tables else None
            for number, name in enumerate(event.ids):
                assert table is not None
                yield name, table[number].tolist()
            for name in event.tombstones:
                yield name, None
        case SampleBlock():
            for number, label in enumerate(event.labels):
                plain = label if isinstance(label, str) else int(label)
                yield plain, event.tables[0].vectors[number].tolist()
        case Relation():
            yield event.left, event.right, event.similar, event.time_ms
        case RelationBlock():
            for a, b, same, at in zip(event.left, event.right, event.similar, event.time_ms, strict=True):
                yield event.ids[a], event.ids[b], bool(same), int(at)


def _of_block(block: ClickBlock, number: int) -> dict[str, Any]:
    shown = range(int(block.starts[number]), int(block.starts[number + 1]))
    names = [block.ids[block.item[place]] for place in shown]
    clicks = [
        (block.ids[block.item[place]], int(at))
        for place, at in zip(block.clicked.tolist(), block.click_ms, strict=True)
        if place in shown
    ]

    def actor(index: int) -> str | None:
        return None if index < 0 else block.actors[index]

    query = int(block.query[number])
    return _list(
        block.space,
        block.list_ids[number],
        names,
        [int(block.position[place]) for place in shown],
        clicks,
        int(block.shown_at_ms[number]),
        actor(int(block.session[number])),
        actor(int(block.user[number])),
        None if query < 0 else block.ids[query],
    )


def _list(*values: Any) -> dict[str, Any]:
    names = (
        "space",
        "list_id",
        "items",
        "positions",
        "clicks",
        "shown_at_ms",
        "session",
        "user",
        "query_item",
    )
    return dict(zip(names, values, strict=True))
