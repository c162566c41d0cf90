"""How often the same vectors come: counted in a fixed number of bits, constraint by constraint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.learners.kernels.ensembles import distinct
from kinstream.learners.portfolio.learner import Portfolio
from kinstream.learners.portfolio.views import BITS, POWER, Views


def seen(different: int, times: int, seed: int = 0) -> Views:
    """After each of so many vectors has come so many times, three in a constraint."""
    X = np.random.default_rng([seed, different]).normal(size=(different, 7)).astype(np.float32)
    order = np.tile(np.arange(different), times)[: 3 * (different * times // 3)].reshape(-1, 3)
    views = Views(10.0)
    views.starts(X, order, np.ones(len(order), np.bool_))
    return views


@pytest.mark.parametrize("different", [30, 3_000, 60_000])
@pytest.mark.parametrize("times", [1, 12])
def test_the_mean_number_of_views_is_found(different: int, times: int) -> None:
    assert seen(different, times).mean == pytest.approx(times, rel=0.03)


def test_more_different_vectors_than_can_be_counted_count_as_new_ones() -> None:
    views = Views(10.0)
    full = views.state() | {"bits": np.full(BITS // 8, 255, np.uint8), "tally": np.array([BITS, 10**9])}
    views.restore(full)
    assert views.mean == 0.0 and views.start == 1.0


def test_learners_begin_with_less_from_ten_views_on() -> None:
    assert POWER == 2.0
    assert seen(300, 9).start == 1.0
    assert seen(300, 20).start == pytest.approx(0.25, rel=0.02)
    often = seen(30, 1_000)
    assert often.start == pytest.approx(1e-4, rel=0.02)
    often.repeats = float("inf")
    assert often.start == 1.0


@given(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 99))
def test_blocks_of_any_size_give_the_same_starts(rows: int, sizes: list[int], seed: int) -> None:
    draw = np.random.default_rng([seed, rows])
    X = draw.normal(size=(rows, 4)).astype(np.float32)
    index = draw.integers(0, rows, (sum(sizes), 3))
    counted = draw.random(sum(sizes)) < 0.8
    whole, parts = Views(10.0), Views(10.0)
    want = whole.starts(X, index, counted)
    ends = np.cumsum(sizes)[:-1]
    found = [
        parts.starts(X, one, use)
        for one, use in zip(np.split(index, ends), np.split(counted, ends), strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(found), want)
    for name, value in whole.state().items():
        np.testing.assert_array_equal(parts.state()[name], value)


def test_hashes_spread_over_all_bits_whatever_the_values() -> None:
    grid = np.stack(np.meshgrid(np.arange(100), np.arange(100)), axis=-1).reshape(-1, 2).astype(np.float32)
    found = distinct.hashes(grid.view(np.uint32))
    assert len(np.unique(found)) == len(grid)
    used = len(np.unique(found % np.uint64(BITS)))
    assert used == pytest.approx(BITS * (1.0 - np.exp(-len(grid) / BITS)), rel=0.02)


def test_a_portfolio_counts_what_was_scored_and_keeps_it_in_its_state() -> None:
    draw = np.random.default_rng(3)
    rows = draw.normal(size=(40, 3)).astype(np.float32)
    model = Portfolio(members={"opml": {"gamma": 0.03}})
    picks = draw.integers(0, 40, (1_500, 3))
    model.learn_triplets(*(rows[picks[:, side]] for side in range(3)))
    # Of 1,500 triplets the first 32 only measure. Noise is no reason to follow a learner, whatever it knows by heart.
    assert model._views.start == pytest.approx((10.0 / (3 * 1_468 / 40)) ** 2, rel=0.02)
    assert model.weights["opml"] < 0.02
    before = model.state()
    broken = np.full((5, 3), np.nan, np.float32)
    assert model.learn_triplets(broken, broken, broken).rejected.all()
    again = Portfolio(members={"opml": {"gamma": 0.03}})
    again.restore(model.state())
    for name in ("views.bits", "views.tally"):
        np.testing.assert_array_equal(np.asarray(before[name]), np.asarray(model.state()[name]))
        np.testing.assert_array_equal(np.asarray(again.state()[name]), np.asarray(before[name]))
    assert again.weights == model.weights
