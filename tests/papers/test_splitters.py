"""Streams in which classes begin one after the other, and test parts that a set has."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.shared.splitters import ColdStart, GivenTest, Parted
from kinstream.evaluation.experiment.data import of_arrays
from kinstream.streams.errors import SettingsError


@pytest.mark.parametrize("blocks", [2, 5, 10])
def test_classes_come_in_blocks_and_in_turn(blocks: int) -> None:
    y = np.repeat([0, 1, 2], 40)
    data = of_arrays("three", np.zeros((120, 2)), y)
    split = ColdStart({"three": blocks})(data, 0)
    stream = np.concatenate([split.train, split.test])
    assert len(split.train) == 60 and sorted(stream.tolist()) == list(range(120))
    runs = y[stream].reshape(3 * blocks, -1)
    assert (runs == runs[:, :1]).all()
    order = runs[:, 0].reshape(blocks, 3)
    assert (order == order[0]).all() and sorted(order[0].tolist()) == [0, 1, 2]
    again, other = (ColdStart({"three": blocks})(data, number) for number in (0, 1))
    assert np.array_equal(split.train, again.train) and not np.array_equal(split.train, other.train)


def test_a_set_without_a_number_of_blocks_is_refused() -> None:
    with pytest.raises(SettingsError, match="three"):
        ColdStart({})(of_arrays("three", np.zeros((4, 1)), np.zeros(4)), 0)


def test_the_last_rows_are_tested_in_their_order() -> None:
    tables = {"x": np.arange(10, dtype=np.float32)[:, None]}
    data = Parted("own", tables, np.arange(10) % 2, 4)
    split = GivenTest()(data, 0)
    assert split.test.tolist() == [6, 7, 8, 9]
    assert sorted(split.train.tolist()) == list(range(6)) and split.train.tolist() != list(range(6))
    assert data.digest != Parted("own", tables, np.arange(10) % 2, 3).digest
    with pytest.raises(SettingsError, match="no test part"):
        GivenTest()(of_arrays("three", np.zeros((4, 1)), np.zeros(4)), 0)
