"""Tallies that are moved to more partitions keep every sum, and show of each space what they showed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kinstream.monitoring.tallies import MAX_RULES, OTHER, Tallies
from kinstream.streams.records.values import Counts
from tests.monitoring.outcomes import outcome

OLD, NEW = 2, 3
SPACES = tuple(f"s{number}" for number in range(9))


def number(space: str) -> int:
    return int(space.removeprefix("s"))


def filled(top_spaces: int, rule: Callable[[str], str] = lambda space: "r") -> dict[int, Tallies]:
    """The tallies of two partitions, space n on partition n % 2."""
    old = {p: Tallies(window=10, top_spaces=top_spaces) for p in range(OLD)}
    for turn in range(3):
        for space in SPACES:
            seen = 10 * (number(space) + 1)
            old[number(space) % OLD].apply(
                outcome(space=space, seen=seen, mistakes=turn, by_rule={rule(space): Counts(seen=seen)})
            )
    return old


def gathered(old: dict[int, Tallies], top_spaces: int) -> dict[int, Tallies]:
    new = {p: Tallies(window=10, top_spaces=top_spaces) for p in range(NEW)}
    for p, tallies in new.items():
        tallies.gather({n: one.state() for n, one in old.items()}, p, lambda space: number(space) % NEW)
        again = Tallies(window=10, top_spaces=top_spaces)
        again.restore(tallies.state())
        assert again.snapshot() == tallies.snapshot()
    return new


def rows(some: dict[int, Tallies]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for tallies in some.values():
        for row in tallies.snapshot().rows:
            found.setdefault(row.space, []).append(row)
    return found


def test_what_is_shown_stays_shown_where_there_is_room() -> None:
    old = filled(top_spaces=5)
    new = gathered(old, top_spaces=5)
    assert rows(new) == rows(old)
    assert {space: p for p, some in new.items() for space in some.listed} == {
        s: number(s) % NEW for s in SPACES
    }


def test_every_tally_and_the_rest_of_each_partition_is_kept() -> None:
    old = filled(top_spaces=2)
    new = gathered(old, top_spaces=2)
    for space in SPACES:
        before, after = (
            old[number(space) % OLD].find(space, "opml"),
            new[number(space) % NEW].find(space, "opml"),
        )
        assert before is not None and after is not None
        assert (before.totals, before.by_rule) == (after.totals, after.by_rule)
        assert (before.generation, before.epoch, before.step, before.time_ms) == (
            after.generation,
            after.epoch,
            after.step,
            after.time_ms,
        )
    assert rows(new)[OTHER] == rows(old)[OTHER]
    assert all(len(some.listed) <= 2 for some in new.values())


@pytest.mark.parametrize("top_spaces", [1, 4])
def test_a_space_that_is_listed_no_more_has_no_windows(top_spaces: int) -> None:
    new = gathered(filled(top_spaces=5), top_spaces)
    for p, some in new.items():
        for space in (s for s in SPACES if number(s) % NEW == p):
            tally = some.find(space, "opml")
            assert tally is not None
            assert (tally.mistake_window is not None) == (space in some.listed)


def test_rules_that_have_come_go_on_by_name_up_to_the_bound() -> None:
    old = filled(5, rule=lambda space: f"rule of {space}")
    new = gathered(old, 5)
    new[0].apply(outcome(space="s0", seen=1, by_rule={"rule of s0": Counts(seen=1)}))
    tally = new[0].find("s0", "opml")
    assert tally is not None
    assert tally.by_rule == {"rule of s0": Counts(seen=31)}
    for n in range(2 * MAX_RULES):
        new[0].apply(outcome(space="s0", seen=1, by_rule={f"another {n}": Counts(seen=1)}))
    # Partition 0 knew those of the even spaces, and space 3 has brought its own.
    named = [rule for rule in tally.by_rule if rule.startswith("another")]
    assert len(named) + len((0, 2, 4, 6, 8, 3)) == MAX_RULES
