"""LEGO takes the exact LogDet step, at all scales and in small dimensions too, and both ways of computing it agree."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from kinstream.learners.base.learner import Outcomes
from kinstream.learners.kernels.one_modality import lego, lego_blocks
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, pair_blocks, rows_of, singles, triplet_blocks
from tests.docs.pages import ROOT
from tests.learners.published_unit import LEGO

KERNELS = ("sequential", "blocked")
DIMENSIONS = (1, 2, 3, 17, 64)


class Setup(NamedTuple):
    """A map G (d, d), a pair (x, y) of difference z, and a learner's settings that fit their scale.

    `eta` is in units of the pair's 1 / squared distance^2, y_S and y_D in units of its distance.
    """

    G: NDArray[np.float64]
    pair: NDArray[np.float64]
    sign: int
    eta: float
    targets: tuple[float, float]

    @property
    def z(self) -> NDArray[np.float64]:
        return np.asarray(self.pair[0] - self.pair[1])

    @property
    def found(self) -> float:
        return float(np.sum((self.G @ self.z) ** 2))

    @property
    def target(self) -> float:
        return self.targets[0 if self.sign > 0 else 1]

    def learner(self, **others: Any) -> LEGO:
        learner = LEGO(self.eta, y_similar=self.targets[0], y_dissimilar=self.targets[1], **others)
        learner.restore({"accepted": 0, "G": self.G.astype(learner.dtype)})
        return learner

    def learn(self, learner: LEGO) -> Outcomes:
        return learner.learn_pairs(self.pair[:1], self.pair[1:], np.array([self.sign], np.int8))


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    d = draw(st.sampled_from(DIMENSIONS))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(st.floats(-4, 3))
    G = (np.eye(d) + random.normal(size=(d, d)) / np.sqrt(d)) * 10.0 ** draw(st.floats(-1, 1))
    pair = scale * random.normal(size=(2, d))
    found = float(np.sum((G @ (pair[0] - pair[1])) ** 2))
    low = found * 10.0 ** draw(st.floats(-3, 3))
    targets = (low, low * 10.0 ** draw(st.floats(0.1, 4)))
    assume(min(abs(found / target - 1.0) for target in (*targets, sum(targets) / 2.0)) > 1e-6)
    sign = draw(st.sampled_from((1, -1)))
    return Setup(G, pair, sign, 10.0 ** draw(st.floats(-6, 4)) / found**2, targets)


@settings(max_examples=150, deadline=None)
@given(setups(), st.sampled_from(("hinge", "squared")))
def test_a_step_is_the_fixed_point_of_the_paper(setup: Setup, loss: str) -> None:
    learner = setup.learner(loss=loss)
    found, y, z, eta = setup.found, setup.target, setup.z, setup.eta
    gap = found - y
    outcomes = setup.learn(learner)
    violated = setup.sign * gap > 0
    threshold = sum(setup.targets) / 2
    assert outcomes.mistake[0] == (found > threshold if setup.sign > 0 else found <= threshold)
    assert not outcomes.rejected[0] and not outcomes.degenerate[0]
    if loss == "hinge" and not violated:
        assert outcomes.loss[0] == 0.0 and not outcomes.utilised[0]
        np.testing.assert_array_equal(learner.G, setup.G)
        return
    assert outcomes.loss[0] == pytest.approx(0.5 * gap**2, rel=1e-9)
    assert outcomes.utilised[0] == (learner.G != setup.G).any()
    after = float(np.sum((learner.G @ z) ** 2))
    # Between both, so that the loss on this pair falls; and the root of the quadratic equation.
    slack = 1e-9 * max(found, y)
    assert min(found, y) - slack <= after <= max(found, y) + slack
    assert 0.5 * (after - y) ** 2 <= outcomes.loss[0] * (1 + 1e-9) + slack**2
    terms = np.array([eta * found * after**2, (1 - eta * y * found) * after, -found])
    assert abs(terms.sum()) <= 1e-8 * np.abs(terms).max()


@settings(max_examples=100, deadline=None)
@given(setups())
def test_a_step_is_that_of_the_metric_and_of_its_inverse(setup: Setup) -> None:
    learner = setup.learner(loss="squared")
    setup.learn(learner)
    A, B, z = setup.G.T @ setup.G, learner.G.T @ learner.G, setup.z
    found, after = setup.found, float(z @ B @ z)
    rho = after / found
    g = A @ z
    np.testing.assert_allclose(
        B, A - (1 - rho) / found * np.outer(g, g), rtol=0, atol=1e-9 * max(np.abs(A).max(), np.abs(B).max())
    )
    assert np.linalg.eigvalsh(B)[0] >= -1e-10 * np.abs(B).max()
    if np.linalg.cond(A) < 1e6 and 1e-6 < rho < 1e6:
        root = np.linalg.inv(setup.G)
        inverse = root @ root.T
        wanted = inverse + setup.eta * (after - setup.target) * np.outer(z, z)
        other = np.linalg.inv(learner.G)
        found_inverse = other @ other.T
        size = max(np.abs(inverse).max(), np.abs(wanted).max())
        np.testing.assert_allclose(found_inverse, wanted, rtol=0, atol=1e-6 * size)
        ratio = np.linalg.slogdet(learner.G)[1] - np.linalg.slogdet(setup.G)[1]
        assert ratio == pytest.approx(0.5 * np.log(rho), abs=1e-7)


@settings(max_examples=50, deadline=None)
@given(setups())
def test_an_eta_that_vanishes_changes_nothing(setup: Setup) -> None:
    small = setup._replace(eta=1e-14 / setup.found / max(setup.found, setup.target))
    learner = small.learner(loss="squared")
    small.learn(learner)
    np.testing.assert_allclose(learner.G, setup.G, rtol=0, atol=1e-12 * np.abs(setup.G).max())


def test_a_step_keeps_its_digits_where_it_is_small() -> None:
    """(sqrt(rho) - 1) / d from d(1 - eta (d - y) d) to first order, at a size that a difference from 1 would lose."""
    for eta in (1e-9, 1e-12, 1e-15):
        alpha, taken, clipped = lego.step_size(lego.EXACT, eta, 0.0, 2.0, 1.0)
        assert alpha == pytest.approx(-0.5 * eta * (1.0 - 0.5 * eta), rel=5 * eta + 1e-15)
        assert taken == eta and not clipped


@pytest.mark.parametrize("kernel", KERNELS)
def test_triplets_are_two_pairs_and_their_mistake_is_the_ranking(kernel: str) -> None:
    draw = np.random.default_rng(3)
    X = draw.normal(size=(40, 5)).astype(np.float32)
    index = np.array([draw.choice(40, 3, replace=False) for _ in range(64)])
    index[7, 1] = index[7, 0]
    message = block(X, index)
    learner = LEGO(1e-2, y_similar=2.0, y_dissimilar=20.0, kernel=kernel)
    other = LEGO(1e-2, y_similar=2.0, y_dissimilar=20.0, kernel="sequential")
    outcomes = learner.learn(message)
    for t, (x, near, far) in enumerate(index):
        if t:
            first = other.distance(X[[x, x]], X[[near, far]])
            assert outcomes.mistake[t] == (first[0] >= first[1])
        pairs = other.learn(block(X, np.array([[x, near], [x, far]]), Kind.PAIR, signs=np.array([1, -1])))
        assert outcomes.loss[t] == pytest.approx(pairs.loss.sum(), rel=1e-9)
        assert outcomes.utilised[t] == pairs.utilised.any()
        assert outcomes.degenerate[t] == (pairs.degenerate.any() and not pairs.utilised.any())
    np.testing.assert_allclose(learner.G, other.G, rtol=0, atol=1e-10)
    with pytest.raises(BadRecord, match="has no target for each constraint"):
        LEGO(targets="block", kernel=kernel).learn(message)


@pytest.mark.parametrize("kernel", KERNELS)
def test_targets_of_the_block_are_followed_and_bad_ones_rejected(kernel: str) -> None:
    X = np.array([[0.0], [2.0]])
    targets = np.array([1.0, np.nan, -1.0, 9.0, 0.0] * 8)
    signs = np.array([1, 1, 1, -1, 1] * 8)
    learner = LEGO(1e6, targets="block", kernel=kernel)
    outcomes = learner.learn(block(X, np.tile([0, 1], (40, 1)), Kind.PAIR, None, signs, targets))
    assert outcomes.rejected.tolist() == [False, True, True, False, False] * 8
    # The first threshold is known with the first dissimilar pair; such a step size meets every target but zero.
    assert outcomes.mistake[:5].tolist() == [-1, -1, -1, 1, 1]
    assert outcomes.loss[3] == pytest.approx(0.5 * 8.0**2, rel=1e-3)
    assert outcomes.loss[4] == pytest.approx(0.5 * 9.0**2, rel=1e-3)
    assert np.isfinite(learner.G).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rho_is_held_and_counted_as_clipped(dtype: str, kernel: str) -> None:
    X = np.array([[0.0, 0.0], [1e-5, 0.0]])
    learner = LEGO(1e30, y_similar=1e-9, y_dissimilar=1e9, dtype=dtype, kernel=kernel)
    outcomes = learner.learn(block(X, np.tile([0, 1], (16, 1)), Kind.PAIR, None, np.full(16, -1)))
    assert outcomes.clipped.tolist() == [True] + [False] * 15
    assert outcomes.utilised[0]
    assert learner.distance(X[:1], X[1:])[0] == pytest.approx(1e9, rel=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_hopeless_step_size_needs_no_ceiling(d: int, scale: float, dtype: str, kernel: str) -> None:
    """Labels by chance, so that targets contradict each other, and steps that meet each of them at once."""
    draw = np.random.default_rng(d)
    X = scale * draw.normal(size=(50, d)) * np.exp(draw.normal(size=(50, 1)))
    learner = LEGO(
        1e9 / scale**4, y_similar=0.1 * scale**2, y_dissimilar=10.0 * scale**2, dtype=dtype, kernel=kernel
    )
    largest = []
    for _ in range(10):
        index = np.array([draw.choice(50, 2, replace=False) for _ in range(300)])
        outcomes = learner.learn(block(X, index, Kind.PAIR, None, draw.choice([-1, 1], 300)))
        assert not outcomes.rejected.any()
        largest.append(float(np.abs(learner.G).max()))
    assert max(largest) < 1e4


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_would_overflow_is_rejected_and_leaves_the_map(dtype: str, kernel: str) -> None:
    learner = LEGO(y_similar=1.0, y_dissimilar=2.0, dtype=dtype, kernel=kernel)
    X = np.array([[3e38, 0.0], [-3e38, 0.0], [0.0, 1.0], [1.0, 3.0]])
    index = np.array([[0, 1], [2, 3]] * 20)
    outcomes = learner.learn(block(X, index, Kind.PAIR))
    if dtype == "float32":
        assert outcomes.rejected.tolist() == [True, False] * 20
    assert outcomes.utilised[1]
    assert np.isfinite(learner.G).all()
    wide = np.array([[1e200, 0.0]])
    outcomes = LEGO(y_similar=1.0, y_dissimilar=2.0, kernel=kernel).learn_pairs(
        np.repeat(wide, 20, 0), np.zeros((20, 2))
    )
    assert outcomes.rejected.all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_equal_and_all_but_equal_vectors_are_degenerate(kernel: str) -> None:
    x = np.array([[1.0, 2.0], [1e6, 0.0], [1e-200, 0.0], [1e-20, 0.0]] * 4)
    y = np.array([[1.0, 2.0], [1e6, 1e-8], [0.0, 0.0], [2e-20, 0.0]] * 4)
    learner = LEGO(y_similar=1.0, y_dissimilar=2.0, kernel=kernel)
    outcomes = learner.learn_pairs(x, y, np.tile(np.array([-1], np.int8), 16))
    assert outcomes.degenerate.tolist() == [True, True, True, False] * 4
    assert not outcomes.utilised[outcomes.degenerate].any()
    assert (outcomes.mistake == 1).all()
    np.testing.assert_allclose(outcomes.loss, 2.0)


def test_a_warm_up_is_scored_and_then_learned_from() -> None:
    draw = np.random.default_rng(0)
    X = (5.0 + draw.normal(size=(60, 4)) * [1.0, 10.0, 0.1, 3.0]).astype(np.float32)
    index = np.column_stack([np.arange(0, 60, 2), np.arange(1, 60, 2)])
    message = block(X, index, Kind.PAIR, None, np.tile([1, -1], 15))
    learner = LEGO(1e-2, scaler="zscore", warm_up=40)
    outcomes = learner.learn(message)
    assert (outcomes.mistake[:19] == -1).all() and (outcomes.loss[:19] == 0).all()
    assert not outcomes.utilised[:20].any() and outcomes.utilised[20:].any()
    assert (outcomes.mistake[20:] >= 0).all()
    known = LEGO(1e-2, scaler="zscore", warm_up=40, y_similar=1.0, y_dissimilar=2.0).learn(message)
    assert (known.mistake >= 0).all() and known.loss[:20].any()
    state = learner.state()
    assert 0.0 < float(state["targets.similar"]) < float(state["targets.dissimilar"])


@pytest.mark.parametrize("loss", ["hinge", "squared"])
@pytest.mark.parametrize(
    ("dtype", "rate", "tolerance"),
    [
        ("float64", 1e-3, 1e-12),
        ("float64", 1e-1, 1e-11),
        ("float64", 1e2, 1e-7),
        ("float32", 1e-3, 1e-4),
        ("float32", 1e-1, 1e-3),
    ],
)
@pytest.mark.parametrize("d", [1, 2, 17, 64, 150])
def test_blocked_equals_sequential(d: int, dtype: str, rate: float, tolerance: float, loss: str) -> None:
    """Most pairs change the map; at the largest rate each by much, which magnifies every rounding."""
    ways = [
        LEGO(rate / d**2, loss=loss, y_similar=0.1 * d, y_dissimilar=4.0 * d, dtype=dtype, kernel=kernel)
        for kernel in KERNELS
    ]
    for message in pair_blocks(9, d, messages=3, m=150):
        one, other = (learner.learn(message) for learner in ways)
        assert np.mean(one.mistake != other.mistake) <= 0.01
        np.testing.assert_array_equal(one.degenerate, other.degenerate)
        # In one dimension and float32 single steps can be too small for a digit, and their sum is not.
        assert np.mean(one.utilised != other.utilised) <= (0.05 if d == 1 else 0.01)
        np.testing.assert_allclose(other.loss, one.loss, rtol=0, atol=10 * tolerance * float(one.loss.max()))
    wanted = ways[0].G
    np.testing.assert_allclose(ways[1].G, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def test_a_block_that_would_lose_its_digits_is_done_sequentially() -> None:
    """One pair, called similar and dissimilar in turn, whose distance swings over many orders of magnitude."""
    X = np.array([[0.0, 0.0], [1.0, 0.5]])
    message = block(X, np.tile([0, 1], (64, 1)), Kind.PAIR, None, np.tile([1, -1], 32))
    maps = []
    for kernel in KERNELS:
        learner = LEGO(1e12, y_similar=1e-9, y_dissimilar=1e3, kernel=kernel)
        learner.learn(message)
        maps.append(learner.G)
    np.testing.assert_array_equal(maps[0], maps[1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_satisfied_costs_a_prediction_and_changes_no_bit(kernel: str) -> None:
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(2, 100, 40))
    learner = LEGO(y_similar=1e4, y_dissimilar=2e4, kernel=kernel)
    learner.restore({"accepted": 0, "G": draw.normal(size=(40, 40))})
    before = learner.G
    outcomes = learner.learn_pairs(x, y)
    assert not outcomes.utilised.any() and (outcomes.loss == 0).all() and (outcomes.mistake == 0).all()
    np.testing.assert_array_equal(learner.G, before)


def test_sequential_results_do_not_depend_on_where_blocks_end() -> None:
    one, other = (LEGO(1e-2, y_similar=2.0, y_dissimilar=30.0, kernel="sequential") for _ in range(2))
    for message in (*pair_blocks(2, 6), *triplet_blocks(2, 6)):
        one.learn(message)
        for single in singles(message):
            other.learn(single)
    np.testing.assert_array_equal(one.G, other.G)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_step_too_small_for_any_digit_is_not_utilised(kernel: str) -> None:
    learner = LEGO(1e-25, y_similar=1.0, y_dissimilar=2.0, kernel=kernel)
    learner.restore({"accepted": 0, "G": np.array([[3.0]])})
    outcomes = learner.learn_pairs(np.full((20, 1), 2.0), np.zeros((20, 1)))
    assert not outcomes.utilised.any() and (outcomes.loss > 0).all()
    assert learner.G[0, 0] == 3.0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_threads(dtype: str) -> None:
    message = pair_blocks(3, 300, messages=1, m=200)[0]
    states = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            learner = LEGO(1e-4, y_similar=1.0, y_dissimilar=1e3, dtype=dtype, kernel="blocked")
            assert learner.learn(message).counts().utilised > 100
            states.append(learner.G.tobytes())
    assert len(set(states)) == 1


@pytest.mark.parametrize("inside", ["", "    "])
def test_products_run_on_one_thread_wherever_the_kernel_is_loaded(inside: str) -> None:
    script = (
        "from kinstream.streams.compute.blas_threads import one_blas_thread\n"
        "with one_blas_thread():\n"
        "    pass\n"
        f"{inside}from kinstream.learners.kernels.one_modality import lego_blocks\n"
        "from threadpoolctl import threadpool_info\n"
        "def threads(): return {x['num_threads'] for x in threadpool_info() if x['user_api'] == 'blas'}\n"
        "assert threads() == {2}, threads()\n"
        "with one_blas_thread(): assert threads() == {1}\n"
        "assert threads() == {2}, threads()\n"
    )
    command = [sys.executable, "-c", script]
    environment = {"OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(ROOT), "PATH": ""}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_auto_is_decided_by_dimension_alone() -> None:
    for dtype, crossover in lego_blocks.CROSSOVER.items():
        for d, kernel in ((crossover - 1, "sequential"), (crossover, "blocked")):
            maps = []
            for way in ("auto", kernel):
                learner = LEGO(1e-3, y_similar=0.1, y_dissimilar=100.0, dtype=str(dtype), kernel=way)
                learner.learn(pair_blocks(1, d, 1, 70)[0])
                maps.append(learner.G.tobytes())
            assert maps[0] == maps[1]


def test_warm_up_needs_no_targets_of_blocks() -> None:
    warm_up("lego", {"targets": "block"})
    warm_up("fusion", {"base": "lego", "how": "uniform", "settings": {"targets": "block"}})


def test_warm_up_leaves_nothing_to_compile() -> None:
    for dtype in ("float32", "float64"):
        warm_up("lego", {"dtype": dtype})
    kernels: tuple[Any, ...] = (lego.pairs, lego_blocks.blocks, lego_blocks.recursion)
    before = [len(kernel.signatures) for kernel in kernels]
    for dtype in ("float32", "float64"):
        for kernel in KERNELS:
            learner = LEGO(dtype=dtype, kernel=kernel, warm_up=10)
            for message in (*pair_blocks(2, 9), *triplet_blocks(2, 9)):
                learner.learn(message)
                learner.learn(rows_of(message, slice(0, 1)))
    assert [len(kernel.signatures) for kernel in kernels] == before


@pytest.mark.parametrize("eta", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_hyper_parameters_are_refused_by_name(eta: float) -> None:
    with pytest.raises(SettingsError, match="eta must be"):
        LEGO(eta)


def test_other_hyper_parameters_are_refused_by_name() -> None:
    for name in ("loss", "targets", "dtype", "scaler", "kernel"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            LEGO(**{name: "other"})
    with pytest.raises(SettingsError, match="y_similar and y_dissimilar go together"):
        LEGO(y_similar=1.0)
    with pytest.raises(SettingsError, match="y_similar must be below y_dissimilar"):
        LEGO(y_similar=1.0, y_dissimilar=1.0)
    with pytest.raises(SettingsError, match="warm_up must be"):
        LEGO(warm_up=1)


def test_a_float32_model_is_float32_throughout() -> None:
    learner = LEGO(dtype="float32", y_similar=1.0, y_dissimilar=9.0)
    message = pair_blocks(1, 5)[0]
    X = message.tables[0].vectors
    learner.learn(message)
    assert learner.G.dtype == learner.transform(X).dtype == learner.distance(X, X).dtype == np.float32
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        LEGO(y_similar=1.0, y_dissimilar=9.0).restore(learner.state())
