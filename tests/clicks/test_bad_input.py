"""Bad input of every kind, from the bytes of a record to the dead letter, through the builders of clicks and closure.

Of each: the reason and the rows of its dead letters, what is counted, that the rest of its record counts once and that
the stream goes on after it. The vector of item "i7" is (7, 1), so that constraints can be told by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from kinstream.processors.base.builder import Segmented
from kinstream.processors.clicks.counts import FATES
from kinstream.streams.agents.letter import DETAIL, REFUSED, ROWS
from kinstream.streams.agents.refusals import Rows
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.errors import Reason
from kinstream.streams.records.codec.codec import decode_constraints
from kinstream.streams.records.message import Output
from kinstream.streams.records.values import (
    Action,
    Click,
    Control,
    Declaration,
    Event,
    ItemBlock,
    Kind,
    LoadPosition,
    RelationBlock,
    SampleBlock,
    Table,
)
from tests.clicks.stream import (
    EVENTS,
    LETTERS,
    SPACE,
    Stream,
    builder_stream,
    constraint_blocks,
    detail,
    learner_stream,
    letters,
    refusals,
)
from tests.processors.bounds import set_bounds
from tests.processors.click_samples import block_of, shown

#: 2026-01-01T00:00:00Z: the append time of every record.
NOW: Final = 1_767_225_600_000
MINUTE: Final = 60_000
DAY: Final = 24 * 60 * MINUTE
KINDS: Final = ("clicks", "closure")
#: What makes a builder of each kind give what follows from a record at once, and all of it.
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "clicks": {"rules": ["click-skip-above", "co-click"], "co_click_support": 1},
    "closure": {"co_click_support": 1, "max_new_pairs": 0, "max_new_triplets": 0},
}
#: Clicked items are i3 and i4.
CLICKS: Final = [("i3", NOW), ("i4", NOW + 1)]
#: A constraint by its rule, its sign and the numbers of its items; those of a pair in rising order.
Said = tuple[str, int, tuple[int, ...]]


# ---- records --------------------------------------------------------------------------------------------------------


def items(numbers: Iterable[int], gone: Sequence[int] = ()) -> ItemBlock:
    numbers = list(numbers)
    vectors = np.array([[number, 1] for number in numbers], np.float32)
    tables = (Table("x", vectors),) if numbers else ()
    return ItemBlock(SPACE, tuple(f"i{n}" for n in numbers), tables, NOW, tuple(f"i{n}" for n in gone))


def good(list_id: str, first: int = 1, **changes: Any) -> Click:
    """Four items of which the third and the fourth are clicked; the query is i0."""
    names = [f"i{n}" for n in range(first, first + 4)]
    return shown(list_id, names, [(names[2], NOW), (names[3], NOW + 1)], at=NOW, user=list_id, **changes)


def relations(said: Iterable[tuple[int, int, bool]], load: LoadPosition | None = None) -> RelationBlock:
    rows = list(said)
    ids = sorted({item for left, right, _ in rows for item in (left, right)})
    place = {item: n for n, item in enumerate(ids)}
    return RelationBlock(
        SPACE,
        tuple(f"i{n}" for n in ids),
        np.array([place[left] for left, _, _ in rows], np.int32),
        np.array([place[right] for _, right, _ in rows], np.int32),
        np.array([similar for _, _, similar in rows], np.bool_),
        np.full(len(rows), NOW, np.int64),
        (),
        np.full(len(rows), -1, np.int32),
        load,
    )


def click_json(**changes: Any) -> bytes:
    """The list of `good` as a service of one's own writes it; a field that is None is left out."""
    fields: dict[str, Any] = {
        "kind": "click",
        "space": SPACE,
        "list_id": "json",
        "items": ["i1", "i2", "i3", "i4"],
        "positions": [0, 1, 2, 3],
        "clicks": [{"item": name, "time_ms": time} for name, time in CLICKS],
        "shown_at_ms": NOW,
        "user": "json",
        "query_item": "i0",
    }
    return as_json(fields | changes)


def as_json(fields: dict[str, Any]) -> bytes:
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def items_json(ids: Sequence[str], vectors: Sequence[Sequence[float]]) -> bytes:
    return as_json({"kind": "items", "space": SPACE, "ids": ids, "vectors": vectors, "time_ms": NOW})


def relation_json(left: str, right: str, similar: bool = True, time_ms: int = NOW) -> bytes:
    fields = {"left": left, "right": right, "similar": similar, "time_ms": time_ms}
    return as_json({"kind": "relation", "space": SPACE, **fields})


# ---- what came of them ----------------------------------------------------------------------------------------------


def ready(kind: str, known: Iterable[int] = range(20), **settings: Any) -> Stream:
    """A stream whose catalogue holds items of these numbers."""
    stream = builder_stream(NOW, kind, **{**SETTINGS[kind], **settings})
    assert stream(items(known)) == []
    return stream


