"""ITML-Online takes the gradient step at the old metric, and never one that would leave the positive definite ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, pair_blocks
from tests.learners.published_unit import LEGO, ITMLOnline

KERNELS = ("sequential", "blocked")


@settings(max_examples=200, deadline=None)
@given(
    d=st.sampled_from((1, 2, 3, 17, 64)),
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(-4, 3),
    rate=st.floats(-6, 4),
    low=st.floats(-3, 3),
    width=st.floats(0.1, 4),
    sign=st.sampled_from((1, -1)),
    loss=st.sampled_from(("hinge", "squared")),
    kappa=st.sampled_from((0.1, 0.5, 0.9)),
)
def test_a_step_is_that_of_the_inverse_and_stays_positive_definite(
    d: int, seed: int, size: float, rate: float, low: float, width: float, sign: int, loss: str, kappa: float
) -> None:
    draw = np.random.default_rng(seed)
    G = np.eye(d) + 0.5 * draw.normal(size=(d, d)) / np.sqrt(d)
    pair = 10.0**size * draw.normal(size=(2, d))
    z = pair[0] - pair[1]
    found = float(np.sum((G @ z) ** 2))
    similar = found * 10.0**low
    targets = (similar, similar * 10.0**width)
    y = targets[0 if sign > 0 else 1]
    assume(abs(found / y - 1.0) > 1e-6)
    eta = 10.0**rate / found**2
    learner = ITMLOnline(eta, kappa=kappa, loss=loss, y_similar=targets[0], y_dissimilar=targets[1])
    learner.restore({"accepted": 0, "G": G, "steps": 0, "step_sum": 0.0})
    outcomes = learner.learn_pairs(pair[:1], pair[1:], np.array([sign], np.int8))
    if loss == "hinge" and sign * (found - y) <= 0:
        assert not outcomes.utilised[0] and learner.steps == 0
        np.testing.assert_array_equal(learner.G, G)
        return
    step = min(eta, kappa / ((y - found) * found)) if found < y else eta
    rho = 1.0 / (1.0 + step * (found - y) * found)
    assert outcomes.clipped[0] == (outcomes.utilised[0] and (step < eta or rho < 1e-12))
    after = float(np.sum((learner.G @ z) ** 2))
    if rho < 1e-11:
        return
    assert after == pytest.approx(rho * found, rel=1e-7)
    assert (after - found) * (y - found) >= -1e-9 * found * max(found, y)
    assert after <= found / (1.0 - kappa) * (1 + 1e-9)
    if outcomes.utilised[0]:
        assert learner.mean_step == pytest.approx(step)
    A, B = G.T @ G, learner.G.T @ learner.G
    assert np.linalg.eigvalsh(B)[0] >= -1e-10 * np.abs(B).max()
    if np.linalg.cond(G) < 1e3 and rho > 1e-6:
        wanted = np.linalg.inv(A) + step * (found - y) * np.outer(z, z)
        assert np.linalg.eigvalsh(wanted)[0] > 0
        inverse = np.linalg.inv(learner.G)
        np.testing.assert_allclose(inverse @ inverse.T, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_it_can_go_beyond_its_target_and_lego_does_not() -> None:
    x, y = np.array([[2.0]]), np.array([[0.0]])
    reached = []
    for kind in (ITMLOnline, LEGO):
        learner = kind(1.0, y_similar=2.0, y_dissimilar=8.0)
        learner.learn_pairs(x, y)
        reached.append(float(learner.distance(x, y)[0]))
    assert reached[0] == pytest.approx(4.0 / 9.0)
    assert 2.0 < reached[1] < 4.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_mean_step_falls_where_the_cap_rules(kernel: str) -> None:
    learner = ITMLOnline(1e3, y_similar=0.1, y_dissimilar=50.0, kernel=kernel)
    assert np.isnan(learner.mean_step)
    counts = [learner.learn(message).counts() for message in pair_blocks(5, 4)]
    assert learner.steps == sum(count.utilised for count in counts)
    assert sum(count.clipped for count in counts) > 20
    assert learner.mean_step < 500.0
    calm = ITMLOnline(1e-6, y_similar=0.1, y_dissimilar=50.0, kernel=kernel)
    calm.learn(pair_blocks(5, 4)[0])
    assert calm.mean_step == pytest.approx(1e-6)
    again = ITMLOnline(1e3, y_similar=0.1, y_dissimilar=50.0, kernel=kernel)
    again.restore(learner.state())
    assert (again.steps, again.mean_step) == (learner.steps, learner.mean_step)


@pytest.mark.parametrize(
    ("dtype", "rate", "tolerance"),
    [("float64", 1e-1, 1e-10), ("float64", 1e2, 1e-6), ("float32", 1e-1, 1e-3)],
)
@pytest.mark.parametrize("d", [1, 2, 17, 64])
def test_blocked_equals_sequential(d: int, dtype: str, rate: float, tolerance: float) -> None:
    ways = [
        ITMLOnline(rate / d**2, y_similar=0.1 * d, y_dissimilar=4.0 * d, dtype=dtype, kernel=kernel)
        for kernel in KERNELS
    ]
    for message in pair_blocks(9, d, messages=3, m=150):
        one, other = (learner.learn(message) for learner in ways)
        assert np.mean(one.mistake != other.mistake) <= 0.01
        assert np.mean(one.clipped != other.clipped) <= 0.01
        np.testing.assert_array_equal(one.degenerate, other.degenerate)
    wanted = ways[0].G
    np.testing.assert_allclose(ways[1].G, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
    assert ways[1].mean_step == pytest.approx(ways[0].mean_step, rel=100 * tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_a_hopeless_step_size_needs_no_ceiling(scale: float, dtype: str, kernel: str) -> None:
    """Every shrinking step collapses a distance, and every growing one is capped."""
    draw = np.random.default_rng(0)
    X = scale * draw.normal(size=(50, 3))
    learner = ITMLOnline(
        1e9 / scale**4, y_similar=0.1 * scale**2, y_dissimilar=10.0 * scale**2, dtype=dtype, kernel=kernel
    )
    for _ in range(10):
        index = np.array([draw.choice(50, 2, replace=False) for _ in range(300)])
        outcomes = learner.learn(block(X, index, Kind.PAIR, None, draw.choice([-1, 1], 300)))
        assert not outcomes.rejected.any() and outcomes.clipped.any()
        assert np.abs(learner.G).max() < 1e3


def test_hyper_parameters_are_refused_by_name() -> None:
    for eta in (0, -1.0, float("nan"), float("inf"), True, "1"):
        with pytest.raises(SettingsError, match="eta must be"):
            ITMLOnline(eta)
    for kappa in (0.0, 1.0, float("nan"), -0.5):
        with pytest.raises(SettingsError, match="kappa must be above 0 and below 1"):
            ITMLOnline(kappa=kappa)
    for name in ("rule", "loss", "targets", "dtype", "scaler", "kernel"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            ITMLOnline(**{name: "other"})
