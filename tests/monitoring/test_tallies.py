"""The counts of the metrics agent are exact, and their state is all there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.monitoring.tallies import MAX_RULES, OTHER, ExactShare, Tallies, Tally, Window, mistakes
from kinstream.streams.checkpoints.state_bytes import State, from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import Counts, Outcome
from tests.monitoring.outcomes import outcome, outcomes

BLOCKS = st.lists(st.integers(0, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=60)


def tallies(window: int = 10, top_spaces: int = 3) -> Tallies:
    return Tallies(window=window, top_spaces=top_spaces)


def tally_of(some: Tallies, space: str = "s", learner: str = "opml") -> Tally:
    tally = some.find(space, learner)
    assert tally is not None
    return tally


def test_every_count_is_the_sum_over_the_outcomes() -> None:
    some = tallies()
    first = Counts(12, 8, 3, 5, 1, 2, 4, 6, 0.1, 3, 1)
    second = Counts(24, 20, 1, 9, 0, 0, 1, 2, 0.2, 4, 4)
    some.apply(replace(outcome(), counts=first, by_rule={"r": first}, step=10))
    some.apply(replace(outcome(), counts=second, by_rule={"q": second}, step=30))
    tally = tally_of(some)
    assert tally.totals == Counts(36, 28, 4, 14, 1, 2, 5, 8, 0.1 + 0.2, 7, 5)
    assert tally.by_rule == {"r": first, "q": second}
    assert tally.step == 30


def test_split_constraints_are_in_no_mistake_rate() -> None:
    some = tallies()
    some.apply(outcome(seen=4, scored=2, mistakes=1))
    some.apply(replace(outcome(), counts=Counts(seen=10, split_scored=10, split_mistakes=9)))
    tally = tally_of(some)
    assert mistakes(tally.totals) == ExactShare(1, 2)
    assert tally.mistake_window is not None and tally.mistake_window.sum == ExactShare(1, 2)
    assert tally.utilisation_window is not None and tally.utilisation_window.sum == ExactShare(0, 10)


def test_a_checkpoint_without_counts_of_split_constraints_is_taken_up() -> None:
    some, later = tallies(), tallies()
    some.apply(outcome(seen=5, mistakes=2, by_rule={"r": Counts(seen=5, scored=5, mistakes=2)}))
    state = some.state()
    older = {name: value for name, value in state.items() if name not in ("split", "rule_split")}
    later.restore(older)
    assert to_bytes(later.state()) == to_bytes(state)


def test_counts_stay_exact_above_the_integers_of_a_float() -> None:
    some = tallies()
    large = 2**31
    for _ in range(2**10):
        some.apply(outcome(seen=large, mistakes=large - 1))
    assert tally_of(some).totals.mistakes == 2**10 * (large - 1)


def test_a_window_keeps_the_fewest_newest_blocks_that_hold_enough() -> None:
    window = Window(10)
    for block, expected in (
        (ExactShare(1, 4), ExactShare(1, 4)),
        (ExactShare(2, 4), ExactShare(3, 8)),
        (ExactShare(0, 4), ExactShare(3, 12)),  # without the oldest only 8 would be left
        (ExactShare(3, 3), ExactShare(5, 11)),  # 15 less the oldest 4 is enough
        (ExactShare(0, 0), ExactShare(5, 11)),
        (ExactShare(7, 30), ExactShare(7, 30)),  # one block is enough
        (ExactShare(1, 9), ExactShare(8, 39)),
        (ExactShare(0, 1), ExactShare(1, 10)),
    ):
        window.add(block)
        assert window.sum == expected


def test_mistakes_are_judged_over_scored_and_utilisation_over_accepted() -> None:
    some = tallies()
    some.apply(outcome(seen=8, scored=0, utilised=4))
    row = some.snapshot().rows[0]
    assert row.mistake_window.ratio is None
    assert row.utilisation_window == ExactShare(4, 8)
    some.apply(outcome(seen=8, scored=4, mistakes=1, utilised=0))
    row = some.snapshot().rows[0]
    assert row.mistake_window.ratio == 0.25
    assert row.utilisation_window.ratio == 0.25


@given(BLOCKS, st.integers(1, 20))
def test_a_window_is_the_shortest_suffix_with_enough(blocks: list[tuple[int, int]], size: int) -> None:
    window = Window(size)
    for end, block in enumerate(blocks, start=1):
        window.add(ExactShare(*block))
        full = [b for b in blocks[:end] if b[1]]
        start = len(full)
        while start and sum(whole for _, whole in full[start:]) < size:
            start -= 1
        assert list(window.blocks) == full[start:]
        assert window.sum == (sum(p for p, _ in full[start:]), sum(w for _, w in full[start:]))
        assert len(window.blocks) <= size


@pytest.mark.parametrize("newer", [{"epoch": 1}, {"generation": 2}])
def test_a_new_model_empties_the_windows_and_goes_on_counting(newer: dict[str, Any]) -> None:
    some = tallies()
    some.apply(outcome(seen=5, mistakes=5, utilised=5, time_ms=9_000))
    some.apply(outcome(seen=2, mistakes=1, utilised=0, time_ms=8_000, step=2, **newer))
    row = some.snapshot().rows[0]
    assert row.totals.mistakes == 6
    assert row.mistake_window == ExactShare(1, 2)
    assert row.utilisation_window == ExactShare(0, 2)
    assert (row.step, row.time_ms) == (2, 8_000)


def test_an_outcome_of_an_epoch_that_is_over_is_left_out() -> None:
    some = tallies()
    some.apply(outcome(epoch=5))
    before = to_bytes(some.state())
    assert not some.apply(outcome(epoch=4))
    assert to_bytes(some.state()) == before


def test_each_learner_reaches_a_new_epoch_at_its_own_time() -> None:
    some = tallies()
    some.apply(outcome(learner="fast", epoch=7))
    assert some.apply(outcome(learner="slow", epoch=0))
    assert tally_of(some, learner="slow").totals.seen == 1


def test_the_newest_event_counts_even_when_an_older_one_follows() -> None:
    some = tallies()
    some.apply(outcome(time_ms=5_000))
    some.apply(outcome(time_ms=4_000))
    assert tally_of(some).time_ms == 5_000


def test_no_event_is_newer_than_the_log_of_its_outcome() -> None:
    some, day = tallies(), 86_400_000
    some.apply(outcome(time_ms=10 * day), day)
    assert tally_of(some).time_ms == day + 300_000
    some.apply(outcome(time_ms=day + 600_000), day + 600_000)
    assert tally_of(some).time_ms == day + 600_000
    # What a log whose own time was wrong has said does not last.
    some.apply(outcome(time_ms=10 * day), 10 * day)
    some.apply(outcome(time_ms=2 * day), 2 * day)
    assert tally_of(some).time_ms == 2 * day + 300_000


@pytest.mark.parametrize(
    "bad",
    [
        Counts(seen=1, scored=2),
        Counts(seen=2, scored=1, mistakes=2),
        Counts(seen=1, utilised=2),
        Counts(rejected=-1),
        Counts(seen=3, scored=2, split_scored=2),
        Counts(seen=3, split_scored=1, split_mistakes=2),
        Counts(split_scored=-1),
        Counts(seen=2**31 + 1),
        Counts(loss_sum=-0.1),
        Counts(loss_sum=float("nan")),
    ],
)
def test_impossible_counts_are_refused_and_change_nothing(bad: Counts) -> None:
    some = tallies()
    some.apply(outcome())
    before = to_bytes(some.state())
    for record in (replace(outcome("new"), counts=bad), replace(outcome("new"), by_rule={"r": bad})):
        with pytest.raises(BadRecord) as caught:
            some.apply(record)
        assert caught.value.reason is Reason.BAD_SHAPE
    assert to_bytes(some.state()) == before


def test_spaces_beyond_the_limit_are_summed() -> None:
    some = tallies(window=100, top_spaces=2)
    for name in "abcd":
        some.apply(outcome(name, seen=10, mistakes=2))
    assert some.listed == ("a", "b")
    snapshot = some.snapshot()
    assert (snapshot.listed, snapshot.unlisted) == (2, 2)
    other = snapshot.rows[-1]
    assert (other.space, other.totals.seen, other.mistake_window) == (OTHER, 20, ExactShare(4, 20))
    assert (other.step, other.time_ms, other.weights) == (None, None, {})


def test_a_space_that_has_grown_displaces_the_smallest_and_other_keeps_what_it_had() -> None:
    some = tallies(window=10, top_spaces=2)
    some.apply(outcome("large", seen=50))
    some.apply(outcome("small", seen=5))
    some.apply(outcome("late", seen=20))
    assert some.listed == ("large", "small")  # 20 is not above 2 * 5 + 10
    some.apply(outcome("late", seen=1))
    assert some.listed == ("large", "late")
    rows = {row.space: row for row in some.snapshot().rows}
    assert rows["late"].totals.seen == 21
    assert rows["late"].mistake_window == ExactShare(0, 1)
    assert rows[OTHER].totals.seen == 20
    some.apply(outcome("small", seen=1))
    assert {row.space: row.totals.seen for row in some.snapshot().rows}[OTHER] == 21


def test_a_space_that_is_called_other_is_never_listed() -> None:
    some = tallies()
    some.apply(outcome(OTHER, seen=3))
    assert some.listed == ()
    assert [(row.space, row.step) for row in some.snapshot().rows] == [(OTHER, None)]


def test_rules_beyond_the_limit_are_summed() -> None:
    some = tallies()
    for number in range(MAX_RULES + 5):
        some.apply(replace(outcome(), by_rule={f"rule-{number}": Counts(seen=1)}))
    by_rule = tally_of(some).by_rule
    assert len(by_rule) == MAX_RULES + 1
    assert by_rule[OTHER] == Counts(seen=5)


@pytest.mark.long
@settings(max_examples=60)
@given(st.lists(outcomes(), max_size=30))
def test_no_series_that_stays_ever_falls_and_each_outcome_moves_one(stream: list[Outcome]) -> None:
    some = tallies(window=4, top_spaces=2)
    shown: dict[tuple[str, str], Counts] = {}
    applied: dict[tuple[str, str], Counts] = {}
    for record in stream:
        if some.apply(record):
            key = (record.space, record.learner)
            applied[key] = applied.get(key, Counts()) + record.counts
        now = {(row.space, row.learner): row.totals for row in some.snapshot().rows}
        falls = [
            (key, name)
            for key in shown.keys() & now.keys()
            for name in Counts.__dataclass_fields__
            if getattr(now[key], name) < getattr(shown[key], name)
        ]
        assert not falls
        assert len([key for key in shown.keys() & now.keys() if shown[key] != now[key]]) <= 1
        assert len(some.listed) <= 2
        for key, totals in now.items():
            if key[0] != OTHER:
                assert totals == applied[key]
        shown = now


@settings(max_examples=60)
@given(st.lists(outcomes(), max_size=25), st.data())
def test_restored_anywhere_the_end_is_the_same(stream: list[Outcome], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(stream)))
    undisturbed = tallies(window=4, top_spaces=2)
    first = tallies(window=4, top_spaces=2)
    for record in stream[:cut]:
        undisturbed.apply(record)
        first.apply(record)
    second = tallies(window=4, top_spaces=2)
    second.apply(outcome("leftover"))
    second.restore(from_bytes(to_bytes(first.state())))
    assert second.snapshot() == first.snapshot()
    for record in stream[cut:]:
        assert undisturbed.apply(record) == second.apply(record)
    assert to_bytes(undisturbed.state()) == to_bytes(second.state())
    assert undisturbed.snapshot() == second.snapshot()


def test_a_state_is_not_touched_by_what_follows() -> None:
    some = tallies()
    some.apply(outcome())
    state: State = some.state()
    before = to_bytes(state)
    some.apply(outcome())
    assert to_bytes(state) == before
    assert all(isinstance(value, np.ndarray | str) for value in state.values())


def test_a_smaller_limit_keeps_the_largest_spaces() -> None:
    some = tallies(top_spaces=3)
    for name, seen in (("a", 5), ("b", 1), ("c", 9)):
        some.apply(outcome(name, seen=seen))
    fewer = tallies(top_spaces=2)
    fewer.restore(some.state())
    assert fewer.listed == ("a", "c")


def test_windows_of_unlisted_spaces_take_no_memory() -> None:
    some = tallies(window=1_000, top_spaces=1)
    some.apply(outcome("a"))
    for _ in range(50):
        some.apply(outcome("b"))
    assert tally_of(some, "b").mistake_window is None


@pytest.mark.parametrize("bad", [{"window": 0, "top_spaces": 1}, {"window": 1, "top_spaces": 0}])
def test_limits_below_one_are_refused_by_name(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(name for name, value in bad.items() if value == 0)):
        Tallies(**bad)


def test_a_deleted_space_is_forgotten_and_makes_room() -> None:
    tallies = Tallies(window=10, top_spaces=1)
    tallies.apply(outcome(space="gone", seen=3, scored=3))
    tallies.forget("gone", "opml")
    tallies.forget("never", "opml")
    assert tallies.find("gone", "opml") is None
    tallies.apply(outcome(space="next", seen=1, scored=1))
    assert tallies.listed == ("next",)


@pytest.mark.parametrize("log_ahead", [False, True])
def test_a_clock_that_was_ahead_does_not_date_the_newest_event_for_good(log_ahead: bool) -> None:
    """Of one client alone, or of the log as well, until it is right again."""
    minute, now = 60_000, 1_790_000_000_000
    ahead = now + 200 * 60 * minute
    some = tallies()
    for number in range(3):
        some.apply(outcome(time_ms=ahead, step=number), ahead if log_ahead else now)
    for number in range(3, 6):
        some.apply(outcome(time_ms=now + minute, step=number), now + minute)
        (row,) = some.snapshot().rows
        assert row.time_ms is not None and now + minute <= row.time_ms <= now + 6 * minute