def said(outputs: Iterable[Output]) -> Counter[Said]:
    """Every constraint, and how often it was given."""
    found: Counter[Said] = Counter()
    for block in constraint_blocks(outputs):
        numbers = block.tables[0].vectors[:, 0].astype(int)
        for row, rule, sign in zip(block.index.tolist(), block.rule, block.signs.tolist(), strict=True):
            names = tuple(int(numbers[place]) for place in row)
            found[block.rules[rule], sign, tuple(sorted(names)) if block.kind is Kind.PAIR else names] += 1
    return found


def expected(kind: str, first: int = 1) -> Counter[Said]:
    """What comes of the list that `good` shows."""
    above, skipped, one, two = range(first, first + 4)
    if kind == "closure":
        return Counter([("closure-seed", 1, (one, two))])
    over = [(0, clicked, other) for clicked in (one, two) for other in (above, skipped)]
    return Counter([("co-click", 1, (one, two)), *(("click-skip-above", 0, names) for names in over)])


def core_of(stream: Stream) -> dict[str, Any]:
    """The state of the builder without what it has counted; all of it is finite."""
    space = stream.machine.find(SPACE)
    assert space is not None and space.core is not None
    state: dict[str, Any] = {
        name: value
        for name, value in space.core.state().items()
        if not name.startswith("count") and ".count." not in name
    }
    for value in state.values():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all()
    if isinstance(space.core, Segmented):
        state |= {f"segment {name}": to_bytes(space.core.segment(name)) for name in space.core.segments()}
    return state


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def fates(stream: Stream, *names: str) -> tuple[int, ...]:
    """Counts by name, once the totals have been checked."""
    found = stream.fates()
    if stream.spec.name == "clicks":
        for total, parts in FATES.items():
            assert found.get(total, 0) == sum(found.get(part, 0) for part in parts)
    else:
        parts = ("lists-refused", "late", "duplicate-list", "bot", "lists-used")
        assert found.get("lists", 0) == sum(found.get(part, 0) for part in parts)
    return tuple(found.get(name, 0) for name in names)


def goes_on(stream: Stream, kind: str, first: int = 11) -> None:
    """A list like any other is used, also by a machine that continues from the checkpoint."""
    stream.restart()
    outputs = stream(good(f"after {first}", first))
    assert letters(outputs) == []
    assert said(outputs) == expected(kind, first)
    core_of(stream)


def refused(stream: Stream, value: Event | bytes, reason: Reason, rows: Rows) -> list[Output]:
    """A record has one dead letter, with its own bytes, and it is counted. Returns all that came of the record."""
    before = stream.machine.dead[reason.value]
    outputs = stream(value)
    (letter,) = letters(outputs)
    assert refusals(outputs) == [(reason.value, rows)]
    assert detail(letter)
    assert (letter.topic, letter.key) == (LETTERS, SPACE.encode())
    place = f"{EVENTS}/0/{stream.offset - 1}"
    assert dict(letter.headers)[REFUSED].decode() == place
    if isinstance(value, bytes):
        assert letter.value == value
    assert stream.machine.dead[reason.value] == before + 1
    return outputs


def refused_whole(kind: str, value: Event | bytes, reason: Reason) -> None:
    """A record that cannot be read has one dead letter, changes nothing, and the stream goes on."""
    stream = ready(kind)
    before, counted = core_of(stream), stream.fates()
    assert len(refused(stream, value, reason, None)) == 1
    assert same(core_of(stream), before)
    assert (stream.fates(), stream.machine.counts["applied"]) == (counted, 1)
    goes_on(stream, kind)


def refused_list(kind: str, bad: Click | bytes, reason: Reason = Reason.BAD_SHAPE, count: int = 4) -> None:
    """A bad list is refused by all its rows and changes no more than counts; alone, and amid the good ones of a block.

    Parameters
    ----------
    bad : as bytes, it is sent only by itself.
    count : items in the list.
    """
    rows = tuple(range(count))
    stream = ready(kind)
    before = core_of(stream)
    assert len(refused(stream, bad, reason, rows)) == 1
    assert same(core_of(stream), before)
    assert fates(stream, "lists", "lists-refused") == (1, 1)
    if kind == "clicks":
        assert fates(stream, "impressions", "impressions-refused") == (count, count)
    goes_on(stream, kind)
    if isinstance(bad, bytes):
        return
    stream = ready(kind)
    block = block_of([good("one"), bad, good("two", 5)])
    outputs = refused(stream, block, reason, tuple(4 + row for row in rows))
    assert said(outputs) == expected(kind) + expected(kind, 5)
    assert fates(stream, "lists", "lists-refused", "lists-used") == (3, 1, 2)
    if kind == "clicks":
        names = (
            "impressions",
            "impressions-refused",
            "preferences",
            "preferences-emitted",
            "co-clicks-emitted",
        )
        assert fates(stream, *names) == (8 + count, count, 8, 8, 2)
    goes_on(stream, kind)


