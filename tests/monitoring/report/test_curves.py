"""Mean curves over splits, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.evaluation.report import curves


def cell(constraints: list[int], scored: list[int], mistakes: list[int]) -> dict[str, Any]:
    return {
        "curve": {"constraints": constraints, "scored": scored, "mistakes": mistakes, "utilised": mistakes}
    }


def test_shares_are_of_interpolated_counts() -> None:
    found = curves.share(
        [cell([10, 30], [10, 20], [5, 15]), cell([10, 20, 30], [10, 20, 30], [1, 2, 9])], "mistakes", "scored"
    )
    assert found is not None
    assert found.x.tolist() == [10, 20, 30]
    # Of the first split at 20: 10 of 15.
    assert found.mean == pytest.approx([(0.5 + 0.1) / 2, (10 / 15 + 0.1) / 2, (0.75 + 0.3) / 2])
    assert found.std == pytest.approx(
        [np.std(pair, ddof=1) for pair in ((0.5, 0.1), (10 / 15, 0.1), (0.75, 0.3))]
    )
    assert found.last == pytest.approx(0.525)


def test_splits_of_different_length_count_as_far_as_they_go() -> None:
    found = curves.share(
        [cell([10, 20], [10, 20], [5, 5]), cell([10, 40], [10, 40], [5, 20])], "mistakes", "scored"
    )
    assert found is not None
    assert found.x.tolist() == [10, 20, 40]
    assert found.mean == pytest.approx([0.5, (0.25 + 0.5) / 2, 0.5])
    assert np.isnan(found.std).tolist() == [False, False, True]


def test_streams_of_nearly_one_length_end_together() -> None:
    found = curves.share(
        [cell([40, 80], [40, 80], [4, 8]), cell([50, 100], [50, 100], [10, 40])], "mistakes", "scored"
    )
    assert found is not None
    assert found.x.tolist() == [45, 90]
    assert found.mean == pytest.approx([(0.1 + 0.2) / 2, (0.1 + 0.4) / 2])
    used = curves.share(
        [cell([40, 80], [0, 0], [4, 8]), cell([50, 100], [0, 0], [10, 40])], "utilised", "constraints"
    )
    assert used is not None
    assert used.mean == pytest.approx(found.mean)


def test_where_nothing_was_scored_there_is_no_share() -> None:
    found = curves.share([cell([10, 20], [0, 10], [0, 5])], "mistakes", "scored")
    assert found is not None
    assert (found.x.tolist(), found.mean.tolist()) == ([20], [0.5])
    assert curves.share([cell([10], [0], [0])], "mistakes", "scored") is None
    assert curves.share([{"curve": None}, {}, cell([], [], [])], "mistakes", "scored") is None


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    at = list(range(1, 1001))
    found = curves.share([cell(at, at, at)], "mistakes", "scored")
    assert found is not None
    assert len(found.x) == curves.POINTS
    assert (found.x[0], found.x[-1]) == (1, 1000)
