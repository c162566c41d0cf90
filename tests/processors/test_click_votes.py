"""Whose click counts, and how often, in whatever order lists come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.streams.records.values import Click
from tests.processors.click_samples import shown
from tests.processors.test_clicks import DAY, LIST, fates, give, ready


def vote(n: int, time_ms: int, session: str | None = None, user: str | None = None) -> Click:
    return shown(f"list {n}", "i1 i2", [("i2", time_ms)], session=session, user=user)


@pytest.mark.parametrize(
    "order", [(1, 10, 1, 1, 1, 1), (10, 1, 1, 1, 1, 1), (1, 1, 1, 10, 1, 1), (1, 1, 1, 1, 1, 10)]
)
def test_votes_out_of_order_count_once_in_their_window(order: tuple[int, ...]) -> None:
    builder = ready(max_late_ms=30 * DAY)
    votes = [vote(n, day * DAY + n, user="ann") for n, day in enumerate(order)]
    assert len(give(builder, *votes)) == 2
    assert fates(builder, "repeated-vote") == (4,)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=25), st.integers(1, 20))
def test_votes_that_count_lie_a_window_apart_and_all_others_are_near_one(
    days: list[int], window: int
) -> None:
    builder = ready(vote_window_ms=window, max_late_ms=100)
    counted = [time for n, time in enumerate(days) if give(builder, vote(n, time, session="s"))]
    assert all(abs(a - b) >= window for n, a in enumerate(counted) for b in counted[:n])
    assert all(any(abs(time - c) < window for c in counted) for time in days)
    in_order = ready(vote_window_ms=window, max_late_ms=100)
    greedy = [time for n, time in enumerate(sorted(days)) if give(in_order, vote(n, time, session="s"))]
    # No order counts twice as many as that of time: each vote that counts there lies near one that counts here.
    assert len(counted) <= len(greedy) <= 2 * len(counted)


def test_a_list_that_comes_again_out_of_order_counts_once() -> None:
    builder = ready(max_late_ms=30 * DAY)
    lists = [shown("a", "i1 i2", [("i2", day * DAY)]) for day in (10, 1, 1, 1, 1, 1)]
    assert len(give(builder, *lists)) == 2
    assert fates(builder, "duplicate-list") == (4,)


def test_co_clicks_out_of_order_vote_once_in_their_window() -> None:
    builder = ready(rules=["co-click"], co_click_support=3, max_late_ms=30 * DAY)
    days = (10, 1, 1, 1, 1, 1)
    lists = [
        shown(f"l{n}", "i1 i2", [("i1", d * DAY + n), ("i2", d * DAY + n)], user="ann")
        for n, d in enumerate(days)
    ]
    assert give(builder, *lists) == []
    assert fates(builder, "co-click-repeated", "co-click-below-support") == (4, 2)


@pytest.mark.parametrize("rules", [["click-earlier-click"], ["click-skip-above", "click-earlier-click"]])
def test_fair_pairs_prefer_no_clicked_item_over_another(rules: list[str]) -> None:
    builder = ready(rules=rules, bias="fair-pairs")
    both = shown("a", LIST, [("i1", 1), ("i2", 2)])
    assert give(builder, both) == []
    assert fates(builder, "not-fair-pair") == (1,)
    one = shown("b", LIST, [("i2", 3)])
    assert len(give(builder, one)) == len(rules) - 1


def test_clicks_of_nobody_vote_each_for_itself() -> None:
    """Neither user nor session is known: nothing says whether two lists are of one person."""
    builder = ready(rules=["click-skip-above", "co-click"], co_click_support=3, max_clicks_per_hour=1)
    lists = [shown(f"n{n}", "i1 i2 i3", [("i2", 5), ("i3", 5)]) for n in range(4)]
    made = give(builder, *lists)
    assert [names for names in made if len(names) == 3].count(("i0", "i2", "i1")) == 4
    assert fates(builder, "repeated-vote", "co-click-repeated", "bot", "session-cap") == (0, 0, 0, 0)
    assert fates(builder, "co-clicks-emitted", "co-click-known") == (1, 1)
