"""SOML's diagonal: soft thresholds after steps, and the minimiser of dual averaging."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, prefix_blocks, rows_of, singles, triplet_blocks
from tests.learners.published_unit import SOMLDA, SOMLTG

DIMENSIONS = st.sampled_from([1, 2, 3, 17, 64])
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 30.0, 1e3])
SEEDS = st.integers(0, 2**32)
Vector = NDArray[Any]


def soft(z: Vector, by: float) -> Vector:
    return np.asarray(np.sign(z) * np.maximum(np.abs(z) - by, 0.0))


def products(triplet: Vector) -> Vector:
    return np.asarray(triplet[0] * (triplet[1] - triplet[2]))


# ---- truncated gradient -----------------------------------------------------------------------------------------


@given(DIMENSIONS, SCALES, SEEDS, st.sampled_from([0.0, 0.3, 3.0]), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_step_is_a_soft_threshold_of_a_gradient_step(
    d: int, scale: float, seed: int, sparsity: float, always: bool, zero: bool
) -> None:
    """Relative to the size of g; without sparsity it is a plain subgradient step."""
    draw = np.random.default_rng(seed)
    eta, sparsity = 0.05 / scale**2, sparsity * scale**2
    learner = SOMLTG(eta, sparsity, always_shrink=always, start="zero" if zero else "identity")
    w: Vector = np.zeros(d) if zero else np.ones(d)
    for _ in range(12):
        triplet = scale * draw.normal(size=(3, d))
        g = products(triplet)
        loss = 1.0 - w @ g
        outcomes = learner.learn_triplets(*triplet[:, None])
        assert outcomes.loss[0] == pytest.approx(max(loss, 0.0), abs=1e-9 * (1.0 + np.abs(w * g).sum()))
        assert outcomes.mistake[0] == (loss >= 1.0)
        if loss > 0.0:
            w = soft(w + eta * g, eta * sparsity)
        elif always:
            w = soft(w, eta * sparsity)
        np.testing.assert_allclose(learner.w, w, rtol=0, atol=1e-9 * max(1.0, np.abs(w).max()))
        w = learner.w


def test_thresholds_that_wait_are_one_threshold() -> None:
    """With a closed hinge nothing is written, and `w` has all that came due; the state continues it."""
    X = np.array([[1.0, 1.0], [9.0, 9.0], [-9.0, -9.0]])
    learner = SOMLTG(0.5, 0.01, always_shrink=True)
    outcomes = learner.learn(block(X, np.tile([0, 1, 2], (30, 1))))
    assert not outcomes.utilised.any() and not outcomes.loss.any()
    np.testing.assert_allclose(learner.w, 1.0 - 30 * 0.005)
    assert learner.state()["waiting"] == 30
    np.testing.assert_allclose(learner.similarity(X[:1], X[1:2]), 18.0 * 0.85)
    np.testing.assert_allclose(learner.map, np.sqrt(0.85) * np.eye(2))
    other = SOMLTG(0.5, 0.01, always_shrink=True)
    other.restore(learner.state())
    assert other.w.tobytes() == learner.w.tobytes()
    last = block(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), np.array([[0, 1, 2]]))
    assert learner.learn(last).utilised[0]
    np.testing.assert_allclose(learner.w, [0.85 - 0.5 - 0.005, 0.85 - 0.005])
    assert learner.state()["waiting"] == 0


@given(DIMENSIONS, SCALES, SEEDS, st.sampled_from(["float64", "float32"]))
@settings(max_examples=40, deadline=None)
def test_utilised_means_other_bits_and_the_converse(d: int, scale: float, seed: int, dtype: str) -> None:
    learners = [SOMLTG(sparsity=1.0, dtype=dtype), SOMLDA(dtype=dtype)]
    for message in triplet_blocks(seed % 1000, d, messages=1, m=15, scale=scale):
        for learner, name in zip(learners, ("w", "u"), strict=True):
            learner.learn(rows_of(message, slice(0, 1)))
            for single in singles(message) * 2:
                before = np.asarray(learner.state()[name]).tobytes()
                outcomes = learner.learn(single)
                assert (np.asarray(learner.state()[name]).tobytes() != before) == bool(outcomes.utilised[0])


# ---- dual averaging ---------------------------------------------------------------------------------------------


@given(DIMENSIONS, SCALES, SEEDS, st.sampled_from([0.0, 0.3, 3.0]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_w_minimises_the_mean_of_the_linearised_losses(
    d: int, scale: float, seed: int, sparsity: float, centre: bool
) -> None:
    draw = np.random.default_rng(seed)
    kappa, sparsity = 20.0 * scale**4, sparsity * 0.1 * scale**2
    learner = SOMLDA(kappa, sparsity, centre=centre)
    start = np.ones(d) if centre else np.zeros(d)
    total = np.zeros(d)
    w: Vector = np.ones(d)
    for t in range(1, 13):
        triplet = scale * draw.normal(size=(3, d))
        g = products(triplet)
        outcomes = learner.learn_triplets(*triplet[:, None])
        loss = 1.0 - w @ g
        assert outcomes.loss[0] == pytest.approx(max(loss, 0.0), abs=1e-8 * (1.0 + np.abs(w * g).sum()))
        total -= g * (loss > 0.0)
        w = learner.w

        def objective(w: Vector, t: int = t, total: Vector = total) -> Any:
            away = w - start
            return total / t * w + sparsity * np.abs(away) + kappa / (2.0 * np.sqrt(t)) * away**2

        for step in (1e-3, -1e-3, 1.0, -1.0):
            worse = objective(w + step * np.maximum(np.abs(w), 1e-3 / scale**2)) - objective(w)
            assert (worse >= -1e-9 * (np.abs(objective(w)) + np.abs(objective(start)))).all()
    assert learner.rounds == 12


@pytest.mark.parametrize("centre", [True, False])
def test_a_feature_below_the_threshold_has_the_weight_of_the_centre(centre: bool) -> None:
    """The second feature's mean subgradient is 0.25, and that of the first 1."""
    X = np.array([[1.0, 0.25], [0.0, 0.0], [1.0, 1.0]])
    learner = SOMLDA(10.0, 0.5, centre=centre)
    for rounds in range(1, 4):
        assert learner.learn(block(X, np.array([[0, 1, 2]]))).utilised[0]
        np.testing.assert_allclose(learner.w[0], float(centre) - np.sqrt(rounds) / 10.0 * 0.5)
        assert learner.w[1] == float(centre)


