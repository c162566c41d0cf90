"""The rows of an events topic, by their numbers: the rule of `load_rows`, written anew without product code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    Feedback,
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
        numbers = _numbers(record, len(rows), event.load.sequence)
        # The first appearances come in order.
        newest = max(known, default=-1)
        for number, row in zip(numbers, rows, strict=True):
            repeated += number in known
            assert number in known or number > newest, f"row {number} comes after {newest}"
            assert known.setdefault(number, row) == row
    return found, repeated


def _numbers(record: Message | Output, rows: int, last: int) -> list[int]:
    """The offset of a row's record, times 2^20, and its place in it. Steps are written with how often they come."""
    text = dict(record.headers).get("kinstream-rows")
    if text is None:
        assert rows == 1, "several rows without their numbers"
        return [last]
    first, *steps = text.decode().split(" ")
    found = [int(first)]
    for step, _, times in (one.partition("*") for one in steps):
        for _ in range(int(times)):
            found.append(found[-1] + int(step))
    assert len(found) == rows and found[-1] == last and found == sorted(set(found))
    return found


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
        case Feedback():
            yield {"taken_back": (event.list_id, event.item, event.key)}
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
