"""The set of the demonstration is one of a kind: on other sets of that kind learning beats every scaling as well."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification

from kinstream.evaluation.measures.held_out_rows import grade
from kinstream.learners.sklearn import MetricLearner
from kinstream.producers.labelled.batch import Batch
from kinstream.producers.labelled.bundled import GENERATED
from kinstream.streams.records.values import Table


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 206))
def test_the_learned_metric_beats_every_scaling(seed: int) -> None:
    """100 to 105, by the same recipe: .026 to .087, mean .062; the best of five without learning .099 to .232, .179."""
    X, y = make_classification(**GENERATED, random_state=seed)
    rows = np.random.default_rng(seed).permutation(len(y))
    learned, tested = (
        Batch((Table("x", np.ascontiguousarray(X[part], np.float32)),), y[part])
        for part in (rows[:1500], rows[1500:])
    )
    model = MetricLearner(passes=3, block_rows=32).fit(X[rows[:1500]], y[rows[:1500]])
    errors = {
        row.name: row.error or 0.0
        for row in grade({"mixture": model.learner_}, learned, tested, scalings=True).rows
    }
    mixture = errors.pop("mixture")
    assert len(errors) == 5 and mixture < 0.85 * min(errors.values()), (mixture, errors)
