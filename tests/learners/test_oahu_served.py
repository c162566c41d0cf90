"""What services use of OAHU: `transform`, which adds up metrics over the distances of similar pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from kinstream import OAHU
from kinstream.learners.oahu.votes import classify

Rows = NDArray[np.floating[Any]]


def rows(number: int, seed: int) -> tuple[Rows, NDArray[np.int64]]:
    """Rows (n, 6) of three classes that two columns tell apart, the others being noise of twice their spread."""
    draw = np.random.default_rng(seed)
    label = draw.integers(0, 3, number)
    X = draw.normal(size=(number, 6)) * 2.0
    X[:, :2] = np.array([[0.0, 3.0], [3.0, 0.0], [-3.0, -3.0]])[label] + draw.normal(size=(number, 2))
    return X.astype(np.float32), label


def triplets(label: NDArray[np.int64], number: int, seed: int) -> NDArray[np.int64]:
    """Rows (m, 3) of random triplets."""
    draw = np.random.default_rng(seed)
    found: list[tuple[int, int, int]] = []
    while len(found) < number:
        a, p, n = draw.integers(0, len(label), 3).tolist()
        if a != p and label[a] == label[p] != label[n]:
            found.append((a, p, n))
    return np.array(found)


def taught(model: OAHU, X: Rows, index: NDArray[np.int64], pieces: int = 1) -> OAHU:
    for part in np.array_split(index, pieces):
        model.learn_triplets(X[part[:, 0]], X[part[:, 1]], X[part[:, 2]])
    return model


def by_hand(model: OAHU, X: Rows, index: NDArray[np.int64]) -> Rows:
    """Squared distances of rows 2i and 2i + 1, over the spread of the pairs that the documentation names."""
    number = np.arange(len(index))
    kept = index[(number < 64) | (number % 16 == 0)][-64:]
    found = 0.0
    for weight, near, far, one in zip(
        model.weights.values(),
        model.embed(X[kept[:, 0]]),
        model.embed(X[kept[:, 1]]),
        model.embed(X),
        strict=True,
    ):
        spread = np.sqrt(np.mean(((near - far).astype(np.float64) ** 2).sum(axis=1)))
        found = found + weight * ((one[::2] - one[1::2]).astype(np.float64) ** 2).sum(axis=1) / spread
    return np.asarray(found)


@pytest.mark.parametrize("learned", [64, 400, 1_500])
def test_squared_distances_add_up_over_the_spread_of_the_latest_similar_pairs(learned: int) -> None:
    X, label = rows(200, 1)
    index = triplets(label, learned, 2)
    model = taught(OAHU(scaler="none", seed=3), X, index)
    T = model.transform(X).astype(np.float64)
    assert np.allclose(((T[::2] - T[1::2]) ** 2).sum(axis=1), by_hand(model, X, index), rtol=1e-4)


def test_before_64_pairs_the_weights_decide_alone() -> None:
    X, label = rows(200, 1)
    model = taught(OAHU(scaler="none", seed=3), X, triplets(label, 63, 2))
    assert np.allclose(model.factors**2, list(model.weights.values()))


def test_pairs_do_not_depend_on_the_blocks() -> None:
    X, label = rows(200, 1)
    index = triplets(label, 700, 2)
    whole, pieces = (taught(OAHU(scaler="none"), X, index, number).state() for number in (1, 23))
    assert np.array_equal(np.asarray(whole["positives"]), np.asarray(pieces["positives"]))
    assert whole["positives_count"] == pieces["positives_count"]


def test_a_state_of_before_has_no_pairs_and_collects_them() -> None:
    X, label = rows(200, 1)
    index = triplets(label, 1_500, 2)
    state = taught(OAHU(scaler="none"), X, index).state()
    old = OAHU(scaler="none")
    old.restore({name: value for name, value in state.items() if not name.startswith("positives")})
    assert np.allclose(old.factors**2, list(old.weights.values()))
    taught(old, X, np.concatenate([index, index]))
    assert not np.allclose(old.factors**2, list(old.weights.values()))


def test_a_restored_state_serves_the_same() -> None:
    X, label = rows(200, 1)
    model = taught(OAHU(), X, triplets(label, 1_500, 2))
    other = OAHU()
    other.restore(model.state())
    assert np.array_equal(model.transform(X), other.transform(X))


@pytest.mark.parametrize("units", [1.0, 1e-3, 1e4])
def test_a_scaler_that_is_renewed_keeps_the_spread(units: float) -> None:
    """Features that change their scale in mid-stream: pairs follow the scaler, their distances stay."""
    X, label = rows(400, 5)
    index = triplets(label, 2_000, 6)
    model = taught(OAHU(scaler="zscore", seed=1), X, index, 8)
    taught(model, X * np.float32(units), index, 8)
    near, far = model._embedded(model._positives.pairs[0]), model._embedded(model._positives.pairs[1])  # type: ignore[index]
    moved = [np.mean(((a - b).astype(np.float64) ** 2).sum(axis=1)) for a, b in zip(near, far, strict=True)]
    assert all(0.01 < unit < 4.0 for unit in moved)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_digits])
def test_neighbours_under_what_is_served_err_as_the_vote_does(load: Any) -> None:
    """On three splits together: at most a tenth more, or two rows."""
    X, y = load(return_X_y=True)
    errors = np.zeros(2)
    number = 0
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(y))
        half = len(y) // 2
        scaler = StandardScaler().fit(X[order[:half]])
        Z = scaler.transform(X).astype(np.float32)
        own, other = order[:half], order[half:]
        model = taught(OAHU(seed=seed), Z[own], triplets(y[own], 5_000, seed), 10)
        served = classify([1.0], [model.transform(Z[own])], y[own], [model.transform(Z[other])], 5)
        vote = model.classify(Z[own], y[own], Z[other], 5)
        errors += (vote != y[other]).sum(), (served != y[other]).sum()
        number += len(other)
    assert errors[1] <= max(1.1 * errors[0], errors[0] + 2)
    assert errors[1] < 0.1 * number
