"""Table II of the OPML paper for the learners at hand: 5-NN error at most the published mean and two deviations.

The protocol of the paper: features z-scored over the whole set, random halves, 5-NN on the mapped features. OPML and
COPML learn the one-pass triplets of the training half, RDML its adjacent samples, LEGO, POLA and OASIS 10,000 random
constraints. Hyper-parameters are chosen for each half by cross-validation within it, with 1,000 constraints where
constraints are drawn. The paper takes 100 halves; a mean over fewer is as far from its bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier

from learners import registry
from streams.records import ConstraintBlock, Kind
from tests.learners.blocks import block
from tests.learners.test_paper import DATA, load, one_pass

pytestmark = pytest.mark.long

#: Mean and standard deviation of the published errors.
TABLE_II: Final = {
    "iris": {
        "oasis": (0.274, 0.050),
        "rdml": (0.077, 0.027),
        "pola": (0.030, 0.016),
        "lego": (0.050, 0.021),
        "opml": (0.049, 0.023),
        "copml": (0.048, 0.023),
    },
    "wine": {
        "oasis": (0.019, 0.014),
        "rdml": (0.039, 0.019),
        "pola": (0.028, 0.018),
        "lego": (0.031, 0.020),
        "opml": (0.042, 0.020),
        "copml": (0.041, 0.019),
    },
    "glass": {
        "oasis": (0.485, 0.057),
        "rdml": (0.349, 0.035),
        "pola": (0.395, 0.042),
        "lego": (0.390, 0.034),
        "opml": (0.339, 0.032),
        "copml": (0.341, 0.033),
    },
    "balance": {
        "oasis": (0.126, 0.009),
        "rdml": (0.118, 0.012),
        "pola": (0.156, 0.047),
        "lego": (0.118, 0.011),
        "opml": (0.129, 0.012),
        "copml": (0.129, 0.014),
    },
    "breast": {
        "oasis": (0.043, 0.021),
        "rdml": (0.033, 0.007),
        "pola": (0.038, 0.010),
        "lego": (0.035, 0.008),
        "opml": (0.032, 0.008),
        "copml": (0.032, 0.007),
    },
    "pima": {
        "oasis": (0.346, 0.053),
        "rdml": (0.269, 0.019),
        "pola": (0.275, 0.021),
        "lego": (0.266, 0.019),
        "opml": (0.266, 0.017),
        "copml": (0.265, 0.018),
    },
    "waveform": {
        "oasis": (0.357, 0.039),
        "rdml": (0.186, 0.010),
        "pola": (0.250, 0.030),
        "lego": (0.233, 0.007),
        "opml": (0.224, 0.009),
        "copml": (0.225, 0.010),
    },
}
#: Halves of each set; the large one varies little.
HALVES: Final = {name: 4 if name == "waveform" else 30 for name in TABLE_II}
DRAWN: Final = 10_000
TUNING: Final = 1_000
FOLDS: Final = 3

#: Sets that scikit-learn brings along.
BUNDLED: Final = {"iris": load_iris, "wine": load_wine}

Features = NDArray[np.float64]
Labels = NDArray[np.int64]
#: Training half -> blocks, of about so many constraints where they are drawn.
Feed = Callable[[Features, Labels, np.random.Generator, int], list[ConstraintBlock]]


def data(name: str) -> tuple[Features, Labels]:
    """Features z-scored over the whole set, and labels."""
    if name not in BUNDLED or (DATA / f"{name}.npz").exists():
        return load(name)
    found = BUNDLED[name]()
    X = found.data.astype(np.float64)
    return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1), found.target.astype(np.int64)


def one_pass_triplets(X: Features, y: Labels, draw: np.random.Generator, m: int) -> list[ConstraintBlock]:
    """OPML's and COPML's."""
    return list(one_pass(X, y, None))


def adjacent_pairs(X: Features, y: Labels, draw: np.random.Generator, m: int) -> list[ConstraintBlock]:
    """(1, 2), (2, 3), ...; the half is in random order."""
    index = np.array(list(pairwise(range(len(y)))))
    return [_pairs(X, y, index)]


def random_pairs(X: Features, y: Labels, draw: np.random.Generator, m: int) -> list[ConstraintBlock]:
    """Two distinct samples each."""
    left = draw.integers(0, len(y), m)
    right = (left + draw.integers(1, len(y), m)) % len(y)
    return [_pairs(X, y, np.column_stack([left, right]))]


def random_triplets(X: Features, y: Labels, draw: np.random.Generator, m: int) -> list[ConstraintBlock]:
    """A random anchor, another sample of its class and one of another class."""
    members = [np.flatnonzero(y == label) for label in y]
    index = np.empty((m, 3), np.int32)
    for row, anchor in zip(index, draw.permutation(np.resize(np.arange(len(y)), m)), strict=True):
        same = members[anchor]
        positive = same[(np.searchsorted(same, anchor) + draw.integers(1, max(2, len(same)))) % len(same)]
        negative = draw.integers(len(y))
        while y[negative] == y[anchor]:
            negative = draw.integers(len(y))
        row[:] = anchor, positive, negative
    return [block(X, index)]


def _pairs(X: Features, y: Labels, index: NDArray[Any]) -> ConstraintBlock:
    signs = np.where(y[index[:, 0]] == y[index[:, 1]], 1, -1)
    return block(X, index, Kind.PAIR, "random", signs)


@dataclass(frozen=True)
class Protocol:
    """What a learner is fed, and the settings that it may choose among (the grids of the spec)."""

    feed: Feed
    grid: tuple[dict[str, Any], ...]


PROTOCOLS: Final = {
    "opml": Protocol(one_pass_triplets, tuple({"gamma": g} for g in (1e-4, 1e-3, 1e-2, 1e-1))),
    "copml": Protocol(one_pass_triplets, tuple({"gamma1": g, "gamma2": g} for g in (1e-4, 1e-3, 1e-2, 1e-1))),
    "lego": Protocol(random_pairs, tuple({"eta": 10.0**p} for p in range(-4, 2))),
    "oasis": Protocol(random_triplets, tuple({"aggressiveness": c} for c in (1e-3, 1e-2, 1e-1))),
    "rdml": Protocol(
        adjacent_pairs,
        tuple(
            {"learning_rate": r, "start": s} for r in (1e-3, 1e-2, 1e-1, 1.0) for s in ("zero", "identity")
        ),
    ),
    "pola": Protocol(random_pairs, ({}, {"cap": 1e-2}, {"cap": 1e-3}, {"cap": 1e-4})),
}


def error(
    kind: str,
    settings: dict[str, Any],
    train: tuple[Features, Labels],
    test: tuple[Features, Labels],
    draw: np.random.Generator,
    m: int,
) -> float:
    """5-NN error on `test` of what is learned on `train`."""
    X, y = train
    if kind == "lego":
        squared = pdist(X[draw.permutation(len(X))[:150]], "sqeuclidean")
        similar, dissimilar = np.percentile(squared[squared > 0.0], [5, 95])
        settings = settings | {"y_similar": float(similar), "y_dissimilar": float(dissimilar)}
    learner = registry.create(kind, **settings)
    for message in PROTOCOLS[kind].feed(X, y, draw, m):
        if message.kind in learner.accepts:
            learner.learn(message)
    knn = KNeighborsClassifier(5).fit(learner.transform(X), y)
    return float(np.mean(knn.predict(learner.transform(test[0])) != test[1]))


def chosen(kind: str, train: tuple[Features, Labels], seed: tuple[int, ...]) -> dict[str, Any]:
    """Settings of the grid with the least error in cross-validation; the first of equals."""
    grid = PROTOCOLS[kind].grid
    if len(grid) == 1:
        return grid[0]
    X, y = train
    folds = KFold(FOLDS, shuffle=True, random_state=seed[-1])
    scores = np.zeros(len(grid))
    for fit, rest in folds.split(X):
        fit = np.random.default_rng(seed).permutation(fit)
        for i, settings in enumerate(grid):
            draw = np.random.default_rng((*seed, 1))
            scores[i] += error(kind, settings, (X[fit], y[fit]), (X[rest], y[rest]), draw, TUNING)
    return grid[int(scores.argmin())]


def errors(name: str, kind: str, halves: int) -> Iterator[float]:
    """Of each half."""
    X, y = data(name)
    for half in range(halves):
        seed = (2018, half)
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        settings = chosen(kind, (X[train], y[train]), seed)
        draw = np.random.default_rng((*seed, 2))
        yield error(kind, settings, (X[train], y[train]), (X[test], y[test]), draw, DRAWN)


@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("name", TABLE_II)
def test_error_is_within_two_deviations_of_table_ii(name: str, kind: str) -> None:
    mean, deviation = TABLE_II[name][kind]
    found = np.array(list(errors(name, kind, HALVES[name])))
    assert found.mean() <= mean + 2.0 * deviation, f"{found.mean():.4f} +- {found.std(ddof=1):.4f}"