def test_the_first_prediction_is_the_identity_with_and_without_centre() -> None:
    X = np.random.default_rng(0).normal(size=(3, 1, 4))
    wanted = 1.0 - products(X[:, 0]).sum()
    for centre in (True, False):
        assert SOMLDA(centre=centre).learn_triplets(*X).loss[0] == pytest.approx(max(wanted, 0.0))


# ---- both -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [SOMLTG, SOMLDA])
def test_without_a_direction_there_is_nothing_to_learn(make: Any) -> None:
    X = np.array([[0.0, 1.0], [1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [1.0 + 1e-14, 2.0], [1.0, 0.0]])
    # x+ = x-; the same to rounding; a difference only where x is zero; and one that counts.
    index = np.array([[0, 1, 2], [1, 2, 4], [0, 1, 3], [5, 1, 3]])
    learner = make()
    outcomes = learner.learn_triplets(*X[index].swapaxes(0, 1))
    assert outcomes.degenerate.tolist() == [True, True, True, False]
    assert outcomes.mistake.tolist() == [1, 1, 1, 1]
    assert outcomes.loss.tolist() == [1.0, 1.0, 1.0, 3.0]
    assert outcomes.utilised.tolist() == [False, False, False, True]


@pytest.mark.parametrize("make", [SOMLTG, SOMLDA])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_too_large_is_rejected_and_the_stream_goes_on(dtype: str, make: Any) -> None:
    top = float(np.finfo(dtype).max) ** 0.5
    X = np.array([[1.0, 1.0], [2.0 * top, 0.0], [-2.0 * top, 0.0], [0.0, 1.0], [0.0, 3.0]])
    learner = make(dtype=dtype)
    index = np.array([[1, 2, 0], [0, 3, 4]])
    outcomes = learner.learn_triplets(*X[index].swapaxes(0, 1))
    assert outcomes.rejected.tolist() == [True, False]
    assert outcomes.utilised.tolist() == [False, True]
    assert np.isfinite(learner.w).all()


@pytest.mark.parametrize("make", [SOMLTG, SOMLDA])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_where_a_block_ends_changes_no_bit(dtype: str, make: Any) -> None:
    learners = [make(sparsity=0.1, dtype=dtype) for _ in range(2)]
    for message in triplet_blocks(3, 17):
        learners[0].learn(message)
        for start, stop in ((0, 1), (1, 17), (17, 40)):
            learners[1].learn(rows_of(message, slice(start, stop)))
    assert learners[0].w.tobytes() == learners[1].w.tobytes()


@pytest.mark.parametrize("learner", [SOMLTG(1.0, 0.0), SOMLDA(0.1, 0.0)], ids=["tg", "da"])
def test_a_diagonal_is_a_bilinear_form_without_the_matrix(learner: Any) -> None:
    for message in triplet_blocks(3, 6):
        learner.learn(message)
    w = learner.w
    assert w.min() < 0.0 < w.max()
    X, Y = np.random.default_rng(1).normal(size=(2, 9, 6))
    np.testing.assert_allclose(learner.similarities(X, Y[:4]), X @ np.diag(w) @ Y[:4].T, atol=1e-9)
    np.testing.assert_array_equal(learner.W, np.diag(w))
    np.testing.assert_allclose(learner.map.T @ learner.map, np.diag(np.maximum(w, 0.0)))
    assert len(learner.map) == np.sum(w > 0.0)


def test_a_metric_without_any_feature_is_zero() -> None:
    learner = SOMLTG(start="zero")
    learner.learn(block(np.zeros((3, 4)), np.array([[0, 1, 2]])))
    assert learner.map.tolist() == [[0.0] * 4]
    assert learner.distance(np.eye(4), np.zeros((4, 4))).tolist() == [0.0] * 4


def test_a_warm_up_is_scored_by_the_first_model() -> None:
    message = triplet_blocks(3, 6)[0]
    outcomes = SOMLTG(start="zero", scaler="zscore").learn(message)
    assert (outcomes.mistake == 1).all() and (outcomes.loss == 1.0).all()
    assert (SOMLTG(scaler="zscore").learn(message).mistake == 0).any()


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_hyper_parameters_are_refused_by_name(value: Any) -> None:
    with pytest.raises(SettingsError, match="eta must be"):
        SOMLTG(value)
    with pytest.raises(SettingsError, match="kappa must be"):
        SOMLDA(value)
    if value != 0:
        for make in (SOMLTG, SOMLDA):
            with pytest.raises(SettingsError, match="sparsity must be"):
                make(sparsity=value)


def test_other_hyper_parameters_are_refused_by_name() -> None:
    makes: list[tuple[Any, str]] = [(SOMLTG, "start"), (SOMLTG, "always_shrink"), (SOMLDA, "centre")]
    for make, name in makes:
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            make(**{name: "other"})


def test_input_and_states_that_do_not_fit_are_refused() -> None:
    for make in (SOMLTG, SOMLDA):
        learner = make()
        learner.learn(triplet_blocks(1, 3)[0])
        with pytest.raises(BadRecord, match="learns from triplets, not pairs"):
            learner.learn(prefix_blocks(1, 3)[0])
        assert learner.accepts == {Kind.TRIPLET}
        with pytest.raises(SettingsError, match="dtype is float32, but the state to restore holds float64"):
            make(dtype="float32").restore(learner.state())
        with pytest.raises(ValueError, match="learn from a block first"):
            make().w  # noqa: B018
