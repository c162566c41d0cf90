"""LDA and NCA as baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from kinstream.cli.main import cli
from kinstream.evaluation.experiment.contenders import BATCH_ROWS
from kinstream.evaluation.runner.batch import fitted
from kinstream.streams.errors import SettingsError

DRAW = np.random.default_rng(8)
Y = DRAW.integers(0, 3, 120)
X = DRAW.normal(size=(120, 4)) * [1.0, 1.0, 5.0, 1.0] + Y[:, None] * [2.0, 0.0, 0.0, 1.0]


def squared(mapped: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    return np.asarray(np.sum((mapped[:-1] - mapped[1:]) ** 2, axis=1), np.float64)


def test_lda_measures_as_scikit_learns_transform() -> None:
    model = fitted("lda", X, Y, 0)
    expected = squared(LinearDiscriminantAnalysis().fit(X, Y).transform(X))
    assert squared(model.transform(X)) == pytest.approx(expected)
    assert model.distance(X[:-1], X[1:]) == pytest.approx(expected)
    assert model.transform(X).shape == (120, 2)


def test_slow_ones_take_few_rows_and_classes_of_one_row_are_left_out() -> None:
    many, y = np.tile(X, (8, 1)) + DRAW.normal(size=(960, 4)), np.tile(Y, 8)
    rows = np.random.default_rng([3, 3_141]).permutation(960)[:BATCH_ROWS]
    expected = NeighborhoodComponentsAnalysis(random_state=3).fit(many[rows], y[rows])
    assert fitted("nca", many, y, 3).map == pytest.approx(expected.components_)
    alone = np.append(Y, 9)
    found = fitted("lda", np.vstack([X, [[50.0] * 4]]), alone, 0)
    assert found.map == pytest.approx(fitted("lda", X, Y, 0).map)


def test_one_class_cannot_be_fitted() -> None:
    with pytest.raises(SettingsError, match="two classes or more"):
        fitted("lda", X, np.zeros(120, np.int64), 0)


def test_logs_have_none() -> None:
    found = CliRunner().invoke(cli, ["evaluate", "--from", "events:a", "--learner", "lda"])
    assert isinstance(found.exception, SettingsError)
    assert "lda: only for labelled rows" in str(found.exception)
