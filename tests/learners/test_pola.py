"""POLA makes its two projections, at all scales and in small dimensions too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from kinstream.learners.models.export import linear_map
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, pair_blocks, triplet_blocks
from tests.learners.psd import DIMENSIONS, Setup, is_psd, psd, setups
from tests.learners.published_unit import POLA


@settings(max_examples=120, deadline=None)
@given(setups(), st.floats(0, 2))
def test_a_step_is_the_two_projections(setup: Setup, above: float) -> None:
    b = 1.0 + above
    loss = max(0.0, setup.sign * (setup.found - b) + 1.0)
    assume(abs(loss) > 1e-6 and abs(setup.found / b - 1.0) > 1e-6)
    learner = POLA()
    outcomes = setup.learn(learner, {"b": b})
    assert outcomes.loss[0] == pytest.approx(loss, rel=1e-9)
    assert bool(outcomes.mistake[0]) == (setup.found > b if setup.sign > 0 else setup.found <= b)
    changed = learner.A.tobytes() != setup.A.tobytes() or learner.b != b
    assert bool(outcomes.utilised[0]) == changed
    alpha = loss / ((setup.z @ setup.z) ** 2 + 1.0)
    moved = setup.A - setup.sign * alpha * np.outer(setup.z, setup.z)
    # Without loss where the first projection ends; the second one is the dense one.
    assert setup.sign * (setup.z @ moved @ setup.z - (b + setup.sign * alpha)) + 1.0 <= 1e-9 * (1.0 + loss)
    wanted = psd(moved) if setup.sign > 0 else moved
    np.testing.assert_allclose(learner.A, wanted, rtol=0, atol=1e-12 * max(np.abs(setup.A).max(), alpha))
    assert learner.b == pytest.approx(max(1.0, b + setup.sign * alpha), rel=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_stream_keeps_the_matrix_positive_and_the_threshold_at_one(
    d: int, scale: float, dtype: str
) -> None:
    learner = POLA(dtype=dtype)
    for message in pair_blocks(1, d, messages=5, m=60, scale=scale):
        outcomes = learner.learn(message)
        assert not outcomes.rejected.any()
        assert learner.b >= 1.0
        assert is_psd(learner.A, 1e-10 if dtype == "float64" else 1e-5)
    assert learner.A.dtype == learner.map.dtype == np.dtype(dtype)


def test_before_a_dissimilar_pair_everything_is_in_one_place() -> None:
    X = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 0.0]])
    learner = POLA()
    assert learner.transform(X).tolist() == [[0.0]] * 3
    assert learner.distance(X, X[::-1]).tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="no dimension yet"):
        _ = learner.A
    outcomes = learner.learn_pairs(X[:1], X[1:2])
    assert (outcomes.mistake[0], outcomes.loss[0], outcomes.utilised[0]) == (0, 0.0, False)
    assert learner.map.tolist() == [[0.0, 0.0]]
    assert learner.transform(X).shape == (3, 1)
    assert learner.distance(X, X[::-1]).tolist() == [0.0] * 3
    matrix, offset, _ = linear_map(learner)
    assert matrix.shape == (1, 2) and offset.shape == (1,)
    outcomes = learner.learn_pairs(X[:1], X[1:2], np.array([-1], np.int8))
    assert (outcomes.mistake[0], outcomes.loss[0], outcomes.utilised[0]) == (1, 2.0, True)
    assert learner.map.shape == (1, 2)


def test_the_map_follows_every_change() -> None:
    learner, X = POLA(), np.random.default_rng(0).normal(size=(30, 4))
    for t in range(0, 28, 2):
        learner.learn_pairs(X[t : t + 1], X[t + 1 : t + 2], np.array([(-1) ** t], np.int8))
        root = learner.map
        np.testing.assert_allclose(root.T @ root, learner.A, rtol=0, atol=1e-10 * np.abs(learner.A).max())
        root[:] = np.nan
        assert np.isfinite(learner.map).all()


def test_a_contradiction_teaches_nothing() -> None:
    """Equal vectors that are said to differ: the loss is there, and no direction."""
    learner = POLA()
    x = np.array([[1.0, 1e3]])
    outcomes = learner.learn_pairs(
        np.repeat(x, 2, 0), x + np.array([[0.0, 0.0], [1e-11, 0.0]]), np.array([-1, 1], np.int8)
    )
    assert outcomes.degenerate.tolist() == [True, True]
    assert outcomes.loss.tolist() == [2.0, 0.0]
    assert outcomes.mistake.tolist() == [1, 0]
    assert not outcomes.utilised.any()
    assert learner.b == 1.0


def test_the_cap_shortens_steps_and_counts_them() -> None:
    x, y = np.array([[2.0]]), np.array([[0.0]])
    minus = np.array([-1], np.int8)
    free, capped = POLA(), POLA(cap=0.1)
    assert not free.learn_pairs(x, y, minus).clipped[0]
    assert capped.learn_pairs(x, y, minus).clipped[0]
    assert free.A[0, 0] == pytest.approx(4.0 * 2.0 / 17.0)
    assert capped.A[0, 0] == pytest.approx(4.0 * 0.1)


def test_the_mistake_of_a_triplet_is_its_ranking_before_both_steps() -> None:
    for message in triplet_blocks(3, 5):
        learner = POLA()
        learner.learn(triplet_blocks(4, 5)[0])
        X = message.tables[0].vectors.astype(float)
        for a, p, n in message.index:
            near, far = learner.distance(X[[a, a]], X[[p, n]])
            outcomes = learner.learn_triplets(X[[a]], X[[p]], X[[n]])
            if abs(near - far) > 1e-9 * far or near == far == 0.0:
                assert bool(outcomes.mistake[0]) == (near >= far)


def test_an_overflow_is_rejected_and_leaves_the_matrix() -> None:
    learner = POLA(dtype="float32")
    X = np.array([[1.0, 0.0], [0.0, 1.0], [3e38, 0.0], [-3e38, 0.0], [3e38, 3e38]])
    outcomes = learner.learn(
        block(X, np.array([[0, 1], [2, 3], [0, 4], [1, 0]]), Kind.PAIR, signs=np.full(4, -1))
    )
    assert outcomes.rejected[1]
    assert np.isfinite(learner.A).all()
    assert outcomes.utilised[[0, 3]].all()


def test_bits_do_not_depend_on_threads() -> None:
    states = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            learner = POLA()
            for message in pair_blocks(3, 130, messages=2):
                learner.learn(message)
            states.append(learner.A.tobytes() + learner.map.tobytes())
    assert len(set(states)) == 1


@pytest.mark.parametrize("cap", [0, -1.0, float("nan"), True, "1"])
def test_a_cap_out_of_range_is_refused_by_name(cap: Any) -> None:
    with pytest.raises(SettingsError, match="cap must be"):
        POLA(cap)


def test_a_state_of_another_type_is_refused() -> None:
    learner = POLA(dtype="float32")
    learner.learn(pair_blocks(1, 3)[0])
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        POLA().restore(learner.state())
