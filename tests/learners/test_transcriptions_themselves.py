"""The transcriptions keep the identities of their papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from tests.learners.transcriptions.fusion import Concatenated, Euclidean, Uniform
from tests.learners.transcriptions.itml_online import ITMLOnline
from tests.learners.transcriptions.lego import LEGO, KernelLEGO, factor
from tests.learners.transcriptions.mdml import MDML, loss_of
from tests.learners.transcriptions.oasis import OASIS
from tests.learners.transcriptions.omdl_lr import Nystroem, OMDLLRLike, laplacian
from tests.learners.transcriptions.omdml import LOMDML, OMDML
from tests.learners.transcriptions.omks import OMKS
from tests.learners.transcriptions.parts import psd, soft
from tests.learners.transcriptions.pola import POLA
from tests.learners.transcriptions.rdml import RDML
from tests.learners.transcriptions.soml import SOMLDA, SOMLTG
from tests.learners.transcriptions.sors import SORS, AdaSORS

DIMENSIONS = (1, 2, 3, 17)
MODALITIES = {"colour": 3, "edges": 5, "texture": 1}


def pairs(seed: int, d: int, m: int, scale: float = 1.0) -> Iterator[tuple[Any, Any, int, float]]:
    """Vectors, sign and a target near their distance."""
    draw = np.random.default_rng((seed, d))
    for _ in range(m):
        u, v = scale * draw.normal(size=(2, d))
        yield u, v, int(draw.choice([1, -1])), float(2.0 * d * scale**2 * draw.uniform(0.1, 3.0))


def triplets(seed: int, d: int, m: int, scale: float = 1.0) -> Iterator[NDArray[Any]]:
    draw = np.random.default_rng((seed, d))
    for _ in range(m):
        yield scale * draw.normal(size=(3, d))


def multi_modal(seed: int, m: int) -> Iterator[list[dict[str, Any]]]:
    """Triplets whose entries lie in [0, 1], the positive near the anchor in some modalities."""
    draw = np.random.default_rng(seed)
    for _ in range(m):
        rows: list[dict[str, Any]] = [{}, {}, {}]
        for name, n in MODALITIES.items():
            x, positive, negative = draw.uniform(size=(3, n))
            rows[0][name], rows[2][name] = x, negative
            rows[1][name] = x + draw.uniform() * (positive - x)
        yield rows


def close(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(1e-300, np.abs(wanted).max()))


@pytest.mark.parametrize("loss", ["hinge", "squared"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_lego_is_the_implicit_step_of_its_paper(d: int, loss: str) -> None:
    for eta in (1e-4, 1e-2, 1.0, 100.0):
        learner = LEGO(d, eta / d**2, loss)
        used = 0
        for u, v, sign, y in pairs(1, d, 25):
            z, G = u - v, learner.G
            A = G.T @ G
            yhat = z @ A @ z
            found = learner.pair(u, v, sign, y, 2.0 * d)
            after = learner.G.T @ learner.G
            if not found["utilised"]:
                assert loss == "hinge"
                assert np.array_equal(learner.G, G)
                continue
            used += 1
            ybar = z @ after @ z
            rate = learner.eta
            assert abs(ybar - yhat / (1.0 + rate * (ybar - y) * yhat)) <= 1e-9 * (ybar + yhat)
            assert min(yhat, y) - 1e-9 * yhat <= ybar <= max(yhat, y) * (1.0 + 1e-9)
            close(np.linalg.inv(after), np.linalg.inv(A) + rate * (ybar - y) * np.outer(z, z), 1e-7)
            rho = ybar / yhat
            close(after, A - (1.0 - rho) / yhat * np.outer(A @ z, A @ z))
            close(np.linalg.det(after), rho * np.linalg.det(A), 1e-7)
            assert np.linalg.eigvalsh(after)[0] > 0.0
            again = learner.pair(u, v, sign, y)
            assert again["loss"] <= found["loss"] * (1.0 + 1e-9)
            learner.G = LEGO(d, eta).G if np.linalg.cond(after) > 1e6 else learner.G
        assert used > 5


@pytest.mark.parametrize("seed", range(200))
def test_lego_solves_its_fixed_point(seed: int) -> None:
    draw = np.random.default_rng(seed)
    yhat, y = 10.0 ** draw.uniform(-3, 3, 2)
    eta = 10.0 ** draw.uniform(-4, 2) / (yhat + y) ** 2
    ybar = brentq(lambda t: t * (1.0 + eta * (t - y) * yhat) - yhat, 0.0, 2.0 * (yhat + y), xtol=1e-300)
    assert factor(yhat, y, eta) * yhat == pytest.approx(ybar, rel=1e-9)
    # The paper's Eq. 2.3, where it does not cancel.
    k = eta * y * yhat - 1.0
    root = np.sqrt(k**2 + 4.0 * eta * yhat**2)
    if abs(k + root) > 1e-6 * root:
        assert factor(yhat, y, eta) * yhat == pytest.approx((k + root) / (2.0 * eta * yhat), rel=1e-6)


def test_lego_minimises_divergence_plus_loss() -> None:
    d, eta = 3, 0.05
    draw = np.random.default_rng(3)
    for u, v, _, y in pairs(2, d, 10):
        learner = LEGO(d, eta, "squared")
        learner.G = draw.normal(size=(d, d)) + 2.0 * np.eye(d)
        A, z = learner.G.T @ learner.G, u - v

        def objective(M: Any, A: Any = A, z: Any = z, y: float = y) -> float:
            ratio = M @ np.linalg.inv(A)
            return float(np.trace(ratio) - np.linalg.slogdet(ratio)[1] - d + eta / 2.0 * (z @ M @ z - y) ** 2)

        learner.pair(u, v, 1, y)
        best = learner.G.T @ learner.G
        for _ in range(50):
            E = np.eye(d) + 1e-2 * draw.normal(size=(d, d))
            assert objective(best) <= objective(E @ best @ E.T) + 1e-9


def test_lego_with_infinite_and_zero_rates() -> None:
    u, v = np.array([1.0, 2.0]), np.array([0.0, 0.5])
    far, near = LEGO(2, 1e12), LEGO(2, 1e-12)
    far.pair(u, v, 1, 0.7)
    near.pair(u, v, 1, 0.7)
    assert far.distance(u, v) == pytest.approx(0.7, rel=1e-6)
    close(near.G, np.eye(2), 1e-9)


def test_lego_in_kernel_form_with_a_linear_kernel_is_the_explicit_form() -> None:
    for d in DIMENSIONS:
        explicit, kernel = LEGO(d, 0.1 / d**2), KernelLEGO(lambda p, q: float(p @ q), 0.1 / d**2)
        for u, v, sign, y in pairs(4, d, 20):
            found, wanted = kernel.pair(u, v, sign, y), explicit.pair(u, v, sign, y)
            assert found["utilised"] == wanted["utilised"]
            assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-8, abs=1e-8 * wanted["size"])
            assert kernel.distance(v, u + v) == pytest.approx(explicit.distance(v, u + v), rel=1e-8)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_itml_online_changes_the_inverse(d: int) -> None:
    learner = ITMLOnline(d, 0.3 / d**2, loss="squared")
    capped = 0
    for u, v, sign, y in pairs(5, d, 40):
        z, A = u - v, learner.G.T @ learner.G
        yhat = z @ A @ z
        found = learner.pair(u, v, sign, y)
        after = learner.G.T @ learner.G
        capped += found["clipped"]
        close(np.linalg.inv(after), np.linalg.inv(A) + learner.rate * (yhat - y) * np.outer(z, z), 1e-7)
        assert z @ after @ z <= 2.0 * yhat * (1.0 + 1e-9)
        assert (z @ after @ z - yhat) * (y - yhat) >= 0.0
        assert np.linalg.eigvalsh(after)[0] > 0.0
    assert 0 < capped < 40


def test_itml_online_can_overshoot() -> None:
    learner = ITMLOnline(1, 1.0)
    learner.pair(np.array([2.0]), np.array([0.0]), 1, 2.0)
    assert learner.distance(np.array([2.0]), np.array([0.0])) == pytest.approx(4.0 / 9.0)


def test_itml_online_is_positive_definite_exactly_below_the_bound() -> None:
    draw = np.random.default_rng(6)
    for _ in range(200):
        d = int(draw.integers(1, 6))
        B = draw.normal(size=(d, d)) + np.eye(d)
        A, z = B.T @ B + 1e-2 * np.eye(d), draw.normal(size=d)
        yhat = z @ A @ z
        y, eta = yhat * draw.uniform(0.0, 3.0), draw.uniform(0.0, 2.0) / yhat**2
        factor_of = 1.0 + eta * (yhat - y) * yhat
        moved = A - eta * (yhat - y) / factor_of * np.outer(A @ z, A @ z)
        assert (np.linalg.eigvalsh(moved)[0] > 0.0) == (factor_of > 0.0)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("cap", [None, 0.01])
def test_pola_projects_twice(d: int, cap: float | None) -> None:
    learner = POLA(d, cap)
    for u, v, sign, _ in pairs(7, d, 40):
        z, A, b = u - v, learner.A, learner.b
        found = learner.pair(u, v, sign)
        assert learner.b >= 1.0
        assert np.linalg.eigvalsh(learner.A)[0] >= -1e-10 * max(1.0, np.linalg.eigvalsh(learner.A)[-1])
        if not found["utilised"]:
            assert np.array_equal(learner.A, A)
            continue
        if cap is None:
            alpha = found["loss"] / ((z @ z) ** 2 + 1.0)
            half = A - sign * alpha * np.outer(z, z)
            assert max(0.0, sign * (z @ half @ z - (b + sign * alpha)) + 1.0) <= 1e-9 * found["size"]
            e, V = np.linalg.eigh(half)
            assert (e < -1e-10 * max(1.0, e[-1])).sum() <= (sign > 0)
            close(learner.A, half - min(e[0], 0.0) * np.outer(V[:, 0], V[:, 0]), 1e-8)


def test_pola_leaves_a_contradictory_duplicate() -> None:
    learner, x = POLA(2), np.ones(2)
    found = learner.pair(x, x, -1)
    assert found["loss"] == 2.0
    assert found["degenerate"] and not found["utilised"]
    assert learner.pair(x, x, 1)["loss"] == 0.0


@pytest.mark.parametrize("d", DIMENSIONS)
def test_rdml_steps_to_the_boundary_of_the_cone_at_most(d: int) -> None:
    boundary = 0
    for rate in (0.02, 0.3):
        learner = RDML(d, rate / d, start="identity")
        for u, v, sign, _ in pairs(8, d, 30):
            z, A = u - v, learner.A
            found = learner.pair(u, v, sign)
            assert found["utilised"] <= bool(found["mistake"])
            assert np.linalg.eigvalsh(learner.A)[0] >= -1e-9
            if sign < 0 and found["utilised"]:
                assert np.trace(learner.A) - np.trace(A) == pytest.approx(learner.learning_rate * (z @ z))
            if found["clipped"] and found["utilised"]:
                boundary += 1
                e = np.linalg.eigvalsh(A)
                if e[0] > 1e-3:
                    step = 1.0 / (z @ np.linalg.inv(A) @ z)
                    assert abs(np.linalg.eigvalsh(A - step * np.outer(z, z))[0]) <= 1e-9 * e[-1]
                    assert np.linalg.eigvalsh(A - 1.01 * step * np.outer(z, z))[0] < 0.0
                    close(learner.A + step * np.outer(z, z), A)
    assert boundary


def test_rdml_outside_the_range_does_not_move() -> None:
    learner = RDML(2, 0.1)
    learner.A = np.diag([4.0, 0.0])
    found = learner.pair(np.array([1.0, 0.5]), np.zeros(2), 1)
    assert found["mistake"] and not found["utilised"]
    assert RDML(2, 0.1).pair(np.ones(2), np.zeros(2), 1)["mistake"] is False
    exact = RDML(2, 0.1, psd="exact")
    exact.A = np.diag([4.0, 0.0])
    assert exact.pair(np.array([1.0, 0.5]), np.zeros(2), 1)["utilised"]
    assert np.linalg.eigvalsh(exact.A)[0] >= -1e-15


def test_rdml_without_a_boundary_is_the_exact_projection() -> None:
    one, other = RDML(3, 1e-3, start="identity"), RDML(3, 1e-3, psd="exact", start="identity")
    for u, v, sign, _ in pairs(9, 3, 100):
        one.pair(u, v, sign)
        other.pair(u, v, sign)
    close(one.A, other.A)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "exponential", "logistic"])
def test_mdml_slopes_by_finite_differences(loss: str) -> None:
    for margin in (-3.0, -0.4, 0.3, 0.9, 1.2, 4.0):
        h = 1e-6
        slope = (loss_of(loss, margin + h)[0] - loss_of(loss, margin - h)[0]) / (2.0 * h)
        assert loss_of(loss, margin)[1] == pytest.approx(-slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("shrinkage", ["soft", "hard"])
@pytest.mark.parametrize("divergence", ["frobenius", "von-neumann", "burg"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "exponential", "logistic"])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_mdml_keeps_an_eigendecomposition(d: int, loss: str, divergence: str, shrinkage: str) -> None:
    learner = MDML(d, 0.02 / d, 1e-2, loss, divergence, shrinkage)
    for u, v, sign, _ in pairs(10, d, 30, 0.5):
        learner.pair(u, v, sign)
        close(learner.V.T @ learner.V, np.eye(d), 1e-9)
        assert (learner.e >= 0.0).all()
        assert learner.mu >= 1.0


@pytest.mark.parametrize("divergence", ["frobenius", "von-neumann", "burg"])
def test_mdml_steps_in_the_dual_of_its_divergence(divergence: str) -> None:
    d, used = 3, 0
    dual: Callable[[Any], Any] = {
        "frobenius": lambda M: np.asarray(M),
        "von-neumann": lambda M: _function_of(M, np.log),
        "burg": lambda M: -np.linalg.inv(M),
    }[divergence]
    learner = MDML(d, 0.05, 0.0, "logistic", divergence)
    for u, v, sign, _ in pairs(11, d, 30, 0.5):
        z, M, mu = u - v, learner.M, learner.mu
        a = sign * loss_of("logistic", sign * (mu - z @ M @ z))[1]
        found = learner.pair(u, v, sign)
        rate = 0.05 / np.sqrt(learner.t)
        if found["clipped"] or (learner.e <= 1e-9).any():
            continue
        used += 1
        close(dual(learner.M), dual(M) - rate * a * np.outer(z, z), 1e-8)
        # Minus the gradient: a similar pair comes closer.
        assert sign * (z @ learner.M @ z - z @ M @ z) <= 1e-12
    assert used > 5


def _function_of(M: NDArray[Any], function: Any) -> NDArray[Any]:
    e, V = np.linalg.eigh(M)
    return np.asarray((V * function(e)) @ V.T)


def test_soft_shrinkage_is_the_prox_of_the_trace_norm_on_the_cone() -> None:
    draw = np.random.default_rng(12)
    for _ in range(20):
        B = draw.normal(size=(3, 3))
        M, rho = B + B.T, 0.4

        def objective(P: Any, M: Any = M, rho: float = rho) -> float:
            return float(0.5 * ((P - M) ** 2).sum() + rho * np.trace(P))

        best = _function_of(M - rho * np.eye(3), lambda e: np.maximum(e, 0.0))
        for _ in range(100):
            E = 0.1 * draw.normal(size=(3, 3))
            assert objective(best) <= objective(psd(best + E + E.T)) + 1e-12


@pytest.mark.parametrize("d", DIMENSIONS)
def test_oasis_lowers_the_loss_by_tau_times_the_squared_norm(d: int) -> None:
    capped, free = OASIS(d, 0.01), OASIS(d, 1e9)
    for x, positive, negative in triplets(13, d, 30):
        v = positive - negative
        for learner in (capped, free):
            found = learner.triplet(x, positive, negative)
            tau = min(learner.aggressiveness, found["loss"] / ((x @ x) * (v @ v)))
            after = 1.0 - x @ learner.W @ v
            if found["utilised"]:
                wanted = found["loss"] - tau * (np.outer(x, v) ** 2).sum()
                assert after == pytest.approx(wanted, abs=1e-9 * found["size"])
        assert max(0.0, 1.0 - x @ free.W @ v) <= 1e-9 * found["size"]


def test_soml_tg_is_a_soft_threshold_and_without_sparsity_a_gradient_step() -> None:
    for x, positive, negative in triplets(14, 5, 50):
        plain, sparse = SOMLTG(5, 0.1, 0.0), SOMLTG(5, 0.1, 0.7)
        g = x * (positive - negative)
        found = plain.triplet(x, positive, negative)
        sparse.triplet(x, positive, negative)
        step = 0.1 * g if found["utilised"] else 0.0
        close(plain.w, np.ones(5) + step, 1e-12)
        close(sparse.w, soft(plain.w, 0.07) if found["utilised"] else plain.w, 1e-12)
        always = SOMLTG(5, 0.1, 0.7, always_shrink=True)
        always.triplet(x, positive, negative)
        close(always.w, soft(plain.w, 0.07), 1e-12)
    assert not SOMLTG(5, 0.1, 0.7, start="zero").w.any()


def test_soml_da_minimises_its_averaged_objective() -> None:
    learner, centred = SOMLDA(3, 2.0, 0.2), SOMLDA(3, 2.0, 0.2, centre=True)
    grid = np.linspace(-8.0, 8.0, 160001)
    for x, positive, negative in triplets(15, 3, 12):
        learner.triplet(x, positive, negative)
        centred.triplet(x, positive, negative)
        for mean, w in zip(learner.u / learner.t, learner.w, strict=True):
            objective = mean * grid + 0.2 * abs(grid) + 2.0 / (2.0 * np.sqrt(learner.t)) * grid**2
            assert abs(w) > 7.9 or grid[objective.argmin()] == pytest.approx(w, abs=2e-4)
    assert SOMLDA(3, 2.0, 0.2).w.tolist() == [1.0, 1.0, 1.0]
    centred.u, centred.t = np.zeros(3), 0
    centred.triplet(np.zeros(3), np.zeros(3), np.zeros(3))
    assert centred.w.tolist() == [1.0, 1.0, 1.0]


def test_sors_without_sparsity_is_a_subgradient_step_on_the_loss_of_oasis() -> None:
    learner = SORS(4, 0.05, 0.0)
    for x, positive, negative in triplets(16, 4, 30):
        before = learner.W
        found = learner.triplet(x, positive, negative)
        step = 0.05 * np.outer(x, positive - negative) if found["loss"] > 0.0 else 0.0
        close(learner.W, before + step, 1e-12)


def test_sors_leaves_its_diagonal_and_shrinks_the_rest() -> None:
    for learner in (SORS(3, 0.1, 0.3), AdaSORS(3, 0.1, 0.3)):
        x, far = np.array([10.0, 0.0, 0.0]), np.array([-10.0, 0.0, 0.0])
        learner.W = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.01], [0.0, 0.0, 1.0]])
        if isinstance(learner, AdaSORS):
            learner.H = np.full((3, 3), 1.0)
        found = learner.triplet(x, x, far)
        assert not found["utilised"]
        close(learner.W, [[1.0, 0.47, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 1e-6)


def test_adasors_takes_the_steps_of_adagrad() -> None:
    learner = AdaSORS(3, 0.2, 0.0, delta=1e-3)
    W, squares = np.eye(3), np.zeros((3, 3))
    for x, positive, negative in triplets(17, 3, 30):
        if 1.0 - x @ W @ (positive - negative) > 0.0:
            gradient = -np.outer(x, positive - negative)
            squares += gradient**2
            W = W - 0.2 * gradient / (1e-3 + np.sqrt(squares))
        learner.triplet(x, positive, negative)
    close(learner.W, W)


@pytest.mark.parametrize("margin", [0.0, 0.1, 1.0])
def test_omdml_keeps_the_simplex_and_the_cone_and_lowers_every_own_loss(margin: float) -> None:
    learner = OMDML(MODALITIES, 0.9, 0.3, margin)
    closed = 0
    for x, positive, negative in multi_modal(18, 200):
        before = learner.state()
        found = learner.triplet(x, positive, negative)
        assert learner.theta.sum() == pytest.approx(1.0)
        assert (learner.theta >= 0.0).all()
        for name, M in learner.matrices.items():
            a, b = x[name] - positive[name], x[name] - negative[name]
            V = np.outer(a, a) - np.outer(b, b)
            norm = (a @ a) ** 2 + (b @ b) ** 2 - 2.0 * (a @ b) ** 2
            assert (V**2).sum() == pytest.approx(norm, rel=1e-9, abs=1e-14)
            assert np.linalg.eigvalsh(M)[0] >= -1e-10
            old = before[f"M.{name}"]
            loss = [max(0.0, a @ m @ a - b @ m @ b + 1.0) for m in (old, M)]
            assert loss[1] <= loss[0] + 1e-9
            if found["utilised"] and loss[0] > 0.0:
                unprojected = old - min(0.3, loss[0] / max(norm, 1e-300)) * V
                assert (np.linalg.eigvalsh(unprojected) < -1e-10).sum() <= 1
        if found["loss"] == 0.0:
            closed += 1
            assert not found["utilised"]
            for name, value in learner.state().items():
                assert np.array_equal(value, before[name])
    assert closed or margin == 1.0


def test_one_modality_has_the_constant_weight() -> None:
    for learner in (OMDML({"colour": 3}, 0.5, 0.1, 0.1), LOMDML({"colour": np.eye(3)}, 0.01, 0.5, 0.1)):
        for x, positive, negative in multi_modal(19, 50):
            learner.triplet(x, positive, negative)
            assert learner.theta.tolist() == [1.0]


def test_omdml_projects_every_so_often() -> None:
    learner = OMDML({"colour": 3}, 0.5, 10.0, 1.0, psd_every=5)
    least = []
    for x, positive, negative in multi_modal(20, 60):
        learner.triplet(x, negative, positive)
        least.append(np.linalg.eigvalsh(learner.matrices["colour"])[0])
        assert learner.steps["colour"] % 5 or least[-1] >= -1e-10
    assert min(least) < -1e-6


@pytest.mark.parametrize("own_hinge", [True, False])
def test_lomdml_follows_the_gradient_of_its_own_loss(own_hinge: bool) -> None:
    draw = np.random.default_rng(21)
    start = {name: draw.normal(size=(min(2, n), n)) for name, n in MODALITIES.items()}
    learner = LOMDML(start, 1e-3, 0.9, 10.0, own_hinge)
    for x, positive, negative in multi_modal(22, 20):
        before = {name: W.copy() for name, W in learner.matrices.items()}
        found = learner.triplet(x, positive, negative)
        assert not found["clipped"]
        for name, W in before.items():
            a, b = x[name] - positive[name], x[name] - negative[name]

            def value(W: Any, a: Any = a, b: Any = b) -> float:
                return float((W @ a) @ (W @ a) - (W @ b) @ (W @ b))

            gradient = np.empty_like(W)
            for entry in np.ndindex(W.shape):
                h = np.zeros_like(W)
                h[entry] = 1e-6
                gradient[entry] = (value(W + h) - value(W - h)) / 2e-6
            active = not own_hinge or value(W) + 1.0 > 0.0
            wanted = W - 1e-3 * gradient if active else W
            close(learner.matrices[name], wanted, 1e-8)


def test_lomdml_descends_under_its_clip() -> None:
    draw, clipped = np.random.default_rng(23), 0
    for x, positive, negative in multi_modal(24, 100):
        start = {name: draw.normal(size=(n, n)) for name, n in MODALITIES.items()}
        learner = LOMDML(start, 1e9, 0.9, 1e6, own_hinge=False)
        clipped += learner.triplet(x, positive, negative)["clipped"]
        for name, W in start.items():
            a, b = x[name] - positive[name], x[name] - negative[name]
            values = [float((m @ a) @ (m @ a) - (m @ b) @ (m @ b)) for m in (W, learner.matrices[name])]
            assert values[1] <= values[0] + 1e-9 * (b @ b)
    assert clipped == 100


def test_euclidean_distance_is_the_same_concatenated_and_added() -> None:
    for x, positive, negative in multi_modal(25, 20):
        one, other = Concatenated(MODALITIES, Euclidean), Uniform(MODALITIES, Euclidean)
        assert one.distance(x, positive) == pytest.approx(other.distance(x, positive))
        assert other.mistake(x, positive, negative) == (
            one.distance(x, positive) >= one.distance(x, negative)
        )


def test_omks_with_a_linear_kernel_is_oasis() -> None:
    kernel, explicit = OMKS([lambda p, q: float(p @ q)], 0.9, 0.1), OASIS(4, 0.1)
    for x, positive, negative in triplets(26, 4, 30):
        found, wanted = kernel.triplet(x, positive, negative), explicit.triplet(x, positive, negative)
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-9 * wanted["size"])
        assert found["mistake"] == wanted["mistake"]
        assert kernel.similarity(x, negative) == pytest.approx(x @ explicit.W @ negative)
    assert kernel.theta.tolist() == [1.0]
    small = OMKS([lambda p, q: float(p @ q)], 0.9, 0.1, budget=3)
    for row in triplets(26, 4, 30):
        small.triplet(*row)
    assert len(small.support) == 3


def test_omdl_lr_like_is_omdml_on_embeddings_that_reproduce_the_kernel() -> None:
    draw = np.random.default_rng(27)
    landmarks = {name: draw.uniform(size=(8, n)) for name, n in MODALITIES.items() if n > 1}
    full = Nystroem(landmarks["edges"], 8)
    E = full(landmarks["edges"])
    squared = ((landmarks["edges"][:, None] - landmarks["edges"]) ** 2).sum(axis=2)
    close(E @ E.T, np.exp(-squared / (2.0 * full.bandwidth**2)))
    graph = laplacian(landmarks["edges"], 3)
    assert np.linalg.eigvalsh(graph)[0] >= -1e-12
    assert abs(graph.sum(axis=0)).max() <= 1e-12
    plain = OMDLLRLike(landmarks, landmarks, 4, 3, 0.9, 0.1, 0.0, 0.1, 0.1)
    smooth = OMDLLRLike(landmarks, landmarks, 4, 3, 0.9, 0.1, 0.5, 0.1, 0.1)
    omdml = OMDML({name: 4 for name in landmarks}, 0.9, 0.1, 0.1)
    for rows in multi_modal(28, 20):
        plain.triplet(*rows)
        smooth.triplet(*rows)
        omdml.triplet(*({n: e(row[n][None])[0] for n, e in plain.embeddings.items()} for row in rows))
    for name, M in omdml.matrices.items():
        close(plain.learner.matrices[name], M)
        G = smooth.smoothing[name]
        assert (smooth.learner.matrices[name] * G).sum() < (M * G).sum()
