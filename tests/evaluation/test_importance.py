"""Shares of features: known ones of linear maps, sums, units, and metrics that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.measures.importance import shares
from kinstream.evaluation.runner.batch import Fitted
from kinstream.evaluation.runner.recommendation import important
from kinstream.learners import registry

Rows = NDArray[np.float64]


def uncorrelated(n: int = 400) -> Rows:
    """Columns of exactly mean 0, deviations 1, 2 and 3, and no correlation."""
    draw = np.random.default_rng(5).normal(size=(n, 3))
    orthogonal = np.linalg.qr(draw - draw.mean(axis=0))[0] * np.sqrt(n)
    return np.asarray(orthogonal * [1.0, 2.0, 3.0])


def learned(kind: str, X: Rows, y: NDArray[np.int64], **settings: Any) -> Any:
    model = registry.create(kind, **settings)
    for block in Built("one-pass", limit=1_500, passes=None)({"v": X.astype(np.float32)}, y, 0):
        model.learn(block)
    return model


def two_classes(n: int = 300) -> tuple[Rows, NDArray[np.int64]]:
    draw = np.random.default_rng(2)
    y = draw.integers(0, 2, n)
    X = draw.normal(size=(n, 4)) * [1.0, 3.0, 0.5, 2.0]
    X[:, 0] += 3.0 * y
    return X + 1.0, y


def test_a_diagonal_map_shares_by_its_weights_times_variances() -> None:
    # Weights 2^2, 1, 0 by variances 1, 4, 9: 4, 4, 0 of 8.
    found = shares(Fitted(np.diag([2.0, 1.0, 0.0])), uncorrelated())
    assert found == pytest.approx([0.5, 0.5, 0.0], abs=1e-12)


def test_a_direction_shares_by_what_each_feature_gives_to_its_variance() -> None:
    # |v (x - y)|^2 with v = (1, 1, 1) and no correlation: 1, 4, 9 of 14.
    found = shares(Fitted(np.ones((1, 3))), uncorrelated())
    assert found == pytest.approx(np.array([1.0, 4.0, 9.0]) / 14.0, abs=1e-12)


def test_a_feature_that_makes_pairs_nearer_has_a_negative_share() -> None:
    """x2 = x1 / 2, and the metric is (x1 - x2)^2: M S = [[.5, .25], [-.5, -.25]], of trace .25."""
    x = np.random.default_rng(1).normal(size=(200, 1))
    found = shares(Fitted(np.array([[1.0, -1.0]])), np.hstack([x, x / 2.0]))
    assert found == pytest.approx([2.0, -1.0], abs=1e-9)


def test_shares_are_the_means_over_all_pairs() -> None:
    """Against the definition: the mean over all ordered pairs of d_j (M d)_j, over the mean squared distance."""
    draw = np.random.default_rng(9)
    X, L = draw.normal(size=(40, 5)) @ draw.normal(size=(5, 5)), draw.normal(size=(3, 5))
    differences = (X[:, None] - X[None]).reshape(-1, 5)
    parts = np.mean(differences * (differences @ L.T @ L), axis=0)
    found = shares(Fitted(L), X)
    assert found == pytest.approx(parts / parts.sum(), rel=1e-9)
    assert found is not None and found.sum() == pytest.approx(1.0)


def test_units_of_the_features_do_not_matter() -> None:
    draw = np.random.default_rng(4)
    X, L, units = draw.normal(size=(60, 4)), draw.normal(size=(2, 4)), np.array([1.0, 1e3, 1e-3, 25.4])
    # In other units the same metric is L D^-1.
    assert shares(Fitted(L / units), X * units + 7.0) == pytest.approx(shares(Fitted(L), X), rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mixture", {}),
        ("opml", {"scaler": "zscore"}),
        ("softmax", {}),
        ("lda", {}),
        ("euclidean", {"scaler": "unit"}),
    ],
)
def test_shares_of_learners_add_to_one(kind: str, settings: dict[str, Any]) -> None:
    X, y = two_classes()
    found = shares(learned(kind, X, y, **settings), X.astype(np.float32))
    assert found is not None and found.shape == (4,)
    assert found.sum() == pytest.approx(1.0, abs=1e-6)


def test_a_mixture_goes_by_the_feature_that_tells_classes_apart() -> None:
    X, y = two_classes()
    before = shares(registry.create("mixture"), X.astype(np.float32))
    after = shares(learned("mixture", X, y), X.astype(np.float32))
    assert before is not None and after is not None
    assert after[0] > before[0] + 0.2 and after[0] == max(after)


def test_a_metric_that_is_not_a_map_of_features_has_no_shares() -> None:
    X, y = two_classes()
    assert shares(learned("oahu", X, y), X.astype(np.float32)) is None
    assert shares(Fitted(np.zeros((1, 4))), X) is None


def test_lines_have_means_over_splits_and_names_from_the_header() -> None:
    cells: list[dict[str, Any]] = [
        {"data": "d", "metric": "m", "shares": [0.2, 0.8]},
        {"data": "d", "metric": "m", "shares": [0.4, 0.6]},
        {"data": "d", "metric": "none", "shares": None},
    ]
    assert important(cells, ["m", "none"], {"d": ["width", "height"]}) == [
        {
            "data": "d",
            "metric": "m",
            "features": [{"name": "height", "share": 0.7}, {"name": "width", "share": 0.3}],
        }
    ]
    assert [one["name"] for one in important(cells, ["m"], {"d": ()})[0]["features"]] == ["f1", "f0"]
