"""Constraints say which of them came from one event: a list, a relation, a sample; blocks keep an event together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.processors.base.builder import Made, Origin
from kinstream.processors.base.packing import Packing, row_bytes
from kinstream.processors.clicks.clicks import Clicks
from kinstream.processors.closure.closure import Closure
from kinstream.processors.registry import create
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.values import Click, ConstraintBlock, Kind, Table
from tests.processors import closure_samples as toys
from tests.processors.click_samples import NOW, block_of, items, preferring, rows_of, shown, told, with_items
from tests.processors.samples import blocks_of

DIMENSION = 8
ROOM = 1024


def numbers(block: ConstraintBlock) -> list[int]:
    """Event numbers of the rows; a block without them has events of one row."""
    return list(range(1, len(block) + 1)) if block.events is None else block.events.tolist()


def grouped(blocks: Iterable[ConstraintBlock], rows: Sequence[Any]) -> list[list[Any]]:
    """The rows by event, over the borders of blocks."""
    found: list[list[Any]] = []
    left = iter(rows)
    for block in blocks:
        for number, some in groupby(numbers(block)):
            taken = [next(left) for _ in some]
            if number == 0 and found:
                found[-1] += taken
            else:
                found.append(taken)
    assert next(left, None) is None
    return found


# ---- packing --------------------------------------------------------------------------------------------------------

ROWS = st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), max_size=60)
STEPS = st.lists(st.integers(0, 3), min_size=60, max_size=60)


def packed(rows: list[list[int]], events: list[int] | None, **more: Any) -> list[ConstraintBlock]:
    def vectors(references: Any) -> tuple[Table, ...]:
        table = np.zeros((len(references), DIMENSION), np.float32)
        table[:, 0] = references
        return (Table("x", table),)

    packing = Packing("s", (("x", DIMENSION),), ROOM)
    references = np.array(rows, np.int64).reshape(-1, 3)
    of = None if events is None else np.array(events)
    return packing.blocks(Kind.TRIPLET, "r", references, vectors, 0, events=of, **more)


def oracle(rows: list[list[int]], events: list[int]) -> list[list[int]]:
    """Row numbers of each part: an event begins a new part where it does not fit; a row where it has to."""
    room = Packing("s", (("x", DIMENSION),), ROOM).room("r")

    def size(part: list[int]) -> int:
        vectors = len({reference for row in part for reference in rows[row]})
        return vectors * DIMENSION * 4 + len(part) * row_bytes(Kind.TRIPLET, grouped=True)

    parts: list[list[int]] = [[]]
    for _, event in groupby(range(len(rows)), key=lambda row: events[row]):
        whole = list(event)
        if size(parts[-1] + whole) <= room:
            parts[-1] += whole
            continue
        if parts[-1]:
            parts.append([])
        for row in whole:
            if size([*parts[-1], row]) > room:
                parts.append([])
            parts[-1].append(row)
    return [part for part in parts if part]


@settings(max_examples=150, deadline=None)
@given(ROWS, STEPS)
def test_blocks_hold_whole_events_wherever_they_fit(rows: list[list[int]], steps: list[int]) -> None:
    events = np.cumsum(np.array(steps[: len(rows)]) > 1).tolist()
    blocks = packed(rows, events)
    parts = oracle(rows, events)
    assert [len(block) for block in blocks] == [len(part) for part in parts]
    told = [[int(block.tables[0].vectors[i, 0]) for i in row] for block in blocks for row in block.index]
    assert told == rows
    for block, part, before in zip(blocks, parts, [None, *parts], strict=False):
        own = [events[row] for row in part]
        assert len(encode(block)) <= ROOM
        assert decode_constraints(encode(block)).space == "s"
        again = before is not None and events[before[-1]] == own[0]
        if not again and len(set(own)) == len(own):
            assert block.events is None
            continue
        assert block.events is not None and block.events.dtype == np.int32
        ranks = {number: rank for rank, number in enumerate(dict.fromkeys(own), 0 if again else 1)}
        assert block.events.tolist() == [ranks[number] for number in own]


def test_an_event_that_does_not_fit_goes_on_as_number_0() -> None:
    rows = [[3 * row, 3 * row + 1, 3 * row + 2] for row in range(30)]
    blocks = packed(rows, [7] * 28 + [8, 8])
    assert len(blocks) > 2
    assert set(numbers(blocks[0])) == {1}
    assert all(set(numbers(block)) == {0} for block in blocks[1:-1])
    assert numbers(blocks[-1])[-2:] == [1, 1]


def test_constraints_without_events_are_cut_and_written_as_ever() -> None:
    rows = [[3 * row, 3 * row + 1, 3 * row + 2] for row in range(30)]
    blocks = packed(rows, None)
    assert all(block.events is None and block.earlier is None for block in blocks)
    one = 3 * 4 * DIMENSION + row_bytes(Kind.TRIPLET)
    assert len(blocks[0]) == Packing("s", (("x", DIMENSION),), ROOM).room("r") // one


def test_events_that_have_begun_are_all_number_0() -> None:
    (block,) = packed([[0, 1, 2], [3, 4, 5]], [1, 2], begun=True)
    assert numbers(block) == [0, 0]


# ---- clicks ---------------------------------------------------------------------------------------------------------

RULES = ("click-skip-above", "click-no-click-next", "co-click")


def lists() -> list[Click]:
    return [
        shown("a", "i1 i2 i3 i4", [("i3", 10), ("i4", 20)], query="i0", session="s", user="u"),
        shown("b", "i1 i2", [("i2", 10)], query="i5", session="t"),
        shown("c", "i1 i2 i3", (), query="i6", session="t"),
        shown("d", "i6 i7 i8 i9", [("i9", 10), ("i8", 20)], query="i0", session="s"),
        shown("e", "i1 i2 i3 i4 i5", [("i5", 10)], query="i9", session="r"),
    ]


def by_kind(made: Made, kind: Kind) -> list[list[Any]]:
    blocks = [block for block in made.blocks if block.kind is kind]
    return grouped(blocks, rows_of(blocks))


def test_a_list_is_an_event_in_whatever_block_it_comes() -> None:
    def builder() -> Clicks:
        return with_items(Clicks(rules=RULES, co_click_support=1))

    whole = builder().process(block_of(lists()), Origin(1, NOW))
    one_by_one, apart = builder(), []
    for offset, click in enumerate(lists(), 1):
        apart.append(one_by_one.process(click, Origin(offset, NOW)))
    for kind in (Kind.TRIPLET, Kind.PAIR):
        expected = [event for made in apart for event in by_kind(made, kind)]
        assert by_kind(whole, kind) == expected
        assert max(len(event) for event in expected) > 1
    # A list that gave triplets gave its pairs after them.
    assert [block.earlier for block in whole.blocks] == [None, Kind.TRIPLET]


def test_lists_of_one_constraint_need_no_numbers() -> None:
    builder = with_items(preferring())
    clicks = [shown(name, "i1 i2", [("i2", 10)], user=name) for name in "abc"]
    (block,) = builder.process(block_of(clicks), Origin(1, NOW)).blocks
    assert len(block) == 3 and block.events is None


def test_pairs_of_lists_without_triplets_have_no_earlier_constraints() -> None:
    builder = with_items(Clicks(rules=RULES, co_click_support=1))
    click = shown("a", "i1 i2", [("i1", 10), ("i2", 20)], query="i0", session="s")
    (pairs,) = builder.process(click, Origin(1, NOW)).blocks
    assert (pairs.kind, pairs.earlier) == (Kind.PAIR, None)


def test_what_a_redrive_brings_of_a_list_belongs_to_an_event_that_has_begun() -> None:
    builder = with_items(preferring(), "i0 i1 i3")
    click = shown("a", "i1 i2 i3", [("i3", 10)])
    first = builder.process(click, Origin(1, NOW))
    assert told(first) == [("i0", "i3", "i1")]
    assert first.blocks[0].events is None
    builder.process(items(["i2"]), Origin(2, NOW))
    (block,) = builder.process(click, Origin(3, NOW, rows=(1,))).blocks
    assert numbers(block) == [0]


def test_a_list_that_comes_back_whole_is_a_new_event() -> None:
    builder = with_items(preferring(), "i1 i2 i3")
    click = shown("a", "i1 i2 i3", [("i3", 10)], query="i0")
    assert builder.process(click, Origin(1, NOW)).blocks == []
    builder.process(items(["i0"]), Origin(2, NOW))
    (block,) = builder.process(click, Origin(3, NOW, rows=(0, 1, 2))).blocks
    assert numbers(block) == [1, 1]


# ---- closure --------------------------------------------------------------------------------------------------------

SAID = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans(), st.none()).filter(lambda t: t[0] != t[1]),
    min_size=1,
    max_size=25,
)


def pairs_and_triplets(made: Made) -> tuple[list[list[Any]], list[list[Any]]]:
    pairs = [block for block in made.blocks if block.kind is Kind.PAIR]
    triplets = [block for block in made.blocks if block.kind is Kind.TRIPLET]
    return grouped(pairs, toys.pairs_of(pairs)), grouped(triplets, toys.triplets_of(triplets))


@settings(max_examples=60, deadline=None)
@given(SAID)
def test_a_relation_is_an_event_in_whatever_block_it_comes(said: list[toys.Said]) -> None:
    """Draws aside, which depend on the block: without limits nothing is drawn."""
    whole = toys.unlimited(8).process(toys.relations(said), Origin(1))
    builder = toys.unlimited(8)
    apart = [pairs_and_triplets(builder.process(toys.relations([one]), Origin(1))) for one in said]
    pairs, triplets = pairs_and_triplets(whole)
    assert [sorted(event, key=str) for event in pairs] == [sorted(e, key=str) for p, _ in apart for e in p]
    assert [sorted(event) for event in triplets] == [sorted(e) for _, t in apart for e in t]
    for block in whole.blocks:
        assert block.earlier is (Kind.PAIR if block.kind is Kind.TRIPLET else None)


@pytest.mark.parametrize("emit", ["pairs", "triplets"])
def test_a_closure_of_one_kind_has_no_earlier_constraints(emit: str) -> None:
    builder = toys.unlimited(8, emit=emit)
    said: list[toys.Said] = [(0, 1, True, None), (1, 2, False, None), (2, 3, True, None)]
    blocks = builder.process(toys.relations(said), Origin(1)).blocks
    assert blocks and all(block.earlier is None for block in blocks)


def test_a_labelled_sample_is_an_event_with_its_relations_to_all_classes() -> None:
    builder = Closure(emit="pairs", max_new_pairs=0)
    made = builder.process(toys.samples(range(6), [0, 1, 2, 0, 1, 2]), Origin(1))
    events, _ = pairs_and_triplets(made)
    # Sample 1 differs from 0; 2 from 0 and 1; 3 is like 0, so it differs from 1 and 2; and so on.
    assert [len(event) for event in events] == [1, 2, 3, 4, 5]


def test_co_clicked_pairs_and_what_follows_are_the_events_of_their_lists() -> None:
    names = [f"i{n}" for n in range(10)]
    builder = Closure(emit="pairs", co_click_support=1, from_labels=False)
    builder.process(items(names), Origin(0, NOW))
    clicks = [
        shown("a", "i1 i2 i3", [("i1", 1), ("i2", 2), ("i3", 3)], session="s"),
        shown("b", "i4 i5", [("i4", 1), ("i5", 2)], session="t"),
        shown("c", "i3 i5", [("i3", 1), ("i5", 2)], session="r"),
    ]
    blocks = builder.process(block_of(clicks), Origin(1, NOW)).blocks
    # Joining {1, 2, 3} and {4, 5} gives six pairs.
    assert [len(event) for event in grouped(blocks, rows_of(blocks))] == [3, 1, 6]


# ---- drawn constraints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random-pairs", "random-triplets"])
@pytest.mark.parametrize("each", [1, 3])
def test_the_constraints_of_a_sample_are_an_event(kind: str, each: int) -> None:
    """The newest sample of a row says which sample gave it: vectors tell the order of the samples."""
    builder = create(kind, per_sample=each)
    labels = [n % 3 for n in range(40)]
    for block in blocks_of(labels, range(8, 40, 8), sizes=(("x", 2),)):
        for made in builder.process(block, Origin(0)).blocks:
            if each == 1:
                assert made.events is None
                continue
            assert made.events is not None
            own = made.index[:, 1] if made.kind is Kind.PAIR else made.index[:, 0]
            changes = [int(a != b) for a, b in pairwise(made.events.tolist())]
            assert changes == [int(a != b) for a, b in pairwise(own.tolist())]
            assert np.bincount(made.events)[1:].max() <= each
    assert builder.algorithm == f"{kind}/{1 if each == 1 else 2}"


@pytest.mark.parametrize("kind", ["one-pass", "adjacent-pairs"])
def test_builders_of_one_constraint_a_sample_give_no_numbers(kind: str) -> None:
    builder = create(kind)
    for block in blocks_of([n % 3 for n in range(40)], range(8, 40, 8), sizes=(("x", 2),)):
        for made in builder.process(block, Origin(0)).blocks:
            assert made.events is None and made.earlier is None
    assert builder.algorithm == f"{kind}/1"
