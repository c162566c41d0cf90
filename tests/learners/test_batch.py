"""Fits to a whole data set satisfy their definitions, and help where they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from kinstream.learners.baselines import metric_learn
from kinstream.learners.baselines.batch import fit_itml, fit_itml_of_pairs, fit_lmnn, fit_mahalanobis, fit_rca
from kinstream.learners.baselines.sampling import random_pairs, squared_percentiles
from kinstream.streams.errors import SettingsError
from tests.learners.published_unit import create

Matrix = NDArray[np.float64]

DIMENSIONS = st.sampled_from([1, 2, 3, 17, 64])
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 1e3])
SEEDS = st.integers(0, 2**32 - 1)


def classes(seed: int, n: int, d: int, scale: float = 1.0) -> tuple[Matrix, NDArray[np.intp]]:
    """Three classes with a common, uneven covariance, far from the origin."""
    draw = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(3), 5), draw.integers(0, 3, n - 15)])
    mixed = draw.normal(size=(d, d)) + np.eye(d)
    return scale * (3.0 + (draw.normal(size=(3, d))[y] + draw.normal(size=(n, d))) @ mixed), y


@given(DIMENSIONS, SCALES, SEEDS)
@settings(max_examples=25)
def test_mahalanobis_is_the_inverse_covariance(d: int, scale: float, seed: int) -> None:
    X, _ = classes(seed, 3 * d + 20, d, scale)
    Sigma = np.atleast_2d(np.cov(X, rowvar=False))
    M = fit_mahalanobis(X)
    wanted = np.linalg.inv(Sigma + 1e-6 * np.trace(Sigma) / d * np.eye(d))
    np.testing.assert_allclose(M.T @ M, wanted, rtol=0, atol=1e-7 * np.abs(wanted).max())
    np.testing.assert_array_equal(M, fit_mahalanobis(X))


@given(DIMENSIONS, SCALES, SEEDS)
@settings(max_examples=25)
def test_rca_whitens_chunklets(d: int, scale: float, seed: int) -> None:
    X, y = classes(seed, 3 * d + 20, d, scale)
    alone = np.arange(len(X)) >= len(X) - 2
    y[alone] = (-1, 99)
    M = fit_rca(X, y)
    np.testing.assert_allclose(M, M.T, rtol=0, atol=1e-9 * np.abs(M).max())
    within = np.concatenate([(X[y == c] - X[y == c].mean(axis=0)) for c in range(3)])
    C = within.T @ within / len(within)
    ridge = 1e-6 * np.trace(C) / d * np.eye(d)
    np.testing.assert_allclose(M @ (C + ridge) @ M.T, np.eye(d), rtol=0, atol=1e-8)


def test_rca_is_that_of_metric_learn_up_to_the_ridge() -> None:
    from metric_learn import RCA

    X, y = classes(1, 200, 6)
    model = metric_learn._unchecked(RCA)().fit(X, y)
    wanted = model.components_
    np.testing.assert_allclose(fit_rca(X, y), wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


def test_directions_without_variance_are_finite() -> None:
    X, y = classes(2, 40, 4)
    X[:, 3] = X[:, 0]
    for M in (fit_mahalanobis(X), fit_rca(X, y), fit_lmnn(X, y), fit_itml(X, y, max_iter=50)):
        assert np.isfinite(M).all()


def objective(L: Matrix, X: Matrix, y: NDArray[Any], k: int, mu: float) -> float:
    """LMNN's, with target neighbours under Euclidean distance."""
    euclid = np.square(X[:, None] - X).sum(axis=2)
    np.fill_diagonal(euclid, np.inf)
    D = np.square((X[:, None] - X) @ L.T).sum(axis=2)
    pull, push = 0.0, 0.0
    for i in range(len(X)):
        same = np.flatnonzero(y == y[i])
        for j in same[np.argsort(euclid[i, same])][:k]:
            pull += D[i, j]
            push += np.maximum(0.0, 1.0 + D[i, j] - D[i, y != y[i]]).sum()
    return (1.0 - mu) * pull + mu * push


