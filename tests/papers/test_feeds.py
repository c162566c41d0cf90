"""Drawn constraints are what labels say, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from benchmarks.papers.shared.feeds import BLOCK, DrawnPairs, DrawnTriplets, SeedsAndClosure
from kinstream.evaluation.experiment.feeds import Feed
from kinstream.learners.baselines.sampling import squared_percentiles
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Kind
from tests.papers.made_up_sets import table

N = 60
FEEDS: list[Feed] = [
    DrawnPairs(700),
    DrawnPairs(700, targets=True),
    DrawnTriplets(700),
    SeedsAndClosure("pairs", 120, 80, 40),
    SeedsAndClosure("triplets", 120, 80, 40),
]


def rows() -> tuple[dict[str, np.ndarray], np.ndarray]:
    X, y = table(0, 4, 3, N)
    # The number of a row is in its first column.
    X[:, 0] = np.arange(N)
    return {DEFAULT_MODALITY: X.astype(np.float32)}, y


def made(feed: Feed, seed: int = 0) -> list[ConstraintBlock]:
    tables, y = rows()
    return list(feed(tables, y, seed))


def numbers(blocks: Sequence[ConstraintBlock]) -> np.ndarray:
    """Row numbers (m, 2) or (m, 3)."""
    return np.concatenate([b.tables[0].vectors[b.index][:, :, 0].astype(int) for b in blocks])


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_constraints_agree_with_the_labels(feed: Feed) -> None:
    blocks, (_, y) = made(feed), rows()
    found = numbers(blocks)
    assert {block.kind for block in blocks} == feed.emits
    assert all(len(set(row)) == len(row) for row in found.tolist())
    if feed.emits == {Kind.PAIR}:
        signs = np.concatenate([block.signs for block in blocks])
        assert np.array_equal(signs > 0, y[found[:, 0]] == y[found[:, 1]])
        assert set(signs.tolist()) == {1, -1}
    else:
        assert (y[found[:, 0]] == y[found[:, 1]]).all() and (y[found[:, 0]] != y[found[:, 2]]).all()


@pytest.mark.parametrize("feed", FEEDS, ids=str)
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(feed: Feed) -> None:
    first, again, other = (b"".join(encode(block) for block in made(feed, seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_all_rows_take_part_and_blocks_are_small() -> None:
    for feed in (DrawnPairs(700), DrawnTriplets(700)):
        blocks = made(feed)
        assert [len(block) for block in blocks] == [BLOCK, BLOCK, 200]
        assert set(np.unique(numbers(blocks))) == set(range(N))


def test_targets_are_percentiles_of_all_squared_distances() -> None:
    tables, _ = rows()
    expected = squared_percentiles(tables[DEFAULT_MODALITY].astype(np.float64))
    assert expected is not None
    for block in made(DrawnPairs(300, targets=True)):
        assert block.targets is not None
        assert np.allclose(block.targets, np.where(block.signs > 0, *expected))


@pytest.mark.parametrize("emit", ["pairs", "triplets"])
def test_what_follows_comes_after_all_seeds_and_is_no_seed(emit: str) -> None:
    blocks = made(SeedsAndClosure(emit, 30, 40, 40))
    derived = np.concatenate([block.derived for block in blocks])
    assert derived.tolist() == [False] * 30 + [True] * 40
    found = [tuple(row) for row in numbers(blocks).tolist()]
    assert max(max(row) for row in found) < 40
    if emit == "pairs":
        seeds = {frozenset(row) for row in found[:30]}
        assert not seeds & {frozenset(row) for row in found[30:]}


def test_fewer_follow_than_are_wanted() -> None:
    """Two seeds of four rows say little."""
    few = [block for block in made(SeedsAndClosure("pairs", 3, 1_000, 40)) if block.derived.any()]
    assert sum(len(block) for block in few) < 1_000


def one_class() -> tuple[dict[str, np.ndarray], np.ndarray]:
    tables, y = rows()
    return tables, np.zeros_like(y)


@pytest.mark.parametrize("feed", [DrawnTriplets(5), SeedsAndClosure("pairs")], ids=str)
def test_one_class_is_refused(feed: Callable[..., object]) -> None:
    tables, y = one_class()
    with pytest.raises(SettingsError, match="two classes"):
        list(feed(tables, y, 0))  # type: ignore[call-overload]
