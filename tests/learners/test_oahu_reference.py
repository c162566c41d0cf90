"""OAHU that runs freely ends as good as its reference does: on real data, rounding decides nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_rel
from sklearn.datasets import load_digits

from learners.oahu import OAHU

SEEDS = 10
TRIPLETS = 2_000
NEIGHBOURS = 5


def drawn(label: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.int64]:
    """Random triplets (TRIPLETS, 3) of samples: two of one class, and one of another."""
    anchor = draw.integers(0, len(label), TRIPLETS)
    positive = [draw.choice(np.flatnonzero(label == label[a])) for a in anchor]
    negative = [draw.choice(np.flatnonzero(label != label[a])) for a in anchor]
    return np.column_stack([anchor, positive, negative])


def error(learner: OAHU, X: NDArray[np.float64], label: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    """Share of the samples behind the first half of `rows` that their nearest in that half give a wrong label."""
    train, test = np.split(rows, 2)
    found = learner.classify(X[train], label[train], X[test], NEIGHBOURS)
    return float(np.mean(found != label[test]))


@pytest.mark.long
@pytest.mark.parametrize("variant", ["anchored", "published"])
def test_errors_of_both_paths_do_not_differ_significantly(variant: str) -> None:
    X, label = load_digits(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std()
    errors = []
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        rows = draw.permutation(len(label))[: len(label) // 2 * 2]
        train = rows[: len(rows) // 2]
        index = train[drawn(label[train], draw)]
        by_path = []
        for path in ("compiled", "torch"):
            learner = OAHU(variant, path=path, seed=seed)
            learner.learn_triplets(*(X[index[:, s]] for s in range(3)))
            by_path.append(error(learner, X, label, rows))
        errors.append(by_path)
    compiled, reference = np.array(errors).T
    assert compiled.mean() < 0.2 and reference.mean() < 0.2
    # Where rounding changes no error at all there is no variance to test against.
    if (compiled != reference).any():
        assert ttest_rel(compiled, reference).pvalue > 0.01
    assert abs(compiled.mean() - reference.mean()) < 0.01