@pytest.mark.parametrize("mu", [0.2, 0.5])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_lmnn_ends_where_its_objective_does_not_fall(d: int, mu: float) -> None:
    X, y = classes(d, 50, d)
    X -= X.mean(axis=0)
    found = fit_lmnn(X, y, mu=mu, n_neighbors=2, tol=1e-9)
    best = objective(found, X, y, 2, mu)
    for factor in (0.1, 0.3, 1.0, 3.0, 10.0):
        assert best < objective(factor / X.std() * np.eye(d), X, y, 2, mu)
    draw = np.random.default_rng(0)
    for _ in range(20):
        step = draw.normal(size=(d, d))
        step *= 1e-2 * np.linalg.norm(found) / np.linalg.norm(step)
        assert objective(found + step, X, y, 2, mu) >= best - 1e-6 * best


@pytest.mark.parametrize("fit", [fit_mahalanobis, fit_rca, fit_lmnn])
def test_the_unit_of_the_features_is_only_a_unit(fit: Callable[..., Matrix]) -> None:
    X, y = classes(3, 60, 4)
    arguments = () if fit is fit_mahalanobis else (y,)
    wanted = fit(X, *arguments)
    # Powers of two scale without rounding.
    for factor in (2.0**-13, 2.0**10):
        M = fit(X * factor, *arguments)
        np.testing.assert_allclose(M * factor, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("seed", range(5))
def test_without_slack_itml_keeps_bounds_that_can_be_kept(seed: int) -> None:
    draw = np.random.default_rng(seed)
    d, m = 6, 12
    # Similar pairs differ in the first features and dissimilar ones in the others: both bounds can hold.
    signs = np.repeat([1, -1], m)
    Z = draw.normal(size=(2 * m, d))
    Z[:m, d // 2 :] = 0.0
    Z[m:, : d // 2] = 0.0
    left = draw.normal(size=(2 * m, d))
    for infinity in (np.inf, float("inf")):
        M = fit_itml_of_pairs(left, left - Z, signs, (0.5, 20.0), gamma=infinity, max_iter=3000, tol=1e-9)
        squared = np.square(Z @ M.T).sum(axis=1)
        assert (squared[:m] <= 0.5 * (1.0 + 1e-5)).all()
        assert (squared[m:] >= 20.0 * (1.0 - 1e-5)).all()


def test_itml_leaves_a_metric_alone_that_keeps_the_bounds() -> None:
    draw = np.random.default_rng(0)
    u, v = draw.normal(size=(2, 30, 3))
    squared = np.square(u - v).sum(axis=1)
    low, high = np.percentile(squared, (30, 70))
    signs = np.where(squared < low, 1, -1)
    use = (squared < low) | (squared > high)
    np.testing.assert_array_equal(fit_itml_of_pairs(u[use], v[use], signs[use], (low, high)), np.eye(3))


def test_bounds_are_percentiles_of_squared_distances() -> None:
    X = np.random.default_rng(1).normal(size=(40, 3))
    squared = np.square(X[:, None] - X).sum(axis=2)[np.triu_indices(40, 1)]
    assert squared_percentiles(X) == pytest.approx(tuple(np.percentile(squared, (5, 95))))
    many = np.random.default_rng(2).normal(size=(400, 3))
    all_pairs = np.square(many[:, None] - many).sum(axis=2)[np.triu_indices(400, 1)]
    assert squared_percentiles(many) == pytest.approx(tuple(np.percentile(all_pairs, (5, 95))), rel=0.1)
    assert squared_percentiles(np.ones((4, 2))) is None
    assert squared_percentiles(np.array([[0.0], [2.0]])) == (2.0, 4.0)


@given(st.lists(st.integers(0, 4), min_size=3, max_size=40), st.integers(2, 60), SEEDS)
@settings(max_examples=50)
def test_random_pairs_are_as_their_signs_say(labels: list[int], n: int, seed: int) -> None:
    y = np.array(labels)
    if len(set(labels)) < 2 or len(set(labels)) == len(labels):
        with pytest.raises(ValueError, match="two classes or more"):
            random_pairs(y, n, seed)
        return
    index, signs = random_pairs(y, n, seed)
    assert len(index) == n and (signs > 0).sum() == n // 2
    assert (index[:, 0] != index[:, 1]).all()
    np.testing.assert_array_equal(y[index[:, 0]] == y[index[:, 1]], signs > 0)


def test_random_pairs_reach_all_partners() -> None:
    y = np.array([0, 1, 0, 1, 2, 0])
    index, signs = random_pairs(y, 2000, 0)
    found = {(i, j) for i, j in index.tolist()}
    alone = {(4, 4)}
    assert found == {(i, j) for i in range(6) for j in range(6) if i != j} - alone
    counts = [int(((index[:, 0] == i) & (signs > 0)).sum()) for i in range(6)]
    assert counts[4] == 0 and min(counts[i] for i in (0, 1, 2, 3, 5)) > 150


def standard(name: str) -> tuple[Matrix, NDArray[Any]]:
    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_neighbours_are_sane_on_real_data(name: str) -> None:
    X, y = standard(name)
    order = np.random.default_rng(4).permutation(len(X))
    train, test = order[: len(X) // 2], order[len(X) // 2 :]
    maps = {
        "euclidean": np.eye(X.shape[1]),
        "mahalanobis": fit_mahalanobis(X[train]),
        "rca": fit_rca(X[train], y[train]),
        "lmnn": fit_lmnn(X[train], y[train], max_iter=100),
        "itml": fit_itml(X[train], y[train], max_iter=50),
    }
    error = {}
    for kind, M in maps.items():
        model = KNeighborsClassifier(5).fit(X[train] @ M.T, y[train])
        error[kind] = 1.0 - model.score(X[test] @ M.T, y[test])
    # Whitening blows up what nearly has no variance, which breast cancer has much of.
    assert max(error.values()) < 0.26 and error["rca"] < 0.15, error
    for kind in ("lmnn", "itml"):
        assert error[kind] <= error["euclidean"] + 0.03, error


def test_bad_input_is_refused() -> None:
    X, y = classes(0, 20, 2)
    with pytest.raises(ValueError, match=r"an array \(n, d\), got shape \(20,\)"):
        fit_mahalanobis(X[:, 0])
    with pytest.raises(ValueError, match="not finite"):
        fit_mahalanobis(X * np.nan)
    with pytest.raises(ValueError, match="no covariance to invert"):
        fit_mahalanobis(np.ones((3, 2)))
    with pytest.raises(ValueError, match="20 vectors, and labels of shape"):
        fit_rca(X, y[:-1])
    with pytest.raises(ValueError, match="no chunklet has two vectors"):
        fit_rca(X, np.arange(20))
    with pytest.raises(ValueError, match="of at least 4 vectors each"):
        fit_lmnn(X, np.arange(20) // 2)
    with pytest.raises(ValueError, match="equal to all neighbours"):
        fit_lmnn(y[:, None].astype(float), y)
    with pytest.raises(ValueError, match="the vectors are all equal"):
        fit_itml(np.ones((20, 2)), y)
    with pytest.raises(ValueError, match="no pair has a difference"):
        fit_itml_of_pairs(X, X, np.ones(20), (1.0, 2.0))
    with pytest.raises(ValueError, match=r"with signs of shape \(3,\)"):
        fit_itml_of_pairs(X, X, np.ones(3), (1.0, 2.0))
    for arguments, told in (
        ({"gamma": 0.0}, "gamma must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"n_pairs": 1}, "n_pairs must be"),
        ({"seed": -1}, "seed must be"),
        ({"tol": -1.0}, "tol must be"),
    ):
        with pytest.raises(SettingsError, match=told):
            fit_itml(X, y, **arguments)
    for arguments, told in (
        ({"mu": 1.0}, "mu must be"),
        ({"n_neighbors": 0}, "n_neighbors must be"),
        ({"max_iter": 1}, "max_iter must be"),
        ({"tol": 0.0}, "tol must be"),
    ):
        with pytest.raises(SettingsError, match=told):
            fit_lmnn(X, y, **arguments)


def test_without_metric_learn_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinstream.streams.extras.find_spec", lambda name: None)
    told = r"needs the package metric-learn, which is not installed: pip install 'kinstream\[baselines\]'"
    for kind in ("lmnn", "itml"):
        with pytest.raises(SettingsError, match=told):
            create(kind)
    for kind in ("euclidean", "mahalanobis", "rca"):
        create(kind)