# ---- the form of a list ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_positions_out_of_order_are_read_as_they_say(kind: str) -> None:
    turned = {"items": ["i4", "i2", "i1", "i3"], "positions": [30, 4, 0, 7]}
    outputs = ready(kind)(click_json(**turned))
    assert letters(outputs) == []
    assert said(outputs) == expected(kind)
    bad_order = replace(good("one"), items=("i4", "i2", "i1", "i3"), positions=(30, 4, 0, 7))
    stream = ready(kind)
    outputs = stream(block_of([bad_order, good("two", 5)]))
    assert letters(outputs) == []
    assert said(outputs) == expected(kind) + expected(kind, 5)
    goes_on(stream, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_twice_refuses_the_list(kind: str) -> None:
    refused_list(kind, replace(good("bad"), positions=(0, 1, 2, 2)))
    refused_list(kind, click_json(positions=[0, 1, 2, 2]))


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_twice_refuses_the_list(kind: str) -> None:
    refused_list(kind, replace(good("bad"), items=("i1", "i3", "i3", "i4")))
    refused_list(kind, click_json(items=["i1", "i3", "i3", "i4"]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positions", [[0, 1, 2], [0, 1, 2, -3], [0, 1, 2, 2**31], [0, 1, 2, 2.5], "0123"])
def test_positions_that_are_none_refuse_the_record(kind: str, positions: Any) -> None:
    refused_whole(kind, click_json(positions=positions), Reason.BAD_SHAPE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_click_on_an_item_that_was_not_shown_refuses_the_list(kind: str) -> None:
    clicks = [*CLICKS, ("i9", NOW + 2)]
    refused_list(kind, click_json(clicks=[{"item": name, "time_ms": time} for name, time in clicks]))
    # A block points at its impressions, and cannot be read where it points beyond them.
    block = block_of([good("one"), good("two", 5)])
    refused_whole(kind, replace(block, clicked=np.array([2, 3, 6, 8], np.int32)), Reason.BAD_SHAPE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_without_items_refuses_the_record(kind: str) -> None:
    refused_whole(kind, click_json(items=[], positions=[], clicks=[]), Reason.EMPTY)
    refused_whole(kind, shown("empty", [], at=NOW), Reason.EMPTY)
    refused_whole(kind, block_of([]), Reason.EMPTY)
    # A block says where its lists begin, so that one of them cannot be empty.
    refused_whole(kind, block_of([good("one"), shown("empty", [], at=NOW)]), Reason.BAD_SHAPE)
    refused_whole(kind, as_json({"kind": "items", "space": SPACE, "time_ms": NOW}), Reason.EMPTY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_without_clicks_is_no_evidence_and_no_error(kind: str) -> None:
    stream = ready(kind)
    assert stream(click_json(clicks=[])) == []
    assert stream(block_of([shown("none", ["i1", "i2"], at=NOW)])) == []
    assert fates(stream, "lists", "lists-refused") == (2, 0)
    assert fates(stream, "no-click" if kind == "clicks" else "lists-used") == (2,)
    goes_on(stream, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_ten_thousand_items_is_refused_and_the_longest_that_may_be_is_used_within_its_cap(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"i{n}" for n in range(1, 10_001)]
    every_second = [(name, NOW) for name in names[1::2]]
    long = shown("long", names, every_second, at=NOW)
    stream = ready(kind, range(10_001))
    for value in (long, click_json(items=names, positions=None)):
        outputs = refused(stream, value, Reason.TOO_LARGE, tuple(range(10_000)))
        assert len(outputs) == 1
        assert dict(outputs[0].headers)[ROWS] == b"0-9999"
    outputs = refused(stream, block_of([good("one"), long]), Reason.TOO_LARGE, tuple(range(4, 10_004)))
    assert said(outputs) == expected(kind)

    if kind == "clicks":
        set_bounds(monkeypatch, kind, max_list=9_999, max_per_list=500)
        stream = ready(kind, range(10_001), max_clicks_per_hour=0)
    else:
        set_bounds(monkeypatch, kind, max_list=9_999, max_clicks_per_hour=0)
        stream = ready(kind, range(10_001), max_new_pairs=50, max_component=1_000)
    outputs = stream(
        replace(long, items=long.items[:-1], positions=long.positions[:-1], clicks=long.clicks[:-1])
    )
    assert letters(outputs) == []
    assert fates(stream, "lists", "lists-used") == (1, 1)
    # Of 4,999 clicked items each makes a pair with the eight before it.
    pairs = sum(range(8)) + 8 * (4_999 - 8)
    if kind == "clicks":
        stated = sum(range(1, 5_000))
        names_of = (
            "impressions",
            "clicks",
            "preferences",
            "preferences-emitted",
            "list-cap",
            "co-clicks-emitted",
        )
        assert fates(stream, *names_of) == (9_999, 4_999, stated, 500, stated - 500, pairs)
        assert said(outputs).total() == 500 + pairs
    else:
        accepted, known = fates(stream, "accepted", "known")
        assert (accepted, accepted + known) == (4_998, pairs)
        assert said(outputs).total() == accepted + fates(stream, "derived")[0]
        assert fates(stream, "component-over-cap")[0] > 0
    goes_on(stream, kind, 10_001 - 5)


# ---- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "time_ms", [-1, -(2**63), 2**62], ids=["before 1970", "the least", "beyond any calendar"]
)
def test_a_time_that_is_none_refuses_the_list(kind: str, time_ms: int) -> None:
    refused_list(kind, replace(good("bad"), shown_at_ms=time_ms))
    refused_list(kind, shown("bad", "i1 i2 i3 i4", [("i3", NOW), ("i4", time_ms)], at=NOW))
    refused_list(kind, click_json(shown_at_ms=time_ms))
    refused_list(kind, click_json(clicks=[{"item": "i3", "time_ms": time_ms}]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_negative_dwell_time_refuses_the_list(kind: str) -> None:
    refused_list(kind, click_json(clicks=[{"item": "i3", "time_ms": NOW, "dwell_ms": -5}]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time_ms", [2**63, 1.5, "yesterday", True])
def test_a_time_that_is_no_number_of_64_bits_refuses_the_record(kind: str, time_ms: Any) -> None:
    refused_whole(kind, click_json(shown_at_ms=time_ms), Reason.BAD_SHAPE)
    refused_whole(kind, click_json(clicks=[{"item": "i3", "time_ms": time_ms}]), Reason.BAD_SHAPE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_more_than_five_minutes_ahead_of_the_log_refuses_the_list(kind: str) -> None:
    ahead = NOW + 5 * MINUTE + 1
    refused_list(kind, replace(good("bad"), shown_at_ms=ahead), Reason.AHEAD_OF_LOG)
    refused_list(kind, shown("bad", "i1 i2 i3 i4", [("i3", NOW), ("i4", ahead)], at=NOW), Reason.AHEAD_OF_LOG)
    refused_list(kind, click_json(shown_at_ms=ahead), Reason.AHEAD_OF_LOG)
    refused_list(kind, click_json(clicks=[{"item": "i3", "time_ms": ahead}]), Reason.AHEAD_OF_LOG)


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_ahead_of_the_log_never_moves_the_watermark(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"max_late_ms": DAY} if kind == "clicks" else {}
    if kind == "closure":
        set_bounds(monkeypatch, kind, max_late_ms=DAY)
    stream = ready(kind, **settings)
    stream(replace(good("first", 1), shown_at_ms=NOW))
    bad = [5 * MINUTE + 1, DAY, 400 * DAY, 2**52 - NOW]
    for n, more in enumerate(bad):
        refused(stream, replace(good(f"bad {n}"), shown_at_ms=NOW + more), Reason.AHEAD_OF_LOG, (0, 1, 2, 3))
        block = block_of([replace(good(f"in a block {n}"), shown_at_ms=NOW + more)])
        refused(stream, block, Reason.AHEAD_OF_LOG, (0, 1, 2, 3))
    # The newest of what was taken is the click of `good`, at NOW + 1: a day before it is not late.
    oldest = shown("old", "i5 i6", [("i6", NOW + 1 - DAY)], at=0)
    stream(oldest)
    assert fates(stream, "late", "lists-refused") == (0, 2 * len(bad))
    # Five minutes are not too much, and do move it.
    outputs = stream(replace(good("ahead", 7), shown_at_ms=NOW + 5 * MINUTE))
    assert said(outputs) == expected(kind, 7)
    stream(replace(oldest, list_id="older"))
    assert fates(stream, "late") == (1,)
    goes_on(stream, kind)


@pytest.mark.parametrize("time_ms", [-1, -(2**63), NOW + 400 * DAY, 2**63 - 1])
def test_the_time_of_a_relation_decides_nothing(time_ms: int) -> None:
    """Relations stand in the order of the log, whatever their time says; it is told where they are explained."""
    stream = ready("closure")
    outputs = stream(relation_json("i1", "i2", time_ms=time_ms))
    assert said(outputs) == Counter([("closure-seed", 1, (1, 2))])
    before = core_of(stream)
    outputs = refused(stream, relation_json("i2", "i1", False, time_ms), Reason.CONTRADICTION, (0,))
    assert same(core_of(stream), before)
    assert "offset 1 row 0" in detail(outputs[0])
    goes_on(stream, "closure")


# ---- items ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_another_dimension_is_refused_and_the_catalogue_stays(kind: str) -> None:
    refused_whole(kind, items_json(["i1", "i90"], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), Reason.WRONG_DIMENSION)
    refused_whole(kind, items_json(["i1", "i90"], [[1.0, 2.0], [4.0, 5.0, 6.0]]), Reason.BAD_SHAPE)
    other = replace(items([1]), tables=(Table("y", np.ones((1, 2), np.float32)),))
    refused_whole(kind, other, Reason.WRONG_DIMENSION)


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_another_dimension_than_declared_is_refused_even_if_it_is_the_first(kind: str) -> None:
    stream = builder_stream(NOW, kind, **SETTINGS[kind])
    stream(Control(SPACE, Action.CREATE, NOW, Declaration((("x", 2),))))
    refused(stream, items_json(["i1"], [[1.0, 2.0, 3.0]]), Reason.WRONG_DIMENSION, None)
    assert stream(items(range(20))) == []
    goes_on(stream, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_that_is_not_finite_is_refused_by_its_row_and_the_others_are_used(kind: str) -> None:
    stream = ready(kind, range(3))
    body = items_json(["i3", "i2", "i4"], [[3, 1], [float("nan"), 1], [4, float("inf")]])
    refused(stream, body, Reason.NOT_FINITE, (1, 2))
    assert stream(items([4])) == []
    # i2 is what it was.
    assert said(stream(good("a"))) == expected(kind)
    stream(items(range(20)))
    goes_on(stream, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("query", [[1.0], [1.0, 2.0, 3.0], {"y": [1.0, 2.0]}])
def test_a_query_of_another_dimension_refuses_no_more_than_its_list(kind: str, query: Any) -> None:
    value = click_json(query_item=None, query_vector=query)
    if kind == "clicks":
        refused_list(kind, value, Reason.WRONG_DIMENSION)
        return
    # The closure makes nothing of the query, and reads the clicks.
    assert said(ready(kind)(value)) == expected(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_is_not_finite_refuses_the_record(kind: str) -> None:
    value = click_json(query_item=None, query_vector=[1.0, float("nan")])
    refused_whole(kind, value, Reason.NOT_FINITE)


# ---- relations ------------------------------------------------------------------------------------------------------


def test_a_relation_of_an_item_with_itself_is_refused_by_its_row() -> None:
    stream = ready("closure")
    before = core_of(stream)
    for similar in (True, False):
        refused(stream, relation_json("i5", "i5", similar), Reason.BAD_SHAPE, (0,))
    # It need not be known to be wrong.
    refused(stream, relation_json("i99", "i99"), Reason.BAD_SHAPE, (0,))
    assert same(core_of(stream), before)
    block = relations([(1, 2, True), (3, 3, True), (2, 4, False), (4, 4, False)])
    outputs = refused(stream, block, Reason.BAD_SHAPE, (1, 3))
    assert said(outputs) == Counter(
        [
            ("closure-seed", 1, (1, 2)),
            ("closure-seed", -1, (2, 4)),
            ("closure-dissimilar", -1, (1, 4)),
            ("closure-triplet", 0, (1, 2, 4)),
            ("closure-triplet", 0, (2, 1, 4)),
        ]
    )
    assert fates(stream, "self-relation", "accepted", "known", "contradiction") == (5, 2, 0, 0)
    goes_on(stream, "closure")


def test_ten_thousand_contradictions_make_few_letters_and_change_nothing() -> None:
    stream = ready("closure")
    stream(relations([(1, 2, True), (2, 3, True), (3, 4, False)]))
    before = core_of(stream)
    outputs = stream(relations([(1, 3, False), (4, 1, True)] * 5_000))
    # Sixteen with their reasons, and one for all the others.
    assert [reason for reason, _ in refusals(outputs)] == [Reason.CONTRADICTION.value] * 17
    assert [rows for _, rows in refusals(outputs)] == [*((n,) for n in range(16)), tuple(range(16, 10_000))]
    assert len(outputs) == 17
    assert all(len(value) < 1_100 for letter in outputs for name, value in letter.headers if name == DETAIL)
    assert same(core_of(stream), before)
    assert fates(stream, "contradiction", "accepted") == (10_000, 3)
    assert stream.machine.dead == {Reason.CONTRADICTION.value: 17}
    # The two that the first letters name are those that stand in the way.
    assert "offset 1 row 0" in detail(outputs[0]) and "offset 1 row 1" in detail(outputs[0])
    assert "offset 1 row 2" in detail(outputs[1])
    goes_on(stream, "closure")


def test_contradictions_one_by_one_have_a_letter_each_and_change_nothing() -> None:
    stream = ready("closure")
    stream(relation_json("i1", "i2"))
    before, stored = core_of(stream), len(stream.stored())
    bodies = (relation_json("i2", "i1", False), relation_json("i1", "i2", False))
    found = [output for n in range(1_000) for output in stream(bodies[n % 2])]
    assert refusals(found) == [(Reason.CONTRADICTION.value, (0,))] * 1_000
    assert same(core_of(stream), before)
    assert fates(stream, "contradiction", "accepted") == (1_000, 1)
    # What is refused is remembered until it is redriven: by offset and row.
    assert len(stream.stored()) <= stored + 16 * 1_000 + 1_000
    goes_on(stream, "closure")


def test_votes_for_and_against_in_turn_stay_within_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, "closure", max_votes=100)
    stream = ready("closure", contradictions="support", support=1)
    flips = [relations([(1, 2, n % 2 == 0)] * 100) for n in range(100)]
    found = [output for block in flips for output in stream(block)]
    # Relations without a source have one vote together, the last: each turn takes back the one before.
    assert letters(found) == []
    accepted, known, voted, withdrawn = fates(stream, "accepted", "known", "voted", "withdrawn")
    assert accepted + known + voted == 10_000
    assert (accepted, withdrawn) == (100, 99)
    assert said(found) == Counter({("closure-seed", 1, (1, 2)): 50, ("closure-seed", -1, (1, 2)): 50})
    sources = tuple(f"source {n}" for n in range(1_000))
    crowd = replace(
        relations([(3, 4, True)] * 1_000), sources=sources, source=np.arange(1_000, dtype=np.int32)
    )
    for _ in range(10):
        assert letters(stream(crowd)) == []
    assert fates(stream, "votes-forgotten")[0] > 1_000
    goes_on(stream, "closure")


def merging(way: str, n: int) -> list[tuple[int, int]]:
    """n - 1 relations that join n items."""
    if way == "a chain":
        return [(k, k + 1) for k in range(n - 1)]
    if way == "a star":
        return [(0, k) for k in range(1, n)]
    # Equal halves: 1 with 1, 2 with 2, 4 with 4, ...
    pairs, step = [], 1
    while step < n:
        pairs += [(k, k + step) for k in range(0, n - step, 2 * step)]
        step *= 2
    return pairs


@pytest.mark.parametrize("way", ["a chain", "a star", "equal halves"])
def test_ten_thousand_relations_that_merge_stay_within_their_caps(way: str) -> None:
    """Work is bounded by what is given: from each seed at most the caps, from the 1,000th member on nothing."""
    n = 10_001
    stream = ready("closure", range(n + 1), max_new_pairs=20, max_new_triplets=20, max_component=1_000)
    stream(relations([(n, 0, False)]))
    sizes = []
    total: Counter[Said] = Counter()
    joined = merging(way, n)
    assert len(joined) == n - 1
    for first in range(0, n - 1, 1_000):
        outputs = stream(relations([(a, b, True) for a, b in joined[first : first + 1_000]]))
        assert letters(outputs) == []
        by_rule = Counter[str]()
        for (rule, _, _), times in (found := said(outputs)).items():
            by_rule[rule] += times
        assert by_rule["closure-seed"] == 1_000
        assert by_rule["closure-similar"] + by_rule["closure-dissimilar"] <= 20 * 1_000
        assert by_rule["closure-triplet"] <= 20 * 1_000
        total += found
        sizes.append(len(stream.stored()))
    # None twice: what is drawn is drawn without replacement.
    assert max(total.values()) == 1
    assert fates(stream, "accepted", "known", "contradiction") == (n, 0, 0)
    assert fates(stream, "derived") == (total.total() - (n - 1),)
    assert fates(stream, "component-over-cap")[0] > 0
    # The same for each thousand: a checkpoint grows with the relations and not with what follows from them.
    growth = np.diff(sizes)
    assert growth.max() < 150 * 1_000
    # All of them are one component, which gives nothing more and still knows.
    stream.restart()
    assert stream(relations([(1, n - 1, True)])) == []
    refused(stream, relations([(2, n - 2, False)]), Reason.CONTRADICTION, (0,))
    refused(stream, relations([(n, n // 2, True)]), Reason.CONTRADICTION, (0,))
    assert fates(stream, "known") == (1,)
    stream(items([20_001, 20_002]))
    assert said(stream(relations([(20_001, 20_002, True)]))) == Counter(
        [("closure-seed", 1, (20_001, 20_002))]
    )


# ---- items that are not there yet -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late", [3, 4], ids=["one clicked item", "the other"])
def test_an_unknown_item_is_redriven_and_what_was_missing_is_made_once(kind: str, late: int) -> None:
    there = [n for n in range(20) if n != late]
    for value in (good("a"), click_json(), block_of([good("a"), good("b", 5)])):
        stream, whole = ready(kind, there), ready(kind)
        first = refused(stream, value, Reason.UNKNOWN_ITEM, (late - 1,))
        wanted = said(whole(value))
        (letter,) = letters(first)
        assert f"'i{late}'" in detail(letter)
        missing = wanted - said(first)
        assert missing.total() == (3 if kind == "clicks" else 1)
        assert all(late in names for _, _, names in missing)
        # Too early: it is refused again, and the letter before is answered.
        stream.restart()
        again = stream.again(letter)
        assert refusals(again) == [(Reason.UNKNOWN_ITEM.value, (late - 1,))]
        assert len(again) == 1
        stream(items([late]))
        assert stream.again(letter) == []
        assert stream.machine.counts["redrives_ignored"] == 1
        # Now.
        outputs = stream.again(again[0])
        assert letters(outputs) == []
        assert said(outputs) == missing
        assert said(first) + said(outputs) == wanted
        assert stream.again(again[0]) == []
        assert stream.machine.counts["redriven"] == 2
        assert stream.machine.counts["redrives_ignored"] == 2
        if kind == "clicks":
            counted, once = Counter(stream.fates()), Counter(whole.fates())
            # The row arrived three times, and was refused twice.
            names = ("impressions-refused", "clicks-refused")
            assert fates(stream, *names) == (2, 2)
            for name in (
                "preferences-emitted",
                "co-clicks-emitted",
                "impressions-clicked",
                "impressions-skipped",
            ):
                assert counted[name] == once[name], name
        else:
            assert fates(stream, "accepted") == fates(whole, "accepted")
        goes_on(stream, kind)


def test_an_unknown_query_is_redriven_with_its_whole_list_and_co_clicks_count_once() -> None:
    stream, whole = ready("clicks", range(1, 20)), ready("clicks")
    value = block_of([good("a"), good("b", 5, query="i12")])
    first = refused(stream, value, Reason.UNKNOWN_ITEM, (0, 1, 2, 3))
    stream(items([0]))
    outputs = stream.again(letters(first)[0])
    assert said(first) + said(outputs) == said(whole(value))
    assert said(outputs) == expected("clicks")
    goes_on(stream, "clicks")


def test_a_relation_of_an_unknown_item_is_redriven_and_what_follows_is_made_once() -> None:
    stream, whole = ready("closure", range(4)), ready("closure", range(6))
    block = relations([(0, 1, True), (1, 4, True), (2, 3, True), (3, 5, False), (0, 2, False)])
    first = refused(stream, block, Reason.UNKNOWN_ITEM, (1, 3))
    wanted = said(whole(block))
    stream.restart()
    stream(items([4]))
    again = stream.again(letters(first)[0])
    # One of its two rows can be used now; the other waits on, under the letter that is new.
    assert refusals(again) == [(Reason.UNKNOWN_ITEM.value, (3,))]
    stream(items([5]))
    assert stream.again(letters(first)[0]) == []
    last = stream.again(letters(again)[0])
    assert letters(last) == []
    assert said(first) + said(again) + said(last) == wanted
    assert max(wanted.values()) == 1
    assert fates(stream, "accepted", "known", "unknown-item") == (5, 0, 3)
    assert fates(whole, "accepted") == (5,)
    stream(items(range(20)))
    goes_on(stream, "closure")


# ---- erasure --------------------------------------------------------------------------------------------------------


def traces(stored: bytes, vectors: np.ndarray[Any, np.dtype[np.float32]]) -> int:
    """How often two numbers that stand next to each other in one of the vectors stand so in what is stored."""
    return sum(stored.count(row[n : n + 2].tobytes()) for row in vectors for n in range(len(row) - 1))


def random_items(names: Sequence[str], seed: int, dimension: int = 6) -> ItemBlock:
    vectors = np.random.default_rng(seed).normal(size=(len(names), dimension)).astype(np.float32)
    return ItemBlock(SPACE, tuple(names), (Table("x", vectors),), NOW)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [3, 9_000], ids=["in the tail", "in segments"])
def test_an_erased_item_leaves_no_vector_in_what_is_stored(kind: str, others: int) -> None:
    names = [f"other-{n}" for n in range(others)]
    stream = builder_stream(NOW, kind, **SETTINGS[kind])
    old, new = random_items(["secret-item", "kept-item"], 1), random_items(["secret-item"], 2)
    stream(old)
    for first in range(0, others, 3_000):
        stream(random_items(names[first : first + 3_000], 3 + first))
    stream(new)
    clicks = [("secret-item", NOW), ("kept-item", NOW)]
    asked = shown("l", [*names[:3], "secret-item", "kept-item"], clicks, query=names[0], at=NOW)
    assert constraint_blocks(stream(asked))
    if kind == "closure":
        assert constraint_blocks(stream(relation_json("secret-item", names[0], False)))
    erased = np.concatenate([old.tables[0].vectors[:1], new.tables[0].vectors])
    before = stream.stored()
    # The vector that was replaced is still there as well.
    assert [traces(before, erased[n : n + 1]) for n in range(2)] == [5, 5]
    assert traces(before, old.tables[0].vectors[1:]) == 5
    assert (b"secret-item" in before) == (kind == "closure")

    assert stream(ItemBlock(SPACE, (), (), NOW, ("secret-item",))) == []
    for _ in range(2):
        stored = stream.stored()
        assert traces(stored, erased) == 0
        assert traces(stored, old.tables[0].vectors[1:]) == 5
        assert b"secret-item" not in stored
        stream.restart()
    # It is used in no constraint any more: what names it is refused.
    outputs = stream(replace(asked, list_id="after", session="after", query_item=names[1]))
    assert refusals(outputs) == [(Reason.UNKNOWN_ITEM.value, (3,))]
    for block in constraint_blocks(outputs):
        assert traces(block.tables[0].vectors.tobytes(), erased) == 0


def test_an_erased_sample_leaves_no_vector_in_the_one_pass_memory() -> None:
    stream = builder_stream(NOW, "one-pass")
    vectors = np.random.default_rng(7).normal(size=(4, 6)).astype(np.float32)
    ids = ("a", "secret-item", "b", "c")
    stream(SampleBlock(SPACE, (Table("x", vectors),), np.array([0, 1, 2, 3], np.int64), NOW, ids))
    assert [traces(stream.stored(), vectors[n : n + 1]) for n in range(4)] == [5, 5, 5, 5]
    assert b"secret-item" in stream.stored()
    assert stream(ItemBlock(SPACE, (), (), NOW, ("secret-item",))) == []
    for _ in range(2):
        assert [traces(stream.stored(), vectors[n : n + 1]) for n in range(4)] == [5, 0, 5, 5]
        assert b"secret-item" not in stream.stored()
        stream.restart()
    # The class of the erased sample waits for its next one, and the stream goes on.
    more = np.random.default_rng(8).normal(size=(2, 6)).astype(np.float32)
    outputs = stream(SampleBlock(SPACE, (Table("x", more),), np.array([1, 0], np.int64), NOW, ("d", "e")))
    assert [len(block) for block in constraint_blocks(outputs)] == [1]


# ---- all of it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_full_of_bad_input_learns_what_the_stream_without_it_learns(kind: str) -> None:
    """Constraints, the builder's state and the learner's map are the same to the bit."""
    bad: list[Event | bytes] = [
        b"",
        b"{",
        click_json(items=[], positions=[]),
        click_json(positions=[0, 0, 1, 2]),
        click_json(shown_at_ms=-1),
        click_json(shown_at_ms=NOW + DAY),
        click_json(clicks=[{"item": "i19", "time_ms": NOW}]),
        items_json(["i1"], [[1.0, 2.0, 3.0]]),
        items_json(["i1"], [[float("nan"), 2.0]]),
        click_json(query_item=None, query_vector=[float("inf"), 0.0]),
        relation_json("i5", "i5") if kind == "closure" else click_json(query_item=None, query_vector=[1.0]),
        block_of([]),
        replace(relations([(1, 2, True)]), left=np.array([7], np.int32)),
    ]
    draw = np.random.default_rng(11)
    events: list[Event] = [relations([(0, 1, False), (2, 3, False)], LoadPosition("good", 0))]
    for n in range(1, 60):
        names = [f"i{k}" for k in draw.permutation(20)[:6]]
        chosen = draw.permutation(6)[:2]
        clicks = [(names[k], NOW - DAY + n) for k in chosen]
        shown_list = shown(
            f"l{n}", names, clicks, query=f"i{draw.integers(20)}", at=NOW - DAY + n, user=f"u{n}"
        )
        events.append(replace(block_of([shown_list]), load=LoadPosition("good", n)))

    def run(between: Sequence[Event | bytes]) -> tuple[list[bytes], dict[str, Any], bytes, Stream]:
        caps: dict[str, Any] = {"max_new_pairs": 9, "max_new_triplets": 9} if kind == "closure" else {}
        builder, learner = ready(kind, **caps), learner_stream(NOW, kind)
        made = []
        for n, event in enumerate(events):
            if between:
                outputs = builder(between[n % len(between)])
                assert len(outputs) == len(letters(outputs)) == 1
            for output in builder(event):
                assert output.value is not None
                made.append(output.value)
                assert not letters(learner(output.value, output.headers))
        space = learner.machine.find(SPACE)
        assert space is not None and space.core is not None
        core = core_of(builder)
        # Where in the log a relation stands is another matter.
        core.pop("seeds.offset", None)
        return made, core, to_bytes(space.core.state()), builder

    made, core, model, _ = run([])
    assert any(block.kind is Kind.TRIPLET for block in map(decode_constraints, made))  # type: ignore[union-attr]
    made_amid, core_amid, model_amid, builder = run(bad)
    assert made_amid == made
    assert same(core_amid, core)
    assert model_amid == model
    assert sum(builder.machine.dead.values()) == len(events)
    assert builder.machine.counts["applied"] > len(events)
