"""What serves is the highest model that can be had, in whatever order and number announcements arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.search.models.choice import KEPT, KEPT_UNFOLLOWED, Choice, rank_of
from kinstream.search.models.model import UNLEARNED, Model, Name, name_of
from kinstream.search.models.staleness import Failure
from kinstream.streams.records.values import ModelVersion

VERSION = ModelVersion("a", "opml", "opml/1", 1, 0, 0, "t", 0, 0, "place", "digest", 1_000)
SMALL = st.integers(0, 3)
VERSIONS = st.builds(
    lambda generation, epoch, step, offset: replace(
        VERSION,
        generation=generation + 1,
        epoch=epoch,
        step=step,
        offset=offset,
        location=f"{generation}.{epoch}.{step}.{offset}",
    ),
    SMALL,
    st.integers(-1, 2),
    SMALL,
    SMALL,
)


def load(choice: Choice, broken: set[Any] = frozenset()) -> Name | None:  # type: ignore[assignment]
    """What the feed does; returns the name that serves from now on."""
    for version in choice.wanted():
        if rank_of(version) not in broken:
            choice.serves(Model(version))
            return name_of(version)
    return None


@given(st.lists(VERSIONS, max_size=12), st.data())
def test_every_order_with_duplicates_and_loads_in_between_ends_at_the_highest(
    versions: list[ModelVersion], data: st.DataObject
) -> None:
    twice = data.draw(st.permutations(versions + versions))
    choice, served = Choice(), [UNLEARNED]
    for version in twice:
        choice.take(version)
        if data.draw(st.booleans()):
            served.append(load(choice) or served[-1])
    served.append(load(choice) or served[-1])
    named = [name_of(version) for version in versions if version.epoch >= 0]
    assert served[-1] == choice.announced == max(named, default=UNLEARNED)
    assert served == sorted(served)
    assert choice.wanted() == ()


@given(st.lists(VERSIONS, max_size=12), st.data())
def test_of_models_that_cannot_be_loaded_the_next_lower_one_serves(
    versions: list[ModelVersion], data: st.DataObject
) -> None:
    ranks = sorted({rank_of(version) for version in versions if version.epoch >= 0}, reverse=True)
    broken = set(ranks[: data.draw(st.integers(0, KEPT - 1))])
    choice = Choice()
    for version in data.draw(st.permutations(versions)):
        choice.take(version)
    whole = [rank for rank in ranks if rank not in broken]
    assert load(choice, broken) == (whole[0][0] if whole else None)
    assert {rank_of(version) for version in choice.wanted()} == broken
    # The files have come back.
    assert (load(choice) or (whole[0][0] if whole else None)) == (ranks[0][0] if ranks else None)


@given(st.lists(VERSIONS, max_size=30))
def test_what_waits_is_bounded_and_above_what_serves(versions: list[ModelVersion]) -> None:
    choice = Choice()
    for number, version in enumerate(versions):
        before = choice.wanted()
        assert choice.take(version) == (choice.wanted() != before)
        if number == len(versions) // 2:
            load(choice)
            assert choice.wanted() == ()
    assert len(choice.wanted()) <= KEPT
    assert list(choice.wanted()) == sorted(choice.wanted(), key=rank_of, reverse=True)


def test_an_older_epoch_never_comes_back_and_a_refused_block_names_nothing() -> None:
    choice = Choice()
    gone = replace(VERSION, epoch=7, deleted=True)
    assert choice.take(gone)
    choice.serves(Model(gone))
    assert not choice.take(replace(VERSION, epoch=6, step=900))
    assert not choice.take(replace(VERSION, epoch=-1))
    assert choice.take(replace(VERSION, epoch=8, step=1))
    assert choice.announced == Name(1, 8, 1)
    # A replay of the same log in a new generation begins with lower numbers.
    assert choice.take(replace(VERSION, generation=2, epoch=0, step=1))
    assert [name_of(version) for version in choice.wanted()] == [Name(2, 0, 1), Name(1, 8, 1)]


def failed(choice: Choice) -> None:
    """Every version that waits was tried in vain."""
    for candidate in choice.candidates():
        candidate.failure = Failure.MISSING


def test_one_file_that_is_announced_again_and_again_takes_one_place() -> None:
    choice = Choice()
    good = replace(VERSION, step=1, location="good")
    assert choice.take(good)
    for offset in range(2 * KEPT):
        assert choice.take(replace(VERSION, step=2, offset=offset, location="bad"))
        failed(choice)
    assert choice.wanted() == (replace(VERSION, step=2, offset=2 * KEPT - 1, location="bad"), good)
    assert not choice.take(replace(VERSION, step=2, offset=3, location="bad"))


@pytest.mark.parametrize("kept", [KEPT, KEPT_UNFOLLOWED])
def test_what_was_tried_in_vain_makes_room_for_what_was_not(kept: int) -> None:
    choice = Choice(kept)
    for step in range(100, 100 + 2 * kept):
        choice.take(replace(VERSION, step=step, location=str(step)))
        failed(choice)
    good = replace(VERSION, step=7, location="good")
    assert choice.take(good), "an older announcement comes later than all those that cannot be loaded"
    assert len(choice.wanted()) == kept and choice.wanted()[-1] == good
    assert choice.announced == Name(1, 0, 99 + 2 * kept)
