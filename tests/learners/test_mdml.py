"""MDML takes mirror steps, and its eigenvectors stay orthogonal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kinstream.learners.base.learner import State
from kinstream.learners.kernels.matrices import rank_one
from kinstream.learners.kernels.one_modality import mdml
from kinstream.learners.one_modality.mdml import DIVERGENCES, LOSSES
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, pair_blocks, rows_of
from tests.learners.psd import DIMENSIONS, Setup, setups
from tests.learners.published_unit import MDML


def state_of(A: NDArray[np.float64], mu: float, pairs: int) -> State:
    """A state whose metric is A."""
    e, V = np.linalg.eigh(A)
    e = np.where(e > 1e-12 * e[-1], e, 0.0)
    return {"accepted": 0, "V": V, "e": e, "mu": mu, "pairs": pairs, "updates": 0}


def function(A: NDArray[np.float64], how: Any) -> NDArray[np.float64]:
    """A function of a positive definite matrix."""
    e, V = np.linalg.eigh((A + A.T) / 2.0)
    return np.asarray((V * how(e)) @ V.T)


@settings(max_examples=120, deadline=None)
@given(setups(), st.sampled_from(sorted(DIVERGENCES)), st.sampled_from(sorted(LOSSES)), st.floats(0, 2))
def test_a_step_is_the_gradient_step_in_the_mirror(
    setup: Setup, divergence: str, loss: str, above: float
) -> None:
    """Compared where the metric has full rank, so that its logarithm and inverse exist."""
    values = np.linalg.eigvalsh(setup.A)
    assume(values[0] > 1e-5 * values[-1])
    z, mu = setup.z, 1.0 + above
    learner = MDML(0.5 / max(float(z @ z), 1.0), 0.0, loss=loss, divergence=divergence)
    learner.restore(state_of(setup.A, mu, 3))
    margin = setup.sign * (mu - setup.found)
    assume(abs(margin) > 1e-6 and abs(margin - 1.0) > 1e-6)
    slope = {
        "hinge": float(margin < 1.0),
        "squared-hinge": max(1.0 - margin, 0.0),
        "exponential": np.exp(-margin),
        "logistic": 1.0 / (1.0 + np.exp(margin)),
    }[loss]
    # Neither the tangent of the exponential loss nor a ceiling.
    assume(slope * max(float(z @ z), 1.0) * learner.eta < 20.0)
    # A step below the rounding of the metric changes nothing.
    assume(slope == 0.0 or slope * float(z @ z) * learner.eta > 1e-12 * max(float(values[-1]), 1.0))
    outcomes = learner.learn_pairs(setup.pair[:1], setup.pair[1:], np.array([setup.sign], np.int8))
    assert bool(outcomes.mistake[0]) == (setup.found > mu if setup.sign > 0 else setup.found <= mu)
    assert bool(outcomes.utilised[0]) == (slope > 0.0)
    eta = learner.eta / np.sqrt(4.0)
    if divergence == "burg" and setup.sign < 0 and slope > 0.0:
        eta = min(eta, 0.5 / (slope * setup.found))
    step = eta * setup.sign * slope
    change = step * np.outer(z, z)
    if divergence == "frobenius":
        wanted = function(setup.A - change, lambda e: np.maximum(e, 0.0))
        threshold = mu + step
    elif divergence == "von-neumann":
        wanted = function(function(setup.A, np.log) - change, np.exp)
        threshold = mu * np.exp(step)
    else:
        wanted = np.linalg.inv(np.linalg.inv(setup.A) + change)
        threshold = 1.0 / (1.0 / mu - step) if 1.0 / mu > step else mu
    assert learner.mu == pytest.approx(max(1.0, threshold), rel=1e-12)
    # What is left of a metric after a change that is far larger has the digits of the change.
    room = 1e-9 * max(np.abs(setup.A).max(), np.abs(wanted).max()) + 1e-13 * np.abs(change).max()
    np.testing.assert_allclose(learner.A, wanted, rtol=0, atol=room)


@settings(max_examples=60, deadline=None)
@given(setups(), st.floats(0.01, 0.9), st.booleans())
def test_shrinkage_acts_on_the_eigenvalues_of_the_step(setup: Setup, share: float, soft: bool) -> None:
    plain = MDML(1e-3 / float(setup.z @ setup.z), 0.0)
    plain.restore(state_of(setup.A, 1.0, 0))
    setup_args = (setup.pair[:1], setup.pair[1:], np.array([setup.sign], np.int8))
    assume(plain.learn_pairs(*setup_args).utilised[0])
    by = share * plain.e.max()
    shrunk = MDML(plain.eta, by / plain.eta if soft else by, shrinkage="soft" if soft else "hard")
    shrunk.restore(state_of(setup.A, 1.0, 0))
    shrunk.learn_pairs(*setup_args)
    e = np.sort(plain.e)
    assume(np.abs(e - by).min() > 1e-9 * by)
    wanted = np.maximum(e - by, 0.0) if soft else np.where(e < by, 0.0, e)
    np.testing.assert_allclose(np.sort(shrunk.e), wanted, rtol=0, atol=1e-12 * e[-1])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("divergence", sorted(DIVERGENCES))
@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_stream_keeps_eigenvectors_orthogonal(d: int, divergence: str, dtype: str) -> None:
    learner = MDML(0.3, 1e-3, divergence=divergence, dtype=dtype)
    for message in pair_blocks(1, d, messages=5, m=60):
        outcomes = learner.learn(message)
        assert not outcomes.rejected.any()
        assert (learner.e >= 0.0).all() and learner.mu >= 1.0
        room = 1e-12 if dtype == "float64" else 2e-5
        np.testing.assert_allclose(learner.V.T @ learner.V, np.eye(d), rtol=0, atol=room)
    wanted = (learner.V * learner.e) @ learner.V.T
    room = (1e-12 if dtype == "float64" else 1e-5) * np.abs(wanted).max()
    np.testing.assert_allclose(learner.A, wanted, rtol=0, atol=room)
    np.testing.assert_allclose(learner.map.T @ learner.map, wanted, rtol=0, atol=room + 1e-11)


def test_products_of_many_eigenvectors_are_those_of_few() -> None:
    """The same pairs in 60 dimensions, and in 60 of which all but 20 never differ; then 60 that all do."""
    draw = np.random.default_rng(0)
    narrow = draw.normal(size=(2, 80, 20))
    wide = np.concatenate([narrow, np.ones((2, 80, 40))], axis=2)
    signs = np.where(draw.uniform(size=80) < 0.5, 1, -1).astype(np.int8)
    small, large = MDML(0.1), MDML(0.1)
    small.learn_pairs(narrow[0], narrow[1], signs)
    large.learn_pairs(wide[0], wide[1], signs)
    assert len(np.unique(large.e)) <= rank_one.SMALL
    np.testing.assert_allclose(large.A[:20, :20], small.A, rtol=0, atol=1e-12 * np.abs(small.A).max())
    other = MDML(0.1)
    other.learn_pairs(draw.normal(size=(80, 60)), draw.normal(size=(80, 60)), signs)
    assert len(np.unique(other.e)) > rank_one.SMALL


def test_unit_shrinkage_leaves_few_eigenvalues() -> None:
    ranks = []
    for rho in (0.0, 0.3):
        learner = MDML(0.3, rho)
        for message in pair_blocks(2, 17, messages=4, m=100):
            learner.learn(message)
        ranks.append(len(learner.map))
    assert ranks[1] < ranks[0]


def test_everything_can_shrink_to_nothing() -> None:
    learner = MDML(1.0, 100.0)
    X = np.random.default_rng(0).normal(size=(6, 3))
    outcomes = learner.learn_pairs(X[:3], X[3:])
    assert outcomes.utilised[0]
    assert learner.e.tolist() == [0.0] * 3
    assert learner.map.tolist() == [[0.0] * 3]
    assert learner.distance(X[:3], X[3:]).tolist() == [0.0] * 3
    for divergence in DIVERGENCES:
        other = MDML(1.0, divergence=divergence)
        other.restore(learner.state())
        assert np.isfinite(other.learn_pairs(X[:3], X[3:], np.full(3, -1, np.int8)).loss).all()
        # Only the first of the three can raise what is zero.
        assert (other.e.max() > 0.0) == (divergence == "frobenius")


def test_the_index_counts_pairs_that_teach_nothing_but_none_that_is_rejected() -> None:
    learner = MDML()
    X = np.array([[1.0, 0.0], [1.0, 0.0], [1.1, 0.0], [np.nan, 0.0]])
    outcomes = learner.learn(
        block(X, np.array([[0, 1], [0, 2], [0, 3]]), Kind.PAIR, signs=np.array([-1, 1, 1]))
    )
    assert outcomes.degenerate.tolist() == [True, False, False]
    assert outcomes.rejected.tolist() == [False, False, True]
    assert learner.state()["pairs"] == 2


def test_burg_cannot_double_a_distance_in_one_step() -> None:
    x, y = np.array([[0.9, 0.0]]), np.array([[0.0, 0.0]])
    minus = np.array([-1], np.int8)
    clipped, raw = MDML(1.0, 0.0, divergence="burg"), MDML(1.2, 0.0, divergence="burg", guard="raw")
    assert clipped.learn_pairs(x, y, minus).clipped[0]
    assert clipped.distance(x, y)[0] == pytest.approx(2.0 * 0.81)
    raw.learn_pairs(x, y, minus)
    undefined = MDML(2.0, 0.0, divergence="burg", guard="raw")
    assert undefined.learn_pairs(x, y, minus).rejected[0]
    assert undefined.state()["pairs"] == 0


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("divergence", sorted(DIVERGENCES))
def test_by_default_a_step_far_too_large_ends_neither_in_infinity_nor_in_silence(
    divergence: str, loss: str
) -> None:
    learner = MDML(10.0, 1e-3, divergence=divergence, loss=loss)
    for message in pair_blocks(4, 6, messages=10, m=50, scale=1e3):
        counts = learner.learn(message).counts()
        assert counts.rejected == 0
        assert np.isfinite(counts.loss_sum)
        assert np.isfinite(learner.map).all() and np.isfinite(learner.mu)
        assert learner.e.max() <= mdml.CEILING and learner.mu <= mdml.CEILING


def test_the_published_form_rejects_what_is_not_finite() -> None:
    learner = MDML(10.0, divergence="von-neumann", guard="raw")
    message = pair_blocks(4, 6, scale=1e3)[0]
    before = learner.learn(rows_of(message, slice(0, 0)))
    assert len(before) == 0
    outcomes = learner.learn(message)
    assert outcomes.rejected.any()
    assert np.isfinite(learner.map).all()


def test_bits_do_not_depend_on_threads() -> None:
    states = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            learner = MDML(0.1)
            for message in pair_blocks(3, 100, messages=3):
                learner.learn(message)
            states.append(b"".join(np.asarray(value).tobytes() for value in learner.state().values()))
    assert len(set(states)) == 1


def test_hyper_parameters_are_refused_by_name() -> None:
    for name in ("loss", "divergence", "shrinkage", "guard", "dtype"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            MDML(**{name: "other"})
    with pytest.raises(SettingsError, match="eta must be"):
        MDML(0.0)
    with pytest.raises(SettingsError, match="rho must be"):
        MDML(rho=-1.0)
