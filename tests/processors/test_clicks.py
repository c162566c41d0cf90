"""Clicks become preferences as docs/building.md states; bad rows are refused, noise is counted."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.processors.base.builder import Builder, Origin, Segmented
from kinstream.processors.clicks.clicks import EVICTED, Clicks
from kinstream.processors.clicks.counts import FATES
from kinstream.processors.registry import create
from kinstream.streams.agents.refusals import rows_text
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    ConstraintBlock,
    Event,
    ItemClick,
    Kind,
    LoadPosition,
    Table,
)
from tests.docs.pages import ROOT
from tests.processors.bounds import clicks
from tests.processors.click_samples import (
    NOW,
    block_of,
    items,
    preferring,
    rows_of,
    shown,
    told,
    vector,
    with_items,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LIST = "i1 i2 i3 i4 i5"


def ready(**settings: Any) -> Clicks:
    return with_items(preferring(**settings))


def give(builder: Clicks, *clicks: Click, **origin: Any) -> list[tuple[str, ...]]:
    """Names of the constraints of single lists."""
    made = []
    for click in clicks:
        made += told(builder.process(click, Origin(**{"offset": 1, "append_ms": NOW} | origin)))
    return made


def fates(builder: Clicks, *names: str) -> tuple[int, ...]:
    counts = builder.counts()
    for total, parts in FATES.items():
        assert counts[total] == sum(counts[name] for name in parts)
    return tuple(counts[name] for name in names)


# ---- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("click-skip-above", ["i2>i1", "i4>i1", "i4>i3"]),
        ("last-click-skip-above", ["i2>i1"]),
        ("click-skip-previous", ["i2>i1", "i4>i3"]),
        ("click-no-click-next", ["i2>i3", "i4>i5"]),
        ("click-earlier-click", ["i2>i4"]),
    ],
)
def test_each_rule_reads_a_list(rule: str, expected: list[str]) -> None:
    # First i4, then i2: the last click is the one higher up.
    click = shown("a", LIST, [("i4", 10), ("i2", 20)])
    made = ready(rules=[rule]).process(click, Origin(1, NOW))
    assert [f"{a}>{b}" for q, a, b in told(made)] == expected
    assert {q for q, _, _ in told(made)} == {"i0"}
    (block,) = made.blocks
    assert block.kind is Kind.TRIPLET
    assert block.rules == (rule,)
    assert not block.derived.any()
    assert block.time_ms == 20


def test_a_preference_of_several_rules_is_made_once_under_the_first() -> None:
    builder = ready(rules=["click-skip-previous", "click-skip-above"])
    made = builder.process(shown("a", LIST, [("i3", 1)]), Origin(1, NOW))
    assert rows_of(made.blocks) == [
        ("click-skip-above", 1.0, ("i0", "i3", "i1")),
        ("click-skip-previous", 1.0, ("i0", "i3", "i2")),
    ]


def test_the_order_is_that_of_the_positions() -> None:
    click = shown("a", LIST, [("i1", 1)], positions=[9, 3, 20, 4, 5])
    assert give(ready(), click) == [("i0", "i1", "i2"), ("i0", "i1", "i4"), ("i0", "i1", "i5")]


def test_what_is_no_evidence_makes_nothing() -> None:
    builder = ready()
    assert give(builder, shown("a", LIST), shown("b", LIST, [("i1", 1)]), shown("c", "i1", [("i1", 1)])) == []
    assert fates(builder, "no-click", "no-preference", "lists") == (1, 2, 3)


def test_a_query_may_be_a_vector_or_unknown() -> None:
    builder = ready()
    own = shown("a", "i1 i2", [("i2", 1)], query=103)
    none = shown("b", "i1 i2", [("i2", 1)], query=None)
    assert give(builder, own, none) == [("q3", "i2", "i1")]
    assert fates(builder, "no-query-vector", "lists-used") == (1, 1)


def test_a_query_that_is_shown_is_neither_preferred_nor_other() -> None:
    builder = ready()
    assert give(builder, shown("a", "i0 i1 i2", [("i2", 1)])) == [("i0", "i2", "i1")]
    assert fates(builder, "query-in-list") == (1,)


def test_co_clicks_of_a_session_and_query_are_similar() -> None:
    builder = ready(rules=["co-click"], co_click_support=1)
    first = shown("a", LIST, [("i1", 1), ("i3", 2)], session="s")
    second = shown("b", "i6 i7", [("i7", 3)], session="s")
    other_query = shown("c", "i8 i9", [("i9", 4)], session="s", query="i1")
    other_session = shown("d", "i8 i9", [("i8", 4)], session="t")
    made = builder.process(first, Origin(1, NOW))
    assert told(made) == [("i1", "i3")]
    (block,) = made.blocks
    assert (block.kind, block.rules, block.signs.tolist()) == (Kind.PAIR, ("co-click",), [1])
    assert give(builder, second, other_query, other_session) == [("i1", "i7"), ("i3", "i7")]


def test_a_co_click_is_given_once_when_its_support_is_reached() -> None:
    builder = ready(rules=["co-click"], co_click_support=2)
    made = [
        give(builder, shown(f"l{n}", LIST, [("i1", n), ("i2", n)], user=user))
        for n, user in enumerate(["ann", "ann", "bob", "cleo"])
    ]
    assert made == [[], [], [("i1", "i2")], []]
    names = ("co-click-below-support", "co-click-repeated", "co-clicks-emitted", "co-click-known")
    assert fates(builder, *names) == (1, 1, 1, 1)


def test_co_clicks_need_no_query_vector() -> None:
    builder = ready(rules=["co-click"], co_click_support=1)
    assert give(builder, shown("a", LIST, [("i1", 1), ("i2", 2)], query=None)) == [("i1", "i2")]
    assert fates(builder, "no-query-vector") == (1,)


# ---- bad input ------------------------------------------------------------------------------------------------------


def bad_lists() -> list[tuple[str, Click, Reason]]:
    good = shown("bad", LIST, [("i3", 5)], at=5)
    long = [f"i{n % 10}" if n < 10 else f"i{n}" for n in range(10_000)]
    return [
        ("a position twice", replace(good, positions=(0, 1, 2, 3, 3)), Reason.BAD_SHAPE),
        ("an item twice", shown("bad", "i1 i2 i1", [("i2", 5)]), Reason.BAD_SHAPE),
        ("a negative position", replace(good, positions=(-1, 0, 1, 2, 3)), Reason.BAD_SHAPE),
        ("a negative time", replace(good, shown_at_ms=-1), Reason.BAD_SHAPE),
        ("a negative time of a click", shown("bad", LIST, [("i3", -5)]), Reason.BAD_SHAPE),
        ("a negative dwell time", shown("bad", LIST, [("i3", 5, -5)]), Reason.BAD_SHAPE),
        ("an endless time", replace(good, shown_at_ms=2**80), Reason.BAD_SHAPE),
        ("a future time", replace(good, shown_at_ms=NOW + 300_001), Reason.AHEAD_OF_LOG),
        ("a future click", shown("bad", LIST, [("i3", NOW + 300_001)]), Reason.AHEAD_OF_LOG),
        ("a click on what was not shown", shown("bad", LIST, [("i9", 5)]), Reason.BAD_SHAPE),
        ("a list of 10,000 items", shown("bad", long, [("i3", 5)]), Reason.TOO_LARGE),
        ("an unknown query", replace(good, query_item="i77"), Reason.UNKNOWN_ITEM),
        (
            "a query of another dimension",
            replace(good, query_item=None, query_vector=(Table("x", np.ones((1, 3), np.float32)),)),
            Reason.WRONG_DIMENSION,
        ),
        (
            "a query of another modality",
            replace(good, query_item=None, query_vector=(Table("y", np.ones((1, 2), np.float32)),)),
            Reason.WRONG_DIMENSION,
        ),
    ]


@pytest.mark.parametrize(("_name", "bad", "reason"), bad_lists(), ids=[name for name, _, _ in bad_lists()])
def test_a_bad_list_is_refused_by_its_rows_and_the_others_are_used(
    _name: str, bad: Click, reason: Reason
) -> None:
    rows = tuple(range(len(bad.items)))
    builder = ready()
    made = builder.process(bad, Origin(1, NOW))
    assert made.blocks == []
    assert [(error.reason, error.rows) for error in made.refused] == [(reason, rows)]
    assert "'bad'" in made.refused[0].detail
    assert fates(builder, "lists-refused", "impressions-refused") == (1, len(rows))
    if len(rows) > 100 or any(one.item not in bad.items for one in bad.clicks) or min(bad.positions) < 0:
        return
    if bad.shown_at_ms > 2**60 or bad.query_vector or any((c.dwell_ms or 0) < 0 for c in bad.clicks):
        return
    builder = ready()
    good = [shown("one", "i1 i2", [("i2", 1)]), bad, shown("two", "i3 i4", [("i4", 1)])]
    made = builder.process(block_of(good), Origin(1, NOW))
    assert told(made) == [("i0", "i2", "i1"), ("i0", "i4", "i3")]
    assert [(e.reason, e.rows) for e in made.refused] == [(reason, tuple(2 + row for row in rows))]


def test_a_list_ahead_of_the_log_does_not_move_the_watermark() -> None:
    builder = ready(max_late_ms=0)
    builder.process(shown("a", LIST, [("i2", NOW + 300_001)]), Origin(1, NOW))
    assert give(builder, shown("b", LIST, [("i2", NOW + 300_000)])) == [("i0", "i2", "i1")]
    assert give(builder, shown("c", LIST, [("i2", NOW)])) == []
    assert fates(builder, "late") == (1,)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (shown("a", ""), Reason.EMPTY),
        (shown("a", LIST, positions=[1, 2]), Reason.BAD_SHAPE),
    ],
)
def test_an_event_without_lists_leaves_the_state_untouched(bad: Click, reason: Reason) -> None:
    builder = ready()
    before = to_bytes(builder.state())
    with pytest.raises(BadRecord) as caught:
        builder.process(bad, Origin(1, NOW))
    assert caught.value.reason is reason
    assert to_bytes(builder.state()) == before


def test_items_of_another_dimension_are_refused() -> None:
    builder = ready()
    wide = replace(items(["i1"]), tables=(Table("x", np.ones((1, 5), np.float32)),))
    before = to_bytes(builder.state())
    with pytest.raises(BadRecord, match="wrong-dimension"):
        builder.process(wide, Origin(1))
    assert to_bytes(builder.state()) == before
    with pytest.raises(BadRecord, match="too-large"):
        preferring(max_bytes=1024).process(
            replace(items(["i1"]), tables=(Table("x", np.ones((1, 300), np.float32)),)), Origin(1)
        )


def test_refusals_of_many_rows_are_split_and_stay_short() -> None:
    lists = [shown(f"l{n}", f"i{100 + n} i1 i2", [("i2", 1)]) for n in range(3_000)]
    made = ready(max_per_session=0, vote_window_ms=0).process(block_of(lists), Origin(1, NOW))
    assert len(made.refused) > 1
    assert [row for error in made.refused for row in error.rows or ()] == list(range(0, 9_000, 3))
    for error in made.refused:
        assert error.reason is Reason.UNKNOWN_ITEM
        assert len(rows_text(error.rows)) <= 4_000
        assert len(error.detail) < 300
    assert len(told(made)) == 3_000


# ---- the catalogue and redrives -------------------------------------------------------------------------------------


def test_an_unknown_item_is_redriven_after_it_came_and_everything_counts_once() -> None:
    builder = with_items(preferring(), "i0 i1 i3")
    click = shown("a", "i1 i2 i3 i4", [("i3", 1)], user="ann", session="s")
    made = builder.process(click, Origin(1, NOW))
    assert told(made) == [("i0", "i3", "i1")]
    assert [(error.reason, error.rows) for error in made.refused] == [(Reason.UNKNOWN_ITEM, (1, 3))]
    assert "'i2', 'i4'" in made.refused[0].detail
    builder.process(items(["i2"]), Origin(2))
    again = builder.process(click, Origin(3, NOW, (1,), (3,)))
    assert told(again) == [("i0", "i3", "i2")]
    assert again.refused == []
    builder.process(items(["i4"]), Origin(4))
    assert told(builder.process(click, Origin(5, NOW, (3,)))) == []
    assert fates(builder, "impressions", "impressions-refused", "held-back") == (6, 2, 1)


def test_a_redriven_item_that_is_still_unknown_is_refused_again() -> None:
    builder = with_items(preferring(), "i0 i1")
    click = shown("a", "i1 i2 i3", [("i2", 1)])
    assert [e.rows for e in builder.process(click, Origin(1, NOW)).refused] == [(1, 2)]
    builder.process(items(["i3"]), Origin(2))
    made = builder.process(click, Origin(3, NOW, (1, 2)))
    assert (told(made), [e.rows for e in made.refused]) == ([], [(1,)])
    builder.process(items(["i2"]), Origin(4))
    assert told(builder.process(click, Origin(5, NOW, (1,)))) == [("i0", "i2", "i1")]


def test_a_redrive_is_stopped_by_another_vote_and_not_by_its_own_list() -> None:
    builder = with_items(preferring(), "i0 i1")
    click = shown("a", "i1 i2", [("i2", 1)], user="ann")
    assert give(builder, click) == []
    builder.process(items(["i2"]), Origin(2))
    other = shown("b", "i1 i2", [("i2", 2)], user="ann")
    assert give(builder, other) == [("i0", "i2", "i1")]
    assert give(builder, click, rows=(1,)) == []
    assert fates(builder, "repeated-vote", "duplicate-list") == (1, 0)


def test_a_list_with_an_unknown_query_is_redriven_whole_or_in_parts() -> None:
    builder = with_items(Clicks(rules=["click-skip-above", "co-click"], co_click_support=1), "i1 i2 i3")
    click = shown("a", "i1 i2 i3", [("i2", 1), ("i3", 2)], session="s")
    assert [error.rows for error in builder.process(click, Origin(1, NOW)).refused] == [(0, 1, 2)]
    builder.process(items(["i0"]), Origin(2))
    assert give(builder, click, rows=(0, 1), refused=(2,)) == [("i0", "i2", "i1")]
    assert give(builder, click, rows=(2,)) == [("i0", "i3", "i1"), ("i2", "i3")]


def test_a_redrive_is_not_late() -> None:
    builder = with_items(preferring(), "i0 i1")
    click = shown("a", "i1 i2", [("i2", 1)])
    give(builder, click, shown("b", LIST, at=10**11))
    builder.process(items(["i2"]), Origin(2))
    assert give(builder, click) == []
    assert give(builder, click, rows=(1,)) == [("i0", "i2", "i1")]


def test_a_redrive_of_rows_that_are_not_there_is_refused() -> None:
    with pytest.raises(BadRecord, match="bad-shape"):
        ready().process(shown("a", "i1 i2"), Origin(1, NOW, (2,)))


def test_a_tombstone_takes_an_item_out_and_an_entry_changes_it() -> None:
    builder = ready()
    builder.process(items([], gone=["i1"]), Origin(2))
    made = builder.process(shown("a", "i1 i2 i3", [("i3", 1)]), Origin(3, NOW))
    assert told(made) == [("i0", "i3", "i2")]
    assert [error.rows for error in made.refused] == [(0,)]
    changed = replace(items(["i2"]), tables=vector(42))
    builder.process(changed, Origin(4))
    assert give(builder, shown("b", "i2 i3", [("i3", 1)])) == [("i0", "i3", "i42")]


# ---- filters --------------------------------------------------------------------------------------------------------


def test_a_short_dwell_is_neither_click_nor_skip() -> None:
    builder = ready(min_dwell_ms=100)
    click = shown("a", LIST, [("i2", 1, 99), ("i4", 2, 100), ("i5", 3)])
    assert [f"{a}>{b}" for _, a, b in give(builder, click)] == ["i4>i1", "i4>i3", "i5>i1", "i5>i3"]
    assert fates(builder, "short-dwell", "impressions-short-dwell", "clicks-used") == (1, 1, 2)


@pytest.mark.parametrize(("later", "votes"), [(0, 1), (DAY - 1, 1), (DAY, 2)])
def test_a_user_votes_once_in_a_window(later: int, votes: int) -> None:
    builder = ready()
    lists = [shown(f"l{t}-{n}", "i1 i2", [("i2", t)], user="ann") for n, t in enumerate([5, 5 + later])]
    assert len(give(builder, *lists)) == votes
    assert (
        len(give(builder, *(replace(one, list_id=one.list_id + "b", user="bob") for one in lists))) == votes
    )


def test_without_a_user_the_session_votes_and_without_both_everybody_does() -> None:
    builder = ready()
    by_session = [shown(f"s{n}", "i1 i2", [("i2", n)], session="s") for n in range(3)]
    by_nobody = [shown(f"n{n}", "i1 i2", [("i2", n)]) for n in range(3)]
    assert len(give(builder, *by_session)) == 1
    assert len(give(builder, *by_nobody)) == 3
    # A session is no user of the same name.
    assert len(give(builder, shown("u", "i1 i2", [("i2", 1)], user="s"))) == 1


def test_a_session_states_no_more_than_its_cap() -> None:
    builder = ready(max_per_session=3)
    made = give(
        builder, shown("a", LIST, [("i3", 1)], session="s"), shown("b", LIST, [("i5", 2)], session="s")
    )
    assert made == [("i0", "i3", "i1"), ("i0", "i3", "i2"), ("i0", "i5", "i1")]
    assert fates(builder, "session-cap") == (3,)
    assert len(give(builder, shown("c", LIST, [("i5", 3)], session="t"))) == 3
    # Silent for a window, it is another session.
    assert len(give(builder, shown("d", LIST, [("i5", 2 + DAY)], session="s"))) == 3


def test_a_user_with_too_many_clicks_is_left_out_for_that_hour_and_the_next() -> None:
    builder = ready(max_clicks_per_hour=2)
    times = [0, 1, 2, HOUR, 2 * HOUR, 2 * HOUR + 1]
    lists = [shown(f"l{n}", f"i{n + 1} i9", [("i9", t)], user="ann") for n, t in enumerate(times)]
    made = [len(give(builder, one)) for one in lists]
    assert made == [1, 1, 0, 0, 1, 1]
    assert fates(builder, "bot", "impressions-left-out", "clicks-left-out") == (2, 4, 2)


def test_an_address_with_too_many_clicks_is_left_out_whoever_clicks_from_there() -> None:
    builder = ready(max_clicks_per_address=2)
    times = [0, 1, 2, 3, HOUR, 2 * HOUR]
    lists = [
        shown(f"l{n}", f"i{n + 1} i9", [("i9", t)], user=f"u{n}", address="a" if n != 3 else "b")
        for n, t in enumerate(times)
    ]
    assert [len(give(builder, one)) for one in lists] == [1, 1, 0, 1, 0, 1]
    assert fates(builder, "bot") == (2,)
    # A user of the same name as an address is somebody else.
    named = [shown(f"n{n}", f"i{n + 1} i9", [("i9", 5 * HOUR)], user="a") for n in range(3)]
    assert [len(give(builder, one)) for one in named] == [1, 1, 1]


def test_of_a_users_lists_in_a_day_only_so_many_are_used() -> None:
    builder = ready(max_lists_per_day=2)
    times = [1, 2, 3, DAY - 1, DAY, DAY + 1, DAY + 2]
    lists = [shown(f"l{n}", f"i{n + 1} i9", [("i9", t)], user="ann") for n, t in enumerate(times)]
    assert [len(give(builder, one)) for one in lists] == [1, 1, 0, 0, 1, 1, 0]
    assert fates(builder, "bot", "impressions-left-out", "clicks-left-out") == (3, 6, 3)
    # One without a click is none of them; nor is another user's.
    users = [user for user in ("bob", "eve") for _ in range(4)]
    others = [
        shown(f"m{n}", f"i{n + 1} i9", [("i9", DAY)] if n % 2 else [], user=user)
        for n, user in enumerate(users)
    ]
    assert [len(give(builder, one)) for one in others] == [0, 1] * 4
    # A state knows the day.
    fresh = ready(max_lists_per_day=2)
    fresh.restore(from_bytes(to_bytes(builder.state())))
    assert give(fresh, shown("l9", "i4 i9", [("i9", DAY + 3)], user="ann")) == []


def test_lists_above_the_cap_of_a_day_can_be_kept_and_sent_again() -> None:
    builder = ready(max_lists_per_day=1, keep_capped=True)
    lists = [shown(f"l{n}", f"i{n + 1} i9", [("i9", n)], user="ann") for n in range(3)]
    first, *rest = [builder.process(one, Origin(n, NOW)) for n, one in enumerate(lists)]
    assert (len(told(first)), first.refused) == (1, [])
    assert [[(e.reason, e.rows) for e in made.refused] for made in rest] == [
        [(Reason.CAPPED_USER, (0, 1))]
    ] * 2
    assert told(builder.process(lists[2], Origin(9, NOW, (0, 1), ()))) == [("i0", "i9", "i3")]


def test_without_the_cap_of_a_day_a_state_is_what_it_was() -> None:
    builder = ready()
    give(builder, *(shown(f"l{n}", LIST, [("i3", n)], user=f"u{n % 3}") for n in range(6)))
    assert not any("days" in name for name in builder.state())


def test_lists_above_a_cap_can_be_kept_and_sent_again() -> None:
    builder = ready(max_clicks_per_address=1, keep_capped=True)
    lists = [shown(f"l{n}", f"i{n + 1} i9", [("i9", n)], user=f"u{n}", address="a") for n in range(3)]
    first, *rest = [builder.process(one, Origin(n, NOW)) for n, one in enumerate(lists)]
    assert (len(told(first)), first.refused) == (1, [])
    for made in rest:
        assert told(made) == []
        (error,) = made.refused
        assert (error.reason, error.rows) == (Reason.CAPPED_ADDRESS, (0, 1))
    again = builder.process(lists[2], Origin(9, NOW, (0, 1), ()))
    assert told(again) == [("i0", "i9", "i3")] and again.refused == []
    # Each of them left out once, the second one still.
    assert fates(builder, "bot", "lists-used") == (2, 2)


def test_without_addresses_a_state_is_what_it_was() -> None:
    clicks = [shown(f"l{n}", LIST, [("i3", n)], user=f"u{n % 3}") for n in range(6)]
    states = []
    for cap in (1, 0):
        builder = ready(max_clicks_per_address=cap)
        give(builder, *clicks)
        states.append(to_bytes(builder.state()))
    assert states[0] == states[1]


def test_a_list_that_comes_twice_counts_once_unless_it_stands_in_a_load() -> None:
    builder = ready()
    click = shown("a", "i1 i2", [("i2", 1)])
    assert len(give(builder, click, click, replace(click, user="ann"))) == 2
    assert fates(builder, "duplicate-list") == (1,)
    in_load = [replace(click, load=LoadPosition("load", n)) for n in range(2)]
    assert len(give(builder, *in_load)) == 2


@pytest.mark.parametrize(("behind", "late"), [(100, 0), (101, 1)])
def test_a_list_too_far_behind_the_watermark_is_late(behind: int, late: int) -> None:
    builder = ready(max_late_ms=100)
    give(builder, shown("a", LIST, at=1_000), shown("b", "i1 i2", [("i2", 1_000 - behind)]))
    assert fates(builder, "late") == (late,)


@pytest.mark.parametrize("ahead", [300_001, 13 * HOUR, 200 * HOUR, 10_000 * DAY])
def test_a_log_whose_clock_was_ahead_makes_no_later_list_late(ahead: int) -> None:
    builder = ready()
    for n in range(6):
        give(builder, shown(f"ahead {n}", LIST, [("i2", NOW + ahead)]), append_ms=NOW + ahead)
    saved = builder.state()
    for number in range(2):
        for n in range(60):
            made = shown(f"l{number}-{n}", LIST, [("i2", NOW)], at=NOW, user=f"u{number}-{n}")
            assert give(builder, made) == [("i0", "i2", "i1")]
        # The same from a checkpoint.
        builder = ready()
        builder.restore(saved)
    assert fates(builder, "late") == (0,)


KEPT: dict[str, dict[str, Any]] = {
    "what a session may give": {"max_per_session": 2},
    "votes that a preference needs": {"support": 2, "support_window_ms": HOUR},
    "clicks of a session": {"rules": ["co-click"], "co_click_support": 2, "vote_window_ms": HOUR},
    "what is remembered at most": {"max_remembered": 8},
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_log_whose_clock_was_ahead_has_left_counts_no_more_when_it_is_back(name: str) -> None:
    """The same people, whose lists come at times that were right before and after it."""
    chosen = KEPT[name]

    def play(builder: Clicks, at: int, tag: str) -> list[tuple[str, ...]]:
        made = []
        for n in range(6):
            clicks = [("i2", at + n), ("i4", at + n)]
            one = shown(f"{tag}{n}", LIST, clicks, at=at + n, user=f"u{n % 2}", session=f"s{n % 2}")
            made += give(builder, one, append_ms=at + n)
        return made

    wrong, right = ready(**chosen), ready(**chosen)
    play(wrong, NOW + 200 * HOUR, "ahead")
    found, wanted = play(wrong, NOW, "back"), play(right, NOW, "back")
    assert found == wanted and found
    for builder in (wrong, right):
        give(builder, shown("back5", LIST, [("i2", NOW + 5)], at=NOW, user="u1", session="s1"))
    assert fates(wrong, "duplicate-list") == fates(right, "duplicate-list") == (1,)
    assert play(wrong, NOW + MINUTE, "later") == play(right, NOW + MINUTE, "later")


def test_a_late_list_is_kept_as_a_letter_and_taken_in_a_redrive() -> None:
    builder = ready()
    late = shown("late", LIST, [("i2", NOW - 8 * DAY)], at=NOW - 8 * DAY)
    builder.process(shown("now", LIST, [("i2", NOW)]), Origin(1, NOW))
    (refused,) = builder.process(late, Origin(2, NOW)).refused
    assert (refused.reason, refused.rows) == (Reason.LATE_LIST, tuple(range(len(late.items))))
    assert fates(builder, "late") == (1,)
    assert give(builder, late, rows=refused.rows) == [("i0", "i2", "i1")]


def test_a_preference_is_emitted_from_its_kth_vote_on() -> None:
    builder = ready(support=3, support_window_ms=1_000)
    made = [
        len(give(builder, shown(f"l{n}", "i1 i2", [("i2", t)], user=user)))
        for n, (user, t) in enumerate([("a", 1), ("a", 2), ("b", 3), ("c", 4), ("d", 5), ("e", 1_005)])
    ]
    assert made == [0, 0, 0, 1, 1, 0]
    assert fates(builder, "below-support", "repeated-vote") == (3, 1)


def test_a_list_makes_no_more_than_its_cap() -> None:
    builder = ready(max_per_list=2)
    assert len(give(builder, shown("a", LIST, [("i5", 1)]))) == 2
    assert fates(builder, "list-cap", "preferences") == (2, 4)


def test_memories_are_bounded_and_what_they_drop_is_counted() -> None:
    builder = ready(max_remembered=100, rules=["click-skip-above", "co-click"])
    sizes = []
    for n in range(600):
        clicks = [("i2", n), ("i4", n)]
        give(builder, shown(f"l{n}", LIST, clicks, user=f"u{n}", session=f"s{n}", at=n))
        if n % 200 == 199:
            sizes.append(len(to_bytes(builder.state())))
    assert sizes[2] < 1.3 * sizes[1] < 100_000
    assert builder.counts()[EVICTED] > 1_000
    # The newest are still known.
    give(builder, shown("l599", LIST, [("i2", 599), ("i4", 599)], user="u599", session="s599", at=599))
    assert fates(builder, "duplicate-list") == (1,)


@pytest.mark.long
def test_what_has_expired_is_dropped_without_being_counted() -> None:
    builder = ready(max_late_ms=0, vote_window_ms=10, support_window_ms=10)
    for n in range(2_000):
        at = n * HOUR * 3
        give(builder, shown(f"l{n}", LIST, [("i4", at)], user=f"u{n}", session=f"s{n}", at=at))
    assert len(to_bytes(builder.state())) < 40_000
    assert builder.counts()[EVICTED] == 0


# ---- position bias --------------------------------------------------------------------------------------------------


def clicks_at_all_ranks(count: int = 400) -> list[Click]:
    return [shown(f"l{n}", "i1 i2 i3 i4 i5", [(f"i{n % 4 + 2}", n)]) for n in range(count)]


def test_weights_rise_with_the_rank_of_the_click_and_have_a_mean_near_one() -> None:
    builder = ready(bias="weights", max_weight=4)
    rows = [
        row for one in clicks_at_all_ranks() for row in rows_of(builder.process(one, Origin(1, NOW)).blocks)
    ]
    late = rows[len(rows) // 2 :]
    by_item = {
        name: np.mean([w for _, w, names in late if names[1] == name]) for name in ("i2", "i3", "i4", "i5")
    }
    assert by_item["i3"] / by_item["i2"] == pytest.approx(3 / 2, rel=0.02)
    assert by_item["i4"] / by_item["i2"] == pytest.approx(4 / 2, rel=0.02)
    assert by_item["i5"] == pytest.approx(by_item["i4"], rel=0.02)
    assert np.mean([w for _, w, _ in late]) == pytest.approx(1, abs=0.05)


def test_thinning_keeps_clicks_in_proportion_to_the_weights() -> None:
    builder = ready(bias="thinning", max_weight=5, vote_window_ms=0)
    lists = clicks_at_all_ranks(8_000)
    made = [
        row
        for n in range(0, 8_000, 1_000)
        for row in told(builder.process(block_of(lists[n : n + 1_000]), Origin(n, NOW)))
    ]
    kept = Counter(winner for _, winner, other in made if other == "i1")
    for rank, name in enumerate(["i2", "i3", "i4", "i5"], 2):
        assert kept[name] / 2_000 == pytest.approx(rank / 5, abs=0.04)
    # All preferences of a click share its fate.
    assert Counter(winner for _, winner, other in made if other == "i2")["i5"] == kept["i5"]
    assert sum(fates(builder, "thinned", "preferences-emitted")) == builder.counts()["preferences"]


def test_thinning_is_drawn_by_seed_and_place() -> None:
    lists = block_of(clicks_at_all_ranks(100))

    def kept(offset: int, seed: int, load: LoadPosition | None = None) -> list[tuple[str, ...]]:
        return told(ready(bias="thinning", seed=seed).process(replace(lists, load=load), Origin(offset, NOW)))

    assert kept(1, 0) == kept(1, 0) != kept(2, 0)
    assert kept(1, 0) != kept(1, 1)
    assert kept(1, 0, LoadPosition("a", 1)) == kept(2, 0, LoadPosition("a", 1))


def test_fair_pairs_take_the_lower_of_a_swapped_pair_only() -> None:
    builder = ready(bias="fair-pairs")
    lists = [shown(f"l{n}", LIST, [(f"i{n}", 1)]) for n in range(1, 6)]
    assert [f"{a}>{b}" for _, a, b in give(builder, *lists)] == ["i2>i1", "i4>i3"]
    assert fates(builder, "not-fair-pair") == (8,)


def test_fair_pairs_need_neighbouring_positions() -> None:
    click = shown("a", "i1 i2", [("i2", 1)], positions=[0, 3])
    assert give(ready(bias="fair-pairs"), click) == []


def test_fair_pairs_undo_the_bias_of_the_presentation() -> None:
    """Users click what they look at at random; only skip-above makes a preference of it."""
    draw = np.random.default_rng(5)

    def net(bias: str) -> int:
        builder = ready(bias=bias, vote_window_ms=0)
        total = Counter[str]()
        for n in range(2_000):
            pair = ["i1", "i2"] if draw.random() < 0.5 else ["i2", "i1"]
            clicked = [*pair, "i3"][int(draw.integers(0, 3))]
            for _, winner, other in give(builder, shown(f"l{n}", [*pair, "i3"], [(clicked, n)])):
                total[f"{winner}>{other}"] += 1
        return max(abs(total[f"{a}>{b}"] - total[f"{b}>{a}"]) for a, b in [("i1", "i2"), ("i1", "i3")])

    assert net("none") > 500
    assert net("fair-pairs") < 100


# ---- form and state -------------------------------------------------------------------------------------------------


QUERIES: Sequence[str | float | None] = ("i3", "i5", 107, None)


def history(seed: int = 3, count: int = 60) -> list[Event]:
    """Items, changes, tombstones, blocks and single lists."""
    draw = np.random.default_rng(seed)
    events: list[Event] = [items([f"i{n}" for n in range(40)])]
    for n in range(count):
        names = [f"i{k}" for k in draw.permutation(44)[:8]]
        clicks = [(names[k], 1_000 * n + int(k)) for k in draw.permutation(8)[: draw.integers(0, 4)]]
        lists = [
            shown(
                f"l{n}-{k}" if draw.random() < 0.9 else "again",
                names,
                [(c, t, None if draw.random() < 0.5 else int(draw.integers(0, 50))) for c, t in clicks],
                at=1_000 * n,
                user=[None, "ann", "bob"][int(draw.integers(0, 3))],
                session=[None, f"s{n // 10}"][int(draw.integers(0, 2))],
                query=QUERIES[int(draw.integers(0, 4))],
            )
            for k in range(3)
        ]
        events.append(block_of(lists) if n % 2 else lists[0])
        if n % 10 == 5:
            events.append(items([f"i{n % 44}"], gone=[f"i{(n + 7) % 44}"]))
    return events


SETTINGS: Sequence[dict[str, Any]] = (
    {"rules": ["click-skip-above", "co-click"]},
    {
        "rules": ["click-skip-above", "click-earlier-click"],
        "bias": "weights",
        "support": 2,
        "min_dwell_ms": 20,
    },
    {"bias": "thinning", "max_remembered": 20, "max_bytes": 1024},
)


def outputs(builder: Clicks, events: Sequence[Event], first: int = 0) -> list[bytes]:
    found = []
    for offset, event in enumerate(events, first):
        made = builder.process(event, Origin(offset, NOW))
        found += [encode(block) for block in made.blocks]
        found += [f"{e.reason} {e.rows} {e.detail}".encode() for e in made.refused]
    return found


def restored(builder: Clicks, **settings: Any) -> Clicks:
    """Through the bytes of a checkpoint."""
    kept = {name: to_bytes(builder.segment(name)) for name in builder.segments()}
    after = preferring(**settings)
    after.restore(from_bytes(to_bytes(builder.state())))
    after.restore_segments(lambda name: from_bytes(kept[name]))
    return after


@pytest.mark.parametrize("settings", SETTINGS)
def test_it_continues_from_every_message(settings: dict[str, Any]) -> None:
    builder = preferring(**settings)
    for offset, event in enumerate(history()):
        other = restored(builder, **settings)
        assert to_bytes(other.state()) == to_bytes(builder.state())
        assert outputs(other, [event], offset) == outputs(builder, [event], offset)
        assert to_bytes(other.state()) == to_bytes(builder.state())
        assert other.counts() == builder.counts()


def test_it_continues_with_sealed_segments() -> None:
    settings: dict[str, Any] = {}
    builder = preferring()
    many = [items([f"i{n}" for n in range(first, first + 1_000)]) for first in range(0, 12_000, 1_000)]
    outputs(builder, many)
    assert builder.segments()
    other = restored(builder, **settings)
    events = history()[1:]
    assert outputs(other, events) == outputs(builder, events)


def run_of_all() -> str:
    """Digest of outputs and states, half of each run after a restore."""
    digest = hashlib.sha256()
    for settings in SETTINGS:
        builder, events = preferring(**settings), history()
        found = outputs(builder, events[:30])
        builder = restored(builder, **settings)
        found += outputs(builder, events[30:], 30)
        digest.update(b"".join(found) + to_bytes(builder.state()))
    return digest.hexdigest()


@pytest.mark.long
@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_does_the_same(hash_seed: str) -> None:
    code = "from tests.processors.test_clicks import run_of_all; print(run_of_all())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        timeout=200,
    )
    assert done.stdout.decode().strip() == run_of_all()


def test_the_state_is_a_copy_and_the_input_is_left_alone() -> None:
    builder = Clicks(**SETTINGS[0])
    events = history()
    for event in events:
        before = encode(event)
        builder.process(event, Origin(1, NOW))
        assert encode(event) == before
    before = to_bytes(builder.state())
    for value in builder.state().values():
        if isinstance(value, np.ndarray):
            value[:] = 0
    assert to_bytes(builder.state()) == before


def test_blocks_are_sound_and_small() -> None:
    builder = clicks(
        rules=["click-skip-above", "click-earlier-click", "co-click"], bias="weights", max_bytes=1024
    )
    made: list[ConstraintBlock] = []
    for event in history():
        made += builder.process(event, Origin(1, NOW)).blocks
    assert len(made) > 30
    for block in made:
        encoded = encode(block)
        assert len(encoded) <= 1024
        assert isinstance(decode(encoded, ConstraintBlock), ConstraintBlock)
        named = block.without_lists()
        assert sorted(set(named.index.ravel().tolist())) == list(range(len(named.tables[0].vectors)))
        assert sorted(set(block.rule.tolist())) == list(range(len(block.rules)))


def test_a_block_that_came_over_the_wire_makes_the_same() -> None:
    events = history()
    decoded = [decode(encode(event), type(event)) for event in events]
    assert outputs(preferring(), events) == outputs(preferring(), decoded)  # type: ignore[arg-type]


def test_it_keeps_the_contract() -> None:
    builder = create("clicks", rules=["co-click"])
    assert isinstance(builder, Builder)
    assert isinstance(builder, Segmented)
    assert builder.algorithm == "clicks/9"
    assert Click in builder.follows and ClickBlock in builder.follows
    assert ItemClick not in builder.follows


@pytest.mark.parametrize(
    "settings",
    [
        {"rules": []},
        {"rules": "co-click"},
        {"rules": ["click"]},
        {"rules": ["co-click", "co-click"]},
        {"min_dwell_ms": -1},
        {"action_weights": {"purchase": 0.0}},
        {"action_weights": {"purchase": "much"}},
        {"action_weights": 3},
        {"co_click_support": 0},
        {"max_clicks_per_hour": True},
        {"max_late_ms": None},
        {"bias": "ips"},
        {"bias_exponent": float("nan")},
        {"seed": -1},
        {"margin": 1},
    ],
)
def test_a_bad_setting_is_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(settings))):
        create("clicks", **settings)
