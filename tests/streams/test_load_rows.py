"""A reader that has the first rows of a block takes the others, whatever the kind of the block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.producers.loads.click_rows import click_block
from kinstream.producers.loads.relation_rows import relation_block
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.load_rows import (
    NUMBERS,
    known_rows,
    numbers_of,
    numbers_text,
    rows_of,
    without_first,
)
from kinstream.streams.records.values import (
    Click,
    ItemBlock,
    ItemClick,
    LoadPosition,
    Relation,
    SampleBlock,
    Table,
)
from tests.sources.rows import rows_of_event


def _events(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    table = (Table("x", rng.normal(size=(rows, 3)).astype(np.float32)),)
    names = tuple(f"n-{n}" for n in range(rows))
    lists = []
    for number in range(rows):
        items = tuple(f"i-{n}" for n in rng.permutation(9)[: rng.integers(1, 6)])
        clicks = tuple(ItemClick(one, 5 + number) for one in items if rng.random() < 0.5)
        session = f"s-{number}" if rng.random() < 0.5 else None
        query = (Table("x", rng.normal(size=(1, 2)).astype(np.float32)),) if rng.random() < 0.5 else ()
        lists.append(
            Click(
                "a",
                f"l-{number}",
                items,
                tuple(range(len(items))),
                clicks,
                number,
                session,
                None,
                None,
                query,
            )
        )
    relations = [Relation("a", f"l-{n}", f"r-{n}", bool(n % 2), n) for n in range(rows)]
    return {
        "samples": SampleBlock("a", table, rng.integers(0, 3, rows), 0),
        "labels": SampleBlock("a", table, names, 0, names),
        "items": ItemBlock("a", names, table, 0),
        "removed": ItemBlock("a", (), (), 0, names),
        "both": ItemBlock("a", names, table, 0, tuple(f"gone-{n}" for n in range(rows))),
        "clicks": click_block(lists, "a", 0),
        "relations": relation_block(relations, "a", 0),
    }


@pytest.mark.parametrize("kind", _events(1, 0))
@given(rows=st.integers(1, 12), seed=st.integers(0, 99), data=st.data())
def test_the_rest_of_a_block_is_its_last_rows(kind: str, rows: int, seed: int, data: st.DataObject) -> None:
    event = _events(rows, seed)[kind]
    count = rows_of(event)
    known = data.draw(st.integers(0, count - 1))
    rest, first = without_first(event, known)
    # Decoding checks every index.
    written = encode(replace(rest, load=LoadPosition("source/a/1/0", count - 1)))
    left: Any = decode_event(written)
    assert rows_of(left) == count - known
    assert rows_of_event(written) == rows_of_event(encode(event))[known:]
    if kind == "clicks":
        assert first == event.starts[known]
    else:
        assert first == {"both": min(known, rows), "removed": 0}.get(kind, known)


def test_a_sequence_counts_rows_or_blocks() -> None:
    event = _events(5, 0)["samples"]
    ours, theirs = (LoadPosition(name, 9) for name in ("source/a/1/0", "load"))
    # Rows 5 to 9 of a load.
    assert [known_rows(event, ours, seen) for seen in (-1, 3, 4, 5, 8, 9, 20)] == [0, 0, 0, 1, 4, 5, 5]
    assert [known_rows(event, theirs, seen) for seen in (-1, 4, 8, 9, 20)] == [0, 0, 0, 5, 5]


@given(st.lists(st.integers(0, 2**43), min_size=1, max_size=40, unique=True).map(sorted), st.data())
def test_numbers_come_back_from_their_header_and_split_a_block(
    numbers: list[int], data: st.DataObject
) -> None:
    load = LoadPosition("source/a/1/0", numbers[-1])
    assert numbers_of(load, [(NUMBERS, numbers_text(numbers))], len(numbers)) == numbers
    seen = data.draw(st.integers(-1, numbers[-1] + 1))
    event = _events(len(numbers), 0)["samples"]
    assert known_rows(event, load, seen, numbers) == sum(number <= seen for number in numbers)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"x",
        b"5",
        b"5 1*3",
        b"5 1*1",
        b"5 0*2",
        b"5 -1*2",
        b"5 1*2 1*0",
        b"4 1*2",
        b"5 1*9999999999",
    ],
)
def test_a_header_that_is_not_of_its_rows_is_refused(text: bytes) -> None:
    load = LoadPosition("source/a/1/0", 7)
    assert numbers_of(load, [(NUMBERS, b"5 1*2")], 3) == [5, 6, 7]
    with pytest.raises(BadRecord, match="kinstream-rows"):
        numbers_of(load, [(NUMBERS, text)], 3)
    # Loads of others have no such numbers.
    assert numbers_of(LoadPosition("load", 7), [(NUMBERS, text)], 3) is None
