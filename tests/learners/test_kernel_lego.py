"""LEGO under a kernel is LEGO in that kernel's feature space, as far as its basis goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.learners.kernels.one_modality import kernel_lego
from kinstream.learners.models.export import linear_map
from kinstream.learners.one_modality.kernel_lego import KERNELS
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, pair_blocks, singles, triplet_blocks
from tests.learners.published_unit import LEGO, KernelLEGO


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.sampled_from(KERNELS),
    d=st.sampled_from((1, 2, 3, 17, 64)),
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(-4, 3),
    rate=st.floats(-3, 2),
    loss=st.sampled_from(("hinge", "squared")),
)
def test_it_is_lego_over_coordinates_of_the_feature_space(
    kernel: str, d: int, seed: int, size: float, rate: float, loss: str
) -> None:
    draw = np.random.default_rng(seed)
    X = 10.0**size * draw.normal(size=(12, d))
    others: dict[str, Any] = {"kernel": kernel, "bandwidth": 10.0**size * np.sqrt(d)}
    E = KernelLEGO(**others).coordinates(X)
    typical = float(np.mean(np.sum((E[:6] - E[6:]) ** 2, axis=1)))
    shared: dict[str, Any] = {"loss": loss, "y_similar": 0.3 * typical, "y_dissimilar": 1.5 * typical}
    eta = 10.0**rate / typical**2
    learner, explicit = (
        KernelLEGO(eta, budget=12, **others, **shared),
        LEGO(eta, kernel="sequential", **shared),
    )
    index = np.array([draw.choice(12, 2, replace=False) for _ in range(40)])
    signs = draw.choice([-1, 1], 40).astype(np.int8)
    found = learner.learn_pairs(X[index[:, 0]], X[index[:, 1]], signs)
    wanted = explicit.learn_pairs(E[index[:, 0]], E[index[:, 1]], signs)
    assert np.mean(found.utilised != wanted.utilised) <= 0.05
    np.testing.assert_allclose(found.loss, wanted.loss, rtol=0, atol=1e-5 * float(wanted.loss.max()))
    left, right = np.repeat(np.arange(12), 12), np.tile(np.arange(12), 12)
    distances = explicit.distance(E[left], E[right])
    # Where vectors all but depend on each other, as under "rbf" in one dimension, the basis leaves a part out.
    tolerance = 1e-5 * float(distances.max())
    np.testing.assert_allclose(learner.distance(X[left], X[right]), distances, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_metric_is_that_of_the_printed_form(kernel: str) -> None:
    """A = I + X S X' over all vectors, S <- S - (1 - rho) / d h h' with h = e + S K e."""
    draw = np.random.default_rng(4)
    X = draw.normal(size=(15, 40))
    learner = KernelLEGO(0.05, kernel=kernel, budget=15, loss="squared", y_similar=0.5, y_dissimilar=2.0)
    E = learner.coordinates(X)
    K, S = E @ E.T, np.zeros((15, 15))
    for _ in range(60):
        i, j = draw.choice(15, 2, replace=False)
        sign = int(draw.choice([-1, 1]))
        e = np.zeros(15)
        e[i], e[j] = 1.0, -1.0
        h = e + S @ K @ e
        found, y = float(e @ K @ h), 0.5 if sign > 0 else 2.0
        k = 1.0 - 0.05 * y * found
        rho = 2.0 / (k + np.sqrt(k * k + 4.0 * 0.05 * found * found))
        outcomes = learner.learn_pairs(X[[i]], X[[j]], np.array([sign], np.int8))
        assert outcomes.utilised[0]
        assert outcomes.loss[0] == pytest.approx(0.5 * (found - y) ** 2, rel=1e-7)
        S -= (1.0 - rho) / found * np.outer(h, h)
    left, right = np.repeat(np.arange(15), 15), np.tile(np.arange(15), 15)
    moved = K[left] - K[right]
    wanted = np.sum((E[left] - E[right]) ** 2, axis=1) + np.einsum("ij,jk,ik->i", moved, S, moved)
    found_all = learner.distance(X[left], X[right])
    np.testing.assert_allclose(found_all, wanted, rtol=0, atol=1e-9 * float(wanted.max()))


def test_few_dimensions_need_few_points_however_long_it_learns() -> None:
    draw = np.random.default_rng(6)
    X = draw.normal(size=(30, 2))
    shared = {"y_similar": 0.1, "y_dissimilar": 3.0}
    learner, explicit = KernelLEGO(1.0, kernel="linear", **shared), LEGO(1.0, **shared)
    for _ in range(50):
        index = np.array([draw.choice(30, 2, replace=False) for _ in range(200)])
        message = block(X, index, Kind.PAIR, None, draw.choice([-1, 1], 200))
        learner.learn(message)
        explicit.learn(message)
    assert len(learner.basis) == 2
    A, B = explicit.G.T @ explicit.G, learner.map.T @ learner.map
    np.testing.assert_allclose(B, A, rtol=0, atol=1e-9 * float(np.abs(A).max()))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("d", [1, 2, 3, 17])
def test_with_the_linear_kernel_it_is_the_explicit_form(d: int, scale: float, dtype: str) -> None:
    shared: dict[str, Any] = {
        "y_similar": 0.3 * d * scale**2,
        "y_dissimilar": 4.0 * d * scale**2,
        "dtype": dtype,
    }
    eta = 0.1 / (d * scale**2) ** 2
    learner, explicit = KernelLEGO(eta, kernel="linear", budget=500, **shared), LEGO(eta, **shared)
    for message in (*pair_blocks(2, d, scale=scale), *triplet_blocks(2, d, scale=scale)):
        found, wanted = learner.learn(message), explicit.learn(message)
        assert np.mean(found.mistake != wanted.mistake) <= 0.05
        np.testing.assert_array_equal(found.degenerate, wanted.degenerate)
    tolerance = 1e-9 if dtype == "float64" else 1e-3
    A, B = explicit.G.T @ explicit.G, learner.map.T @ learner.map
    np.testing.assert_allclose(B, A, rtol=0, atol=tolerance * float(np.abs(A).max()))
    matrix, offset, scaler = linear_map(learner)
    np.testing.assert_array_equal(matrix, learner.map)
    assert not offset.any() and scaler == "none"


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_full_basis_stays_and_its_pairs_go_on_teaching(kernel: str) -> None:
    draw = np.random.default_rng(5)
    X = draw.normal(size=(60, 40))
    index = np.array([draw.choice(60, 2, replace=False) for _ in range(600)])
    index[300:450] %= 20
    message = block(X, index, Kind.PAIR, "test", draw.choice([-1, 1], 600))
    fixed: dict[str, Any] = {"kernel": kernel, "loss": "squared", "y_similar": 0.1, "y_dissimilar": 3.0}
    learner = KernelLEGO(0.05, budget=20, **fixed)
    outcomes = learner.learn(message)
    used = np.flatnonzero(outcomes.utilised)
    assert len(learner.basis) == 20 and 20 < len(used) < 400
    assert (outcomes.loss > 0).sum() > 500 and (outcomes.mistake >= 0).all() and not outcomes.rejected.any()
    known = {row.tobytes() for row in learner.basis.astype(np.float32)}
    vectors = message.tables[0].vectors
    inside = [all(vectors[i].tobytes() in known for i in pair) for pair in index]
    assert all(np.array(inside)[used])
    # To the bit what is learned from those pairs alone, and with room for more.
    other = KernelLEGO(0.05, budget=100, **fixed)
    other.learn(block(X, index[used], Kind.PAIR, "test", message.signs[used]))
    np.testing.assert_array_equal(other.G, learner.G)
    np.testing.assert_array_equal(other.basis, learner.basis)
    # And what is only scored leaves every bit.
    before = learner.G
    left = np.flatnonzero(~np.array(inside))
    again = learner.learn(block(X, index[left], Kind.PAIR, "test", message.signs[left]))
    assert not again.utilised.any()
    np.testing.assert_array_equal(learner.G, before)


@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_mapped_distances_are_exact_from_the_basis_and_never_too_large(kernel: str) -> None:
    learner = KernelLEGO(0.1, kernel=kernel, budget=30, y_similar=0.2, y_dissimilar=1.5)
    for message in pair_blocks(6, 5):
        learner.learn(message)
    basis = learner.basis
    others = np.random.default_rng(0).normal(size=(50, 5))
    here, there = learner.transform(basis), learner.transform(others)
    for n, point in enumerate(basis):
        wanted = learner.distance(np.repeat(point[None], 50, 0), others)
        np.testing.assert_allclose(((here[n] - there) ** 2).sum(axis=1), wanted, rtol=1e-5, atol=1e-6)
    wanted = learner.distance(others[1:], others[:-1])
    found = ((there[1:] - there[:-1]) ** 2).sum(axis=1)
    assert (found <= wanted * (1 + 1e-6) + 1e-9).all()
    # The polynomials of five features have fewer dimensions than the basis has points.
    assert (found < 0.9 * wanted).any() == (kernel == "rbf")


@pytest.mark.parametrize("kernel", KERNELS)
def test_targets_are_percentiles_of_distances_in_feature_space(kernel: str) -> None:
    draw = np.random.default_rng(1)
    X = draw.normal(size=(40, 3)).astype(np.float32)
    learner = KernelLEGO(kernel=kernel, warm_up=40, scaler="zscore")
    outcomes = learner.learn(block(X, np.arange(40).reshape(20, 2), Kind.PAIR))
    assert not outcomes.utilised.any() and (outcomes.mistake[:19] == -1).all()
    left, right = np.triu_indices(40, 1)
    wanted = np.percentile(learner.distance(X[left], X[right]), [5, 95])
    state = learner.state()
    assert [state["targets.similar"], state["targets.dissimilar"]] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_before_it_learns_distances_are_those_of_the_kernel(kernel: str) -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(size=(2, 30, 4))
    learner = KernelLEGO(kernel=kernel, bandwidth=3.0, y_similar=1e8, y_dissimilar=1e9)
    both = learner.coordinates(np.concatenate([x, y]))
    wanted = np.sum((both[:30] - both[30:]) ** 2, axis=1)
    np.testing.assert_allclose(learner.distance(x, y), wanted, rtol=1e-7)
    near = x + 1e-4 * y
    for _ in range(2):
        mapped = np.sum((learner.transform(x) - learner.transform(near)) ** 2, axis=1)
        if kernel != "polynomial" and learner.dimension is not None:
            np.testing.assert_allclose(mapped, learner.distance(x, near), rtol=1e-3)
        outcomes = learner.learn_pairs(x, y)
        assert not outcomes.utilised.any() and len(learner.basis) == 0
    warm = KernelLEGO(kernel=kernel, bandwidth=3.0, scaler="zscore", y_similar=1e-3, y_dissimilar=2e-3)
    assert warm.learn_pairs(x, y).loss.all()
    ranked = KernelLEGO(kernel=kernel, bandwidth=3.0, scaler="unit").learn_triplets(x, x + 1e-3, y)
    assert (ranked.mistake == 0).all()


def test_results_do_not_depend_on_where_blocks_end() -> None:
    one, other = (KernelLEGO(0.1, budget=30, y_similar=0.2, y_dissimilar=1.5) for _ in range(2))
    for message in (*pair_blocks(2, 6), *triplet_blocks(2, 6)):
        one.learn(message)
        for single in singles(message):
            other.learn(single)
    np.testing.assert_array_equal(one.G, other.G)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_hopeless_step_size_ends_neither_in_infinity_nor_in_silence(dtype: str, kernel: str) -> None:
    """Labels by chance, and steps that meet each target at once."""
    draw = np.random.default_rng(3)
    X = draw.normal(size=(30, 2))
    learner = KernelLEGO(1e9, kernel=kernel, budget=30, y_similar=0.1, y_dissimilar=3.0, dtype=dtype)
    for _ in range(10):
        index = np.array([draw.choice(30, 2, replace=False) for _ in range(200)])
        outcomes = learner.learn(block(X, index, Kind.PAIR, None, draw.choice([-1, 1], 200)))
        assert not outcomes.rejected.any() and outcomes.counts().utilised > 20
        assert np.isfinite(learner.G).all() and np.isfinite(learner.transform(X)).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_bad_input(kernel: str) -> None:
    fixed: dict[str, Any] = {"kernel": kernel, "y_similar": 1.0, "y_dissimilar": 2.0}
    learner = KernelLEGO(**fixed)
    x = np.array([[1.0, 2.0], [1e6, 0.0], [0.0, 1.0]])
    y = np.array([[1.0, 2.0], [1e6, 1e-8], [3.0, 0.0]])
    outcomes = learner.learn_pairs(x, y, np.array([-1, -1, 1], np.int8))
    assert outcomes.degenerate.tolist() == [True, True, False]
    assert outcomes.mistake[:2].tolist() == [1, 1] and not outcomes.utilised[:2].any()
    wide = learner.learn_pairs(np.full((1, 2), 1e200), np.zeros((1, 2)))
    if kernel != "rbf":
        assert wide.rejected[0]
    assert np.isfinite(learner.G).all()


def test_hyper_parameters_are_refused_by_name() -> None:
    for name in ("kernel", "loss", "targets", "dtype", "scaler"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            KernelLEGO(**{name: "other"})
    for name, value in (("eta", 0.0), ("bandwidth", -1.0), ("budget", 1)):
        with pytest.raises(SettingsError, match=f"{name} must be"):
            KernelLEGO(**{name: value})


def test_what_is_no_linear_map_says_so() -> None:
    learner = KernelLEGO(y_similar=0.2, y_dissimilar=1.5)
    with pytest.raises(ValueError, match="no dimension yet"):
        _ = learner.map
    learner.learn(pair_blocks(1, 5)[0])
    with pytest.raises(SettingsError, match="kernel-lego/11 with the rbf kernel is not a linear map"):
        linear_map(learner)
    with pytest.raises(ValueError, match="expected two tables of the same shape"):
        learner.distance(np.zeros((2, 5)), np.zeros((3, 5)))
    state = learner.state()
    for others in ({"dtype": "float32"}, {"budget": 4}):
        with pytest.raises(SettingsError, match="but the state to restore holds"):
            KernelLEGO(y_similar=0.2, y_dissimilar=1.5, **others).restore(state)  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(SettingsError, match="is none under this linear kernel"):
        KernelLEGO(kernel="linear", y_similar=0.2, y_dissimilar=1.5).restore(state)
    wider = KernelLEGO(y_similar=0.2, y_dissimilar=1.5, budget=300)
    wider.restore(state)
    X = pair_blocks(1, 5)[0].tables[0].vectors
    np.testing.assert_array_equal(wider.distance(X[1:], X[:-1]), learner.distance(X[1:], X[:-1]))


def test_warm_up_leaves_nothing_to_compile() -> None:
    warm_up("kernel-lego")
    before = len(kernel_lego.pairs.signatures)  # type: ignore[attr-defined]
    learner = KernelLEGO(warm_up=10)
    for message in (*pair_blocks(2, 9), *triplet_blocks(2, 9)):
        learner.learn(message)
    assert len(kernel_lego.pairs.signatures) == before  # type: ignore[attr-defined]
