"""Scores and actions in result lists: rows of whole lists and judges get what each item had in its list."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.producers.loads.click_rows import click_block
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ConstraintBlock, ItemBlock, ItemClick, Kind, Table
from kinstream.streams.signals import MOST_NAMES
from tests.processors.bounds import clicks
from tests.processors.click_samples import (
    NOW,
    block_of,
    items,
    name_of,
    preferring,
    random_click,
    rows_of,
    shown,
    with_items,
)

KNOWN = [f"i{n}" for n in range(7)]
Numbers = dict[str, float]


def scored(click: Click, **columns: Any) -> Click:
    return replace(click, scores=Scores.of(columns))


def whole(**given_: Any) -> Clicks:
    return with_items(clicks(**given_))


def made(builder: Clicks, event: Any, offset: int = 1, **origin: Any) -> list[ConstraintBlock]:
    return builder.process(event, Origin(offset, NOW, **origin)).blocks


def of_rows(blocks: list[ConstraintBlock]) -> list[tuple[str, Numbers]]:
    """Item and scores of each row of whole lists."""
    found = []
    for block in blocks:
        numbers = block.tables[0].vectors[:, 0].tolist()
        for row, (_, item) in enumerate(block.index.tolist()):
            found.append((name_of(numbers[item]), _of(block.scores, row)))
    return found


def of_places(blocks: list[ConstraintBlock]) -> list[tuple[str, Numbers]]:
    """The same of each place of the lists for judges."""
    found = []
    for block in blocks:
        if block.lists is not None:
            numbers = block.tables[0].vectors[:, 0].tolist()
            for place, item in enumerate(block.lists.item.tolist()):
                found.append((name_of(numbers[item]), _of(block.lists.scores, place)))
    return found


def _of(scores: Scores | None, row: int) -> Numbers:
    if scores is None:
        return {}
    values = zip(scores.names, scores.values[row].tolist(), strict=True)
    return {name: value for name, value in values if value == value}


def test_rows_and_places_have_the_scores_of_their_items() -> None:
    click = scored(
        shown("a", "i1 i2 i3 i4", [("i3", 5)], positions=[1, 0, 2, 3]),
        bm25=[1, 2, 3, 4],
        age=[None, 20, 30, 40],
    )
    blocks = made(whole(), click)
    assert of_rows(blocks) == [
        ("i3", {"bm25": 3, "age": 30}),
        ("i2", {"bm25": 2, "age": 20}),
        ("i1", {"bm25": 1}),
    ]
    assert of_places(blocks) == [
        ("i2", {"bm25": 2, "age": 20}),
        ("i1", {"bm25": 1}),
        ("i3", {"bm25": 3, "age": 30}),
        ("i4", {"bm25": 4, "age": 40}),
    ]


def test_only_whole_lists_have_scores_in_rows() -> None:
    click = scored(shown("a", "i1 i2", [("i2", 5)], session="s"), bm25=[1, 2])
    builder = with_items(preferring(rules=["click-skip-above", "co-click"], co_click_support=1))
    made(builder, scored(shown("b", "i1 i2", [("i1", 4)], session="s"), bm25=[1, 2]))
    blocks = made(builder, click)
    assert {block.kind for block in blocks} == set(Kind)
    assert all(block.scores is None for block in blocks)
    assert of_places(blocks) == [("i1", {"bm25": 1}), ("i2", {"bm25": 2})]


def test_a_block_has_the_names_that_have_a_value_in_it() -> None:
    block = block_of([shown("a", "i1 i2", [("i2", 5)]), shown("b", "i3 i4", [("i4", 6)])])
    block = replace(block, scores=Scores.of({"bm25": [1, 2, None, None], "none": [None] * 4}))
    (found,) = made(whole(), block)
    assert found.scores is not None and found.scores.names == ("bm25",)
    assert of_rows([found]) == [("i2", {"bm25": 2}), ("i1", {"bm25": 1}), ("i4", {}), ("i3", {})]
    missing = replace(block, scores=Scores.of({"none": [None] * 4}))
    plain = replace(block, scores=None)
    assert [*map(encode, made(whole(), missing))] == [*map(encode, made(whole(), plain))]


def test_scores_of_another_number_of_items_are_refused() -> None:
    with pytest.raises(BadRecord, match="scores of 1 items for 2"):
        made(whole(), scored(shown("a", "i1 i2"), bm25=[1]))


# ---- names of a space -----------------------------------------------------------------------------------------------


def named(list_id: str, *names: str, at: int = 0) -> Click:
    return scored(shown(list_id, "i1 i2", [("i2", at)], at=at), **{name: [1, 2] for name in names})


MANY = [f"s{n}" for n in range(MOST_NAMES)]


def test_a_list_with_a_name_too_many_is_refused() -> None:
    builder = whole()
    assert made(builder, named("a", *MANY[:30]))
    result = builder.process(named("b", *MANY[1:], "more"), Origin(2, NOW))
    assert not result.blocks
    (error,) = result.refused
    assert error.reason is Reason.BAD_SHAPE and error.rows == (0, 1)
    assert "32" in error.detail and "'b'" in error.detail
    assert builder.counts()["lists-refused"] == 1
    # It has brought no name, so these two are not too many; and a name without a value is none.
    assert made(builder, named("c", *MANY[30:]))
    absent = scored(shown("d", "i1 i2", [("i2", 0)]), **{"more": [None, None], "s0": [1, None]})
    assert made(builder, absent)
    assert builder.process(named("e", "more"), Origin(5, NOW)).refused


def test_lists_that_are_left_out_bring_no_names() -> None:
    builder = whole(max_late_ms=100)
    made(builder, shown("a", "i1 i2", [("i2", 1000)], at=1000))
    assert builder.process(named("b", *MANY), Origin(2, NOW)).refused[0].reason is Reason.LATE_LIST
    assert made(builder, named("c", "other", at=1000))
    # A redrive takes it, if its names still fit.
    assert builder.process(named("b", *MANY), Origin(2, NOW, (0, 1))).refused[0].reason is Reason.BAD_SHAPE
    assert made(builder, named("b", *MANY[1:]), 2, rows=(0, 1))


def test_names_are_a_state_and_a_state_without_them_is_what_it_was() -> None:
    builder = whole()
    made(builder, shown("a", "i1 i2", [("i2", 1)]))
    assert not any("score" in name for name in builder.state())
    made(builder, named("b", *MANY, at=1))
    again = whole()
    state = builder.state()
    segments = {name: builder.segment(name) for name in builder.segments()}
    again.restore(state)
    again.restore_segments(segments.__getitem__)
    assert again.process(named("c", "more", at=2), Origin(3, NOW)).refused
    older = whole()
    older.restore({name: value for name, value in state.items() if "score" not in name})
    older.restore_segments(segments.__getitem__)
    assert not older.process(named("c", "more", at=2), Origin(3, NOW)).refused


# ---- blocks ---------------------------------------------------------------------------------------------------------


def test_blocks_are_cut_with_scores_and_stay_small() -> None:
    rng = np.random.default_rng(5)
    lists = []
    for n in range(60):
        names = [f"i{item}" for item in rng.permutation(7)[:5]]
        columns = {f"name-{k}": rng.random(5).astype(np.float32).tolist() for k in range(12)}
        lists.append(scored(shown(f"l{n}", names, [(names[-1], n)], at=n, user=f"u{n}"), **columns))
    small, large = whole(max_bytes=4_096), whole()
    cut = made(small, block_of(lists))
    assert len(cut) > 3 and max(len(encode(block)) for block in cut) <= 4_096
    assert of_rows(cut) == of_rows(made(large, block_of(lists)))
    expected = [
        (name, dict(zip(one.scores.names, row, strict=True)))
        for one in lists
        if one.scores is not None
        for name, row in zip(one.items, one.scores.values.tolist(), strict=True)
    ]
    assert of_places(cut) == expected


@st.composite
def random_scores(draw: st.DrawFn) -> Click:
    click = draw(random_click())
    number = st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False)
    column = st.lists(number, min_size=len(click.items), max_size=len(click.items))
    kinds = st.sampled_from([None, None, "purchase", "hover", "click"])
    acted = tuple(one._replace(action=draw(kinds)) for one in click.clicks)
    columns = draw(st.dictionaries(st.sampled_from(["bm25", "age", "price"]), column))
    return replace(click, clicks=acted, scores=Scores.of(columns) if columns else None)


def values_of(click: Click, item: str) -> Numbers:
    return {} if click.scores is None else _of(click.scores, click.items.index(item))


CHOSEN = st.fixed_dictionaries(
    {},
    optional={
        "min_dwell_ms": st.integers(0, 15),
        "max_list": st.integers(3, 8),
        "max_per_list": st.integers(1, 6),
        "max_bytes": st.sampled_from([600, 10_000]),
        "bias": st.sampled_from(["none", "weights"]),
        "action_weights": st.just({"purchase": 4.0, "hover": 0.5}),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(random_scores(), min_size=1, max_size=6), CHOSEN)
def test_whatever_lists_say_is_what_they_say_without_scores_and_each_row_has_its_own(
    lists: list[Click], chosen: dict[str, Any]
) -> None:
    builders = [clicks(**chosen) for _ in range(3)]
    for builder in builders:
        builder.process(items(KNOWN), Origin(0))
    single, together, plain = builders
    found: list[ConstraintBlock] = []
    for one in lists:
        blocks = single.process(one, Origin(1, 300)).blocks
        without = plain.process(replace(one, scores=None), Origin(1, 300)).blocks
        assert rows_of(blocks) == rows_of(without)
        rows = of_rows(blocks)
        assert [scores for _, scores in rows] == [values_of(one, item) for item, _ in rows]
        places = of_places(blocks)
        assert [scores for _, scores in places] == [values_of(one, item) for item, _ in places]
        for block in blocks:
            again = decode_constraints(encode(block))
            assert isinstance(again, ConstraintBlock) and encode(again) == encode(block)
        found += blocks
    in_one = together.process(block_of(lists), Origin(1, 300)).blocks
    assert rows_of(in_one) == rows_of(found)
    assert of_rows(in_one) == of_rows(found)
    assert single.counts() == together.counts() == plain.counts()


def test_rows_have_the_vectors_of_their_items_where_a_vote_came_before() -> None:
    """Without the repeated vote on i1 itself, no row names i1, but a preference does."""
    builder = whole()
    made(builder, shown("a", "i1 i2", [("i1", 1)], user="ann"))
    block = block_of(
        [
            shown("b", "i3 i1", [("i1", 2)], at=2, user="ann"),
            shown("c", "i4 i5", [("i5", 3)], at=3, user="bob"),
        ]
    )
    rows = [names for _, _, names in rows_of(made(builder, block))]
    assert rows == [("i0", "i3"), ("i0", "i5"), ("i0", "i4")]


def test_a_log_without_scores_gives_the_bytes_that_it_gave_before_there_were_any() -> None:
    digest = hashlib.sha256()
    builder = whole(max_bytes=2_000)
    for number in range(40):
        order = np.random.default_rng(number).permutation(7)
        lists = [
            shown(
                f"l{number}.{n}",
                [f"i{item}" for item in order[: 3 + n]],
                [(f"i{order[2]}", number)],
                at=number,
            )
            for n in range(3)
        ]
        for encoded in map(encode, made(builder, block_of(lists), number)):
            digest.update(encoded)
    digest.update(to_bytes(builder.state()))
    assert digest.hexdigest() == "7dd259e70c9b0a2dd30cee5b57d1691d9ad77933d2aff4e3994fa1460be85ca1"


# ---- actions --------------------------------------------------------------------------------------------------------


def acted(*actions: tuple[str, str | None]) -> Click:
    clicks_ = tuple(ItemClick(item, n + 1, None, kind) for n, (item, kind) in enumerate(actions))
    return replace(shown("a", "i1 i2 i3 i4"), clicks=clicks_)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({}, {"i2": 1, "i4": 1}),
        ({"purchase": 5.0}, {"i2": 5, "i4": 1}),
        ({"purchase": 5.0, "hover": 0.25, "click": 2.0}, {"i2": 5, "i4": 0.25}),
        ({"purchase": 0.5}, {"i2": 1, "i4": 1}),
        ({"click": 3.0}, {"i2": 3, "i4": 1}),
    ],
)
def test_what_was_clicked_weighs_as_its_heaviest_action(weights: dict[str, float], expected: Numbers) -> None:
    click = acted(("i2", None), ("i2", "purchase"), ("i2", "purchase"), ("i4", "hover"))
    rows = rows_of(made(whole(action_weights=weights), click))
    assert rows == [
        ("click-list", expected.get(item, 1.0), ("i0", item)) for item in ("i2", "i4", "i1", "i3")
    ]


@pytest.mark.parametrize(("weights", "bought"), [({}, 2.0), ({"purchase": 5.0}, 10.0)])
def test_an_action_weighs_as_much_more_as_it_says_itself(weights: dict[str, float], bought: float) -> None:
    clicks = (
        ItemClick("i2", 1, None, None, 0.25),
        ItemClick("i4", 2, None, "purchase", 2.0),
        ItemClick("i3", 3),
    )
    click = replace(acted(), clicks=clicks)
    expected = [
        ("click-list", weight, ("i0", item)) for item, weight in (("i2", 0.25), ("i3", 1.0), ("i4", bought))
    ]
    builder = whole(action_weights=weights)
    assert [row for row in rows_of(made(builder, click)) if row[2][1] != "i1"] == expected
    # So it is in a block, beside a list whose actions say nothing.
    other = replace(acted(("i2", None)), list_id="another", user="another")
    both = made(whole(action_weights=weights), click_block([click, other], click.space, 0))
    alone = [*made(whole(action_weights=weights), click), *made(whole(action_weights=weights), other)]
    assert rows_of(both) == rows_of(alone)


@pytest.mark.parametrize("bias", ["none", "weights"])
def test_the_places_of_a_list_have_what_their_actions_weigh(bias: str) -> None:
    click = acted(("i2", None), ("i2", "purchase"), ("i4", "hover"))
    (block,) = made(whole(bias=bias, action_weights={"purchase": 5.0, "hover": 0.25}), click)
    assert block.lists is not None and block.lists.worth is not None
    assert block.lists.worth.tolist() == [1.0, 5.0, 1.0, 0.25]
    again = decode_constraints(encode(block))
    assert isinstance(again, ConstraintBlock)
    assert again.lists is not None and again.lists.worth is not None
    assert again.lists.worth.tolist() == block.lists.worth.tolist()
    first = again.lists.take(np.array([True]))
    assert first is again.lists
    (usual,) = made(whole(bias=bias), click)
    assert usual.lists is not None and usual.lists.worth is None


def test_lists_that_are_taken_out_keep_what_their_actions_weigh() -> None:
    builder = whole(action_weights={"purchase": 5.0})
    (block,) = made(builder, block_of([acted(("i1", None)), replace(acted(("i3", "purchase")), list_id="b")]))
    assert block.lists is not None
    second = block.lists.take(np.array([False, True]))
    assert second is not None and second.worth is not None and second.worth.tolist() == [1.0, 1.0, 5.0, 1.0]


def test_an_action_that_is_too_short_weighs_nothing() -> None:
    click = replace(acted(), clicks=(ItemClick("i2", 1, 3, "purchase"), ItemClick("i2", 2, 30)))
    rows = rows_of(made(whole(action_weights={"purchase": 5.0}, min_dwell_ms=10), click))
    assert rows[0] == ("click-list", 1.0, ("i0", "i2"))


def test_a_preference_weighs_as_what_was_clicked_times_the_bias() -> None:
    click = acted(("i3", "purchase"))
    chosen: dict[str, Any] = {"rules": ["click-skip-above"], "bias": "weights"}
    before = rows_of(made(whole(**chosen), click))
    after = rows_of(made(whole(**chosen, action_weights={"purchase": 4.0}), click))
    assert [(rule, 4 * weight, names) for rule, weight, names in before] == after


def test_kinds_change_nothing_where_none_has_a_weight() -> None:
    click = acted(("i2", "purchase"), ("i3", None))
    bare = replace(click, clicks=tuple(one._replace(action=None) for one in click.clicks))
    assert [*map(encode, made(whole(), click))] == [*map(encode, made(whole(), bare))]


def test_items_of_many_features_leave_room_for_scores() -> None:
    """The largest vectors that a builder takes, with the longest names of scores."""
    builder, d = Clicks(), 43_000
    table = Table("x", np.ones((3, d), np.float32) * np.arange(3, dtype=np.float32)[:, None])
    builder.process(ItemBlock("shop", ("i0", "i1", "i2"), (table,), 0), Origin(0))
    names = {f"{n:03}" + "\N{GRINNING FACE}" * 97: [1, 2] for n in range(MOST_NAMES)}
    blocks = made(builder, scored(shown("a", "i1 i2", [("i2", 5)]), **names))
    assert blocks and max(len(encode(block)) for block in blocks) <= 512 * 1024
