"""RDML steps on mistakes alone, as far as the cone allows or back onto it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kinstream.learners.kernels.one_modality import rdml
from kinstream.streams.errors import SettingsError
from kinstream.testing.blocks import pair_blocks
from tests.learners.psd import DIMENSIONS, Setup, is_psd, psd, setups
from tests.learners.published_unit import RDML


def border(A: NDArray[np.float64], z: NDArray[np.float64]) -> tuple[float, float, float]:
    """1 / z'A+ z, the share of z that is outside the range of A, and A's condition there."""
    e, V = np.linalg.eigh(A)
    kept = e > 1e-11 * e[-1]
    w = V.T @ z
    inside = float(np.sum(w[kept] ** 2 / e[kept]))
    return 1.0 / inside, float(np.sum(w[~kept] ** 2) / (z @ z)), float(e[-1] / e[kept][0])


@settings(max_examples=120, deadline=None)
@given(setups(), st.floats(-2, 2))
def test_an_exact_step_is_the_dense_projection(setup: Setup, share: float) -> None:
    assume(abs(setup.found - 1.0) > 1e-6)
    rate = 10.0**share / (setup.z @ setup.z) ** 2
    learner = RDML(rate, psd="exact")
    outcomes = setup.learn(learner, {})
    wrong = setup.sign * (1.0 - setup.found) <= 0.0
    assert bool(outcomes.mistake[0]) == bool(outcomes.utilised[0]) == wrong
    assert outcomes.loss[0] == pytest.approx(max(0.0, setup.sign * (setup.found - 1.0)), rel=1e-9)
    change = rate * np.outer(setup.z, setup.z)
    wanted = psd(setup.A - setup.sign * change) if wrong else setup.A
    room = 1e-12 * max(np.abs(setup.A).max(), np.abs(change).max())
    np.testing.assert_allclose(learner.A, wanted, rtol=0, atol=room)


@settings(max_examples=120, deadline=None)
@given(setups(), st.floats(-2, 2), st.booleans())
def test_a_step_of_the_paper_ends_at_the_border(setup: Setup, share: float, in_range: bool) -> None:
    if in_range:
        # A z is in the range of A whatever its rank.
        z = setup.A @ setup.z
        assume(z @ setup.A @ z > 0.0)
        A = setup.A * (setup.found / (z @ setup.A @ z))
        setup = Setup(A, np.array([z, np.zeros_like(z)]), 1)
    most, outside, condition = border(setup.A, setup.z)
    assume(abs(setup.found - 1.0) > 1e-6 and abs(share) > 1e-3 and condition < 1e4)
    assume(outside < 1e-22 or outside > 1e-4)
    rate = most * 10.0**share
    learner = RDML(rate)
    outcomes = setup.learn(learner, {"null": np.zeros(len(setup.A))})
    wrong = setup.sign * (1.0 - setup.found) <= 0.0
    assert bool(outcomes.mistake[0]) == wrong
    if setup.sign > 0 and outside > 1e-4:
        assert not outcomes.utilised[0]
        assert learner.A.tobytes() == setup.A.tobytes()
        return
    step = 0.0 if not wrong else min(rate, most) if setup.sign > 0 else rate
    assert bool(outcomes.utilised[0]) == wrong
    assert bool(outcomes.clipped[0]) == (wrong and setup.sign > 0 and rate > most)
    wanted = setup.A - setup.sign * step * np.outer(setup.z, setup.z)
    room = 1e-9 * max(np.abs(setup.A).max(), np.abs(wanted).max())
    np.testing.assert_allclose(learner.A, wanted, rtol=0, atol=room)
    assert is_psd(learner.A, 1e-9, np.abs(setup.A).max())


@pytest.mark.parametrize("way", ["paper", "exact"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_stream_keeps_the_matrix_positive(d: int, dtype: str, way: str) -> None:
    for start in ("zero", "identity"):
        learner = RDML(0.3 / d**2, psd=way, start=start, dtype=dtype)
        utilised = 0
        for message in pair_blocks(1, d, messages=5, m=80):
            outcomes = learner.learn(message)
            utilised += outcomes.counts().utilised
            assert (outcomes.mistake[outcomes.utilised] == 1).all()
            assert is_psd(learner.A, 1e-10 if dtype == "float64" else 1e-4)
        assert utilised > 0


@pytest.mark.parametrize("way", ["paper", "exact"])
def test_the_trace_grows_by_the_step_on_a_dissimilar_mistake(way: str) -> None:
    learner = RDML(0.1, psd=way)
    x, y = np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])
    assert not learner.learn_pairs(x, y).mistake[0]
    assert learner.learn_pairs(x, y, np.array([-1], np.int8)).utilised[0]
    assert np.trace(learner.A) == pytest.approx(0.1 * 5.0)


def test_a_tie_is_a_mistake_on_both_sides_and_asks_for_a_step() -> None:
    x, y = np.array([[1.0, 0.0]]), np.array([[0.0, 0.0]])
    for sign in (1, -1):
        learner = RDML(0.25, start="identity")
        outcomes = learner.learn_pairs(x, y, np.array([sign], np.int8))
        assert outcomes.mistake[0] == 1 and outcomes.loss[0] == 0.0
        assert learner.A[0, 0] == 1.0 - 0.25 * sign


def test_at_the_border_the_paper_waits_for_what_the_projection_goes_on_to_learn() -> None:
    """After one step to the border A is singular, and no other direction is in its range."""
    draw = np.random.default_rng(2)
    X = 3.0 * draw.normal(size=(40, 5))
    counts = [RDML(1.0, psd=way, start="identity").learn_pairs(X, -X).counts() for way in ("paper", "exact")]
    assert counts[0].utilised == 1
    assert counts[1].utilised > 10


def test_a_null_vector_answers_as_conjugate_gradients_do() -> None:
    draw = np.random.default_rng(4)
    with_it, without = (RDML(0.5 / 36.0, start="identity") for _ in range(2))
    for _ in range(400):
        pair, sign = draw.normal(size=(2, 1, 6)), np.array([draw.choice((-1, 1))], np.int8)
        if without.dimension is not None:
            without.restore(without.state() | {"null": np.zeros(6)})
        one, other = (learner.learn_pairs(pair[0], pair[1], sign) for learner in (with_it, without))
        assert one.utilised[0] == other.utilised[0]
        assert with_it.A.tobytes() == without.A.tobytes()
    assert np.linalg.norm(with_it.state()["null"]) in (0.0, pytest.approx(1.0))


def test_conjugate_gradients_give_up_where_they_cannot_tell() -> None:
    e = np.logspace(0, -11, 40)
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))[0]
    A = np.ascontiguousarray((V * e) @ V.T)
    space = [np.empty(40) for _ in range(4)]
    assert rdml.border(A, np.ones(40), *space) in (rdml.UNKNOWN, rdml.OUTSIDE)


def test_bits_do_not_depend_on_threads() -> None:
    for way in ("paper", "exact"):
        states = []
        for threads in (1, 2, 4):
            with threadpool_limits(threads):
                learner = RDML(1e-4, psd=way)
                for message in pair_blocks(3, 100, messages=2):
                    learner.learn(message)
                states.append(learner.A.tobytes() + learner.map.tobytes())
        assert len(set(states)) == 1


@pytest.mark.parametrize("rate", [0, -1.0, float("inf"), True, "1"])
def test_hyper_parameters_are_refused_by_name(rate: Any) -> None:
    with pytest.raises(SettingsError, match="learning_rate must be"):
        RDML(rate)
    for name in ("psd", "start", "dtype"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            RDML(**{name: "other"})
