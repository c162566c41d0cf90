"""OASIS takes the smallest step that repairs a triplet, whichever way it is calculated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

from kinstream.learners.kernels.one_modality import oasis, oasis_blocks
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.testing.blocks import block, pair_blocks, rows_of, singles, triplet_blocks
from tests.learners.cases.oasis import thinned
from tests.learners.published_unit import OASIS

DIMENSIONS = st.sampled_from([1, 2, 3, 17, 64])
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 30.0, 1e3])
KERNELS = ("sequential", "blocked")
ANCHOR = np.array([[0, 1, 2]])


def margin(W: NDArray[Any], x: NDArray[Any], similar: NDArray[Any], dissimilar: NDArray[Any]) -> float:
    return float(x @ W @ (similar - dissimilar))


# ---- a step -----------------------------------------------------------------------------------------------------


@given(DIMENSIONS, SCALES, st.integers(0, 2**32), st.sampled_from([1e-3, 0.1, 1e200]))
@settings(max_examples=80, deadline=None)
def test_the_loss_falls_by_tau_times_the_squared_norm(d: int, scale: float, seed: int, C: float) -> None:
    draw = np.random.default_rng(seed)
    learner = OASIS(C)
    for _ in range(4):
        x, y, z = triplet = scale * draw.normal(size=(3, d))
        before = learner.W if learner.dimension else np.eye(d)
        loss = 1.0 - margin(before, *triplet)
        outcomes = learner.learn_triplets(*triplet[:, None])
        size = abs(loss) + 1.0
        assert outcomes.loss[0] == pytest.approx(max(loss, 0.0), abs=1e-9 * size)
        assert outcomes.mistake[0] == (loss >= 1.0)
        area = (x @ x) * ((y - z) @ (y - z))
        assert area > 0.0
        tau = min(C, max(loss, 0.0) / area)
        after = 1.0 - margin(learner.W, *triplet)
        slack = 1e-9 * (size + d * np.abs(learner.W).max() * np.sqrt(area))
        if outcomes.utilised[0]:
            assert after == pytest.approx(loss - tau * area, abs=slack)
            if C == 1e200:
                assert after == pytest.approx(0.0, abs=slack)
        # A step may leave hardly anything of what was there, except its rounding.
        largest = max(np.abs(before).max(), np.abs(learner.W).max())
        np.testing.assert_allclose(learner.W, before + tau * np.outer(x, y - z), rtol=0, atol=1e-9 * largest)


@given(DIMENSIONS, SCALES, st.integers(0, 2**32), st.sampled_from(KERNELS))
@settings(max_examples=40, deadline=None)
def test_the_norm_is_bounded_by_the_number_of_triplets(d: int, scale: float, seed: int, kernel: str) -> None:
    C = 0.1
    learner = OASIS(C, kernel=kernel)
    X = scale * np.random.default_rng(seed).normal(size=(3, 200, d))
    learner.learn_triplets(*X)
    assert np.sum(learner.W**2) <= (d + 2.0 * C * 200) * (1.0 + 1e-9)


@given(DIMENSIONS, SCALES, st.integers(0, 2**32), st.sampled_from(["float64", "float32"]))
@settings(max_examples=40, deadline=None)
def test_utilised_means_other_bits_and_the_converse(d: int, scale: float, seed: int, dtype: str) -> None:
    learner = OASIS(1e-3, dtype=dtype)
    for message in triplet_blocks(seed % 1000, d, messages=1, m=15, scale=scale):
        # Learned twice, for a loss that is nothing but rounding.
        for single in singles(message) * 2:
            before = learner.W.tobytes() if learner.dimension else np.eye(d, dtype=dtype).tobytes()
            outcomes = learner.learn(single)
            assert (learner.W.tobytes() != before) == bool(outcomes.utilised[0])


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_step_that_is_lost_in_rounding_changes_nothing(kernel: str) -> None:
    learner = OASIS(1e-12, dtype="float32", kernel=kernel)
    outcomes = learner.learn(block(np.array([[1.0], [0.5], [1.0]]), np.tile(ANCHOR, (20, 1))))
    assert (outcomes.loss == 1.5).all() and not outcomes.utilised.any()
    assert learner.W[0, 0] == 1.0


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_direction_there_is_nothing_to_learn(kernel: str) -> None:
    X = np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [2.0, 1.0]])
    learner = OASIS(kernel=kernel)
    outcomes = learner.learn(block(X, np.array([[0, 1, 3], [3, 1, 2], [3, 1, 1], [3, 1, 3]] * 10)))
    assert outcomes.degenerate[:4].tolist() == [True, True, True, False]
    assert outcomes.mistake[:3].tolist() == [1, 1, 1]
    assert outcomes.loss[:3].tolist() == [1.0, 1.0, 1.0]
    assert not outcomes.utilised[outcomes.degenerate].any()


def test_a_tie_is_a_mistake() -> None:
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [2.0, 0.0]])
    outcomes = OASIS().learn(block(X, np.array([[0, 1, 2], [3, 0, 1]])))
    assert outcomes.mistake.tolist() == [1, 0]
    assert outcomes.loss.tolist() == [1.0, 0.0]
    assert outcomes.utilised.tolist() == [True, False]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_too_large_is_rejected_and_the_stream_goes_on(dtype: str, kernel: str) -> None:
    learner = OASIS(dtype=dtype, kernel=kernel)
    top = float(np.finfo(dtype).max)
    X = np.array([[1.0, 0.0], [top, 0.0], [-top, 0.0], [0.0, 1.0]])
    index = np.array([[0, 1, 2], [1, 0, 2], [0, 3, 0]] * 10)
    vectors = X[index].swapaxes(0, 1)
    outcomes = learner.learn_triplets(*vectors)
    assert outcomes.rejected.tolist() == [True, True, False] * 10
    assert (outcomes.mistake[outcomes.rejected] == -1).all()
    assert np.isfinite(learner.W).all() and outcomes.utilised.any()


# ---- both ways --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 30.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-3)])
@pytest.mark.parametrize("d", [1, 2, 17, 64, 130])
def test_blocked_equals_sequential(d: int, dtype: str, tolerance: float, scale: float) -> None:
    ways = [OASIS(dtype=dtype, kernel=kernel) for kernel in KERNELS]
    for message in triplet_blocks(9, d, messages=3, m=150, scale=scale):
        one, other = (learner.learn(message) for learner in ways)
        assert np.mean(one.mistake != other.mistake) <= 0.01
        np.testing.assert_array_equal(one.degenerate, other.degenerate)
        np.testing.assert_allclose(one.loss, other.loss, rtol=0, atol=100 * tolerance * one.loss.max())
    found, wanted = ways[1].W, ways[0].W
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("shared", [1, 7, 100])
def test_anchors_that_come_again_are_calculated_once(shared: int) -> None:
    """Few anchors, all different, and a vector that is not finite among them."""
    draw = np.random.default_rng(shared)
    X = draw.normal(size=(200, 20))
    X[0] = np.nan
    index = np.column_stack([draw.integers(0, shared, 100), *draw.integers(100, 200, (2, 100))])
    ways = [OASIS(1e-2, kernel=kernel) for kernel in KERNELS]
    one, other = (learner.learn(block(X, index)) for learner in ways)
    assert one.rejected.tolist() == (index[:, 0] == 0).tolist() == other.rejected.tolist()
    assert one.counts().utilised == other.counts().utilised > 30 or shared == 1
    np.testing.assert_allclose(ways[1].W, ways[0].W, rtol=0, atol=1e-12)


def test_a_block_of_rounding_is_done_sequentially(monkeypatch: pytest.MonkeyPatch) -> None:
    """A triplet that was repaired is met again and again."""
    found: list[float] = []
    step = oasis_blocks._step

    def watched(*arguments: Any) -> float:
        found.append(step(*arguments))
        return found[-1]

    monkeypatch.setattr(oasis_blocks, "_step", watched)
    X = np.array([[0.1, 0.7], [0.3, 0.2], [0.9, 0.4]])
    maps = []
    for kernel in KERNELS:
        learner = OASIS(1e6, kernel=kernel)
        learner.learn(block(X, np.tile([[0, 1, 2], [2, 1, 0]], (100, 1))))
        maps.append(learner.W)
    assert min(found) < 0.0
    np.testing.assert_allclose(maps[0], maps[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("density", [1.0, 0.2, 0.06])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_where_a_block_ends_changes_no_bit_of_the_sequential_way(dtype: str, density: float) -> None:
    whole, cut = (OASIS(dtype=dtype, kernel="sequential") for _ in range(2))
    for message in thinned(triplet_blocks(3, 64), density):
        losses = whole.learn(message).loss
        found = [cut.learn(rows_of(message, slice(*ends))).loss for ends in ((0, 1), (1, 17), (17, 40))]
        assert np.concatenate(found).tobytes() == losses.tobytes()
    assert whole.W.tobytes() == cut.W.tobytes()


@pytest.mark.parametrize("density", [0.5, 0.06, 0.01])
def test_zeros_save_work_and_change_nothing(density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = thinned(triplet_blocks(4, 100, messages=3, m=60), density)
    W = np.eye(100)
    for x, similar, dissimilar in (
        m.tables[0].vectors[rows].astype(float) for m in blocks for rows in m.index
    ):
        area = (x @ x) * np.sum((similar - dissimilar) ** 2)
        if area > 0:
            loss = 1.0 - margin(W, x, similar, dissimilar)
            W += min(0.1, max(loss, 0.0) / area) * np.outer(x, similar - dissimilar)
    for kernel in ("sequential", "blocked", "auto"):
        learner = OASIS(kernel=kernel)
        for message in blocks:
            learner.learn(message)
        np.testing.assert_allclose(learner.W, W, rtol=0, atol=1e-12 * np.abs(W).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_auto_is_decided_by_dimension_and_zeros(dtype: str) -> None:
    crossover = oasis_blocks.CROSSOVER[np.dtype(dtype)]
    for d, density, kernel in (
        (crossover - 1, 1.0, "sequential"),
        (crossover, 1.0, "blocked"),
        (crossover, 0.1, "sequential"),
    ):
        found = []
        for way in ("auto", kernel):
            learner = OASIS(dtype=dtype, kernel=way)
            learner.learn(thinned(triplet_blocks(1, d, 1, 130), density)[0])
            found.append(learner.W.tobytes())
        assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_threads(dtype: str) -> None:
    states = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            learner = OASIS(dtype=dtype, kernel="blocked")
            for message in triplet_blocks(3, 200, messages=2, m=130):
                learner.learn(message)
            states.append(learner.W.tobytes() + learner.map.tobytes())
    assert len(set(states)) == 1


def test_warm_up_leaves_nothing_to_compile() -> None:
    warm_up("oasis")
    kernels: tuple[Any, ...] = (oasis.triplets, oasis.gather, oasis.recursion, oasis.collect)
    before = [len(kernel.signatures) for kernel in kernels]
    for kernel in KERNELS:
        for message in thinned(triplet_blocks(2, 64), 0.06) + triplet_blocks(2, 64):
            OASIS(kernel=kernel).learn(message)
    assert [len(kernel.signatures) for kernel in kernels] == before


# ---- the similarity, and the map --------------------------------------------------------------------------------


def learned(d: int = 6, **settings: Any) -> OASIS:
    learner = OASIS(**settings)
    for message in triplet_blocks(3, d, m=60):
        learner.learn(message)
    return learner


@pytest.mark.parametrize("scaler", ["none", "unit", "zscore"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_similarity_is_the_bilinear_form_of_scaled_rows(dtype: str, scaler: str) -> None:
    learner = learned(dtype=dtype, scaler=scaler, warm_up=20)
    X, Y = np.random.default_rng(1).normal(size=(2, 9, 6))
    wanted = learner.scale(X) @ learner.W @ learner.scale(Y).T
    found = learner.similarities(X, Y[:4])
    assert found.dtype == dtype and found.shape == (9, 4)
    np.testing.assert_allclose(found, wanted[:, :4], rtol=1e-5)
    np.testing.assert_allclose(learner.similarity(X, Y), np.diag(wanted), rtol=1e-4, atol=1e-4)
    assert not np.allclose(learner.W, learner.W.T)


def test_before_the_first_block_similarity_is_the_inner_product() -> None:
    X, Y = np.random.default_rng(1).normal(size=(2, 9, 6))
    np.testing.assert_allclose(OASIS().similarities(X, Y), X @ Y.T)
    np.testing.assert_allclose(OASIS(scaler="unit").similarity(X, X), np.ones(9))
    for name in ("W", "map"):
        with pytest.raises(ValueError, match="learn from a block first"):
            getattr(OASIS(), name)


def test_the_map_is_the_positive_part_and_follows_every_change() -> None:
    learner = learned()
    for _ in range(2):
        symmetric = (learner.W + learner.W.T) / 2.0
        values, vectors = np.linalg.eigh(symmetric)
        assert values.min() < 0.0
        M = learner.map
        assert M.shape == (np.sum(values > 0.0), 6)
        np.testing.assert_allclose(M.T @ M, (vectors * np.maximum(values, 0.0)) @ vectors.T, atol=1e-9)
        learner.learn(triplet_blocks(5, 6)[0])
    state = learner.state()
    learner.restore({"accepted": 0, "W": np.diag([2.0, -1.0, 0.0])})
    np.testing.assert_allclose(learner.map.T @ learner.map, np.diag([2.0, 0.0, 0.0]), atol=1e-12)
    learner.restore({"accepted": 0, "W": -np.eye(3)})
    assert learner.map.tolist() == [[0.0, 0.0, 0.0]]
    assert learner.distance(np.eye(3), np.zeros((3, 3))).tolist() == [0.0, 0.0, 0.0]
    kept = learned()
    kept.restore(state)
    learner.restore(state)
    np.testing.assert_array_equal(learner.map, kept.map)
    learner.map[:] = 0.0
    np.testing.assert_array_equal(learner.map, kept.map)


def test_learning_helps_a_ranking() -> None:
    """Two classes that differ in the first feature; the others are noise."""
    draw = np.random.default_rng(0)
    label = draw.integers(0, 2, 900)
    X = draw.normal(size=(900, 10))
    X[:, 0] += 2.0 * label - 1.0
    same = [np.flatnonzero(label == c) for c in (0, 1)]
    index = np.array([(a, draw.choice(same[label[a]]), draw.choice(same[1 - label[a]])) for a in range(600)])
    learner = OASIS(0.01, scaler="unit")
    learner.learn(block(X, index))
    test = X[600:]
    relevant = label[600:, None] == label[None, 600:]

    def precision(S: NDArray[Any]) -> float:
        np.fill_diagonal(S, -np.inf)
        best = np.argsort(-S, axis=1)[:, :30]
        return float(np.mean(np.take_along_axis(relevant, best, axis=1)))

    scaled = learner.scale(test)
    assert precision(learner.similarities(test, test)) > precision(scaled @ scaled.T) + 0.05


# ---- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_hyper_parameters_are_refused_by_name(value: Any) -> None:
    with pytest.raises(SettingsError, match="aggressiveness must be"):
        OASIS(value)


def test_other_hyper_parameters_are_refused_by_name() -> None:
    for name in ("dtype", "scaler", "kernel"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            OASIS(**{name: "other"})


def test_input_of_another_shape_or_kind_is_refused() -> None:
    learner = learned()
    with pytest.raises(BadRecord, match="oasis/1 learns from triplets, not pairs"):
        learner.learn(pair_blocks(1, 6)[0])
    with pytest.raises(BadRecord, match="6 features, not 5"):
        learner.learn(triplet_blocks(1, 5)[0])
    X = np.zeros((3, 6))
    for call in (learner.similarity, learner.similarities):
        with pytest.raises(ValueError, match=r"expected features of shape \(n, 6\)"):
            call(X, X[:, :5])
    with pytest.raises(ValueError, match="same shape"):
        learner.similarity(X, X[:2])
    with pytest.raises(ValueError, match="same features"):
        OASIS().similarities(X, X[:, :5])
    with pytest.raises(SettingsError, match="dtype is float32, but the state to restore holds float64"):
        OASIS(dtype="float32").restore(learner.state())
