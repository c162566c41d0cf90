"""Splits and scalers of an experiment."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.evaluation.experiment.data import of_arrays
from kinstream.evaluation.experiment.splits import InOrder, RandomHalves, Scaling, Splitter
from kinstream.streams.errors import SettingsError


def rows(n: int, d: int = 2):  # type: ignore[no-untyped-def]
    return of_arrays("rows", np.arange(n * d, dtype=np.float32).reshape(n, d), np.arange(n) % 3)


@given(n=st.integers(2, 60), share=st.floats(0.01, 0.99), number=st.integers(0, 5), seed=st.integers(0, 9))
def test_a_random_split_takes_every_row_once(n: int, share: float, number: int, seed: int) -> None:
    split = RandomHalves(share, seed)(rows(n), number)
    assert sorted([*split.train, *split.test]) == list(range(n))
    assert len(split.train) >= 1 and len(split.test) >= 1
    assert abs(len(split.test) - n * share) <= 1.0


def test_random_splits_differ_by_number_and_seed_alone() -> None:
    data = rows(50)
    first = RandomHalves(seed=1)(data, 0)
    assert np.array_equal(first.train, RandomHalves(seed=1)(data, 0).train)
    assert not np.array_equal(first.train, RandomHalves(seed=1)(data, 1).train)
    assert not np.array_equal(first.train, RandomHalves(seed=2)(data, 0).train)
    small = RandomHalves(seed=1, most_train=5, most_test=7)(data, 0)
    assert np.array_equal(small.train, first.train[:5])
    assert np.array_equal(small.test, first.test[:7])


@given(n=st.integers(20, 80), splits=st.integers(1, 4))
def test_splits_in_order_learn_from_what_came_before(n: int, splits: int) -> None:
    data, cut = rows(n), InOrder(splits, 0.2)
    ends = []
    for number in range(splits):
        split = cut(data, number)
        assert np.array_equal(split.train, np.arange(split.test[0]))
        assert np.array_equal(split.test, np.arange(split.test[0], split.test[-1] + 1))
        ends.append((split.test[0], split.test[-1] + 1))
    assert ends[-1][1] == n
    assert all(end == start for (_, end), (start, _) in pairwise(ends))


@pytest.mark.parametrize(
    "make", [lambda: InOrder(5, 0.2), lambda: InOrder(0, 0.2), lambda: RandomHalves(1.0)]
)
def test_shares_that_leave_nothing_are_refused(make: type[Splitter]) -> None:
    with pytest.raises(SettingsError):
        make()


@pytest.mark.parametrize("fitted", ["train", "all"])
def test_scalers_have_the_statistics_of_the_rows_that_they_are_fitted_to(fitted: str) -> None:
    draw = np.random.default_rng(0)
    X = (draw.normal(size=(40, 3)) * [1, 10, 0] + [0, 5, 7]).astype(np.float32)
    train = np.arange(25)
    known = slice(None) if fitted == "all" else train
    z = Scaling("zscore", fitted)({"x": X}, train)["x"]
    assert z[known].mean(axis=0) == pytest.approx(0.0, abs=1e-6)
    assert z[known].std(axis=0, ddof=1) == pytest.approx([1, 1, 0], abs=1e-5)
    m = Scaling("minmax", fitted)({"x": X}, train)["x"]
    assert m[known].min(axis=0) == pytest.approx(0.0)
    assert m[known].max(axis=0) == pytest.approx([1, 1, 0])
    one = Scaling("one-scale", fitted)({"x": X}, train)["x"]
    assert np.mean(one[known].astype(float) ** 2) == pytest.approx(1.0, rel=1e-5)
    assert np.std(one[:, 1]) > 5 * np.std(one[:, 0])


def test_unknown_scalers_are_refused() -> None:
    with pytest.raises(SettingsError, match="scaling must be one of"):
        Scaling("robust")
    with pytest.raises(SettingsError, match="fitted on"):
        Scaling("zscore", "test")
