"""Mean curves over splits, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.replay.evaluation.report import curves


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


def test_weights_are_averaged_by_name() -> None:
    cells: list[dict[str, Any]] = [
        {"weights": {"constraints": [1, 3], "names": ["a", "b"], "values": [[0.5, 0.5], [0.9, 0.1]]}},
        {"weights": {"constraints": [1, 3], "names": ["b", "c"], "values": [[1.0, 0.0], [0.5, 0.5]]}},
        {"weights": None},
    ]
    found = curves.weights(cells)
    assert list(found) == ["a", "b", "c"]
    assert found["a"].mean == pytest.approx([0.25, 0.45])
    assert found["b"].mean == pytest.approx([0.75, 0.3])
    assert sum(curve.mean for curve in found.values()) == pytest.approx([1.0, 1.0])
    assert curves.weights([{"weights": None}]) == {}


def test_roc_curves_are_averaged_at_each_false_positive_rate() -> None:
    cells = [
        {"roc": {"fpr": [0.0, 0.0, 1.0], "tpr": [0.0, 0.6, 1.0]}},
        {"roc": {"fpr": [0.0, 0.5, 1.0], "tpr": [0.0, 0.5, 1.0]}},
    ]
    found = curves.roc(cells)
    assert found is not None
    assert (found.x[0], found.mean[0]) == (0.0, 0.0)
    at = dict(zip(found.x.tolist()[1:], found.mean.tolist()[1:], strict=True))
    # The first one steps up at once, then rises from 0.6 to 1.
    assert at[0.0] == pytest.approx(0.3)
    assert at[0.5] == pytest.approx((0.8 + 0.5) / 2)
    assert at[1.0] == 1.0
    alone = curves.roc(cells[:1])
    assert alone is not None and alone.x.tolist() == [0.0, 0.0, 1.0]
    assert curves.roc([{"roc": None}]) is None


def test_recall_is_averaged_by_k() -> None:
    found = curves.recall(
        [{"recall": {"k": [1, 5], "value": [0.2, 0.6]}}, {"recall": {"k": [1], "value": [0.4]}}, {}]
    )
    assert found is not None
    assert found.x.tolist() == [1, 5]
    assert found.mean == pytest.approx([0.3, 0.6])
    assert curves.recall([{"recall": None}]) is None
