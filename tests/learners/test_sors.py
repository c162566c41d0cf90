"""SORS and AdaSORS: what thresholds an entry missed it makes up for, so zeros save work and change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.kernels.one_modality import sors
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing.blocks import block, prefix_blocks, rows_of, singles, triplet_blocks
from kinstream.testing.learners import digest
from tests.learners.cases.oasis import thinned
from tests.learners.published_unit import OASIS, SORS, AdaSORS

DIMENSIONS = st.sampled_from([1, 2, 3, 17, 64])
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 30.0, 1e3])
SEEDS = st.integers(0, 2**32)
KINDS = pytest.mark.parametrize("make", [SORS, AdaSORS])
Matrix = NDArray[Any]


def soft(Z: Matrix, by: Matrix | float) -> Matrix:
    return np.asarray(np.sign(Z) * np.maximum(np.abs(Z) - by, 0.0))


def vectors_of(message: ConstraintBlock) -> list[Matrix]:
    return [message.tables[0].vectors[rows].astype(float) for rows in message.index]


class Eager:
    """Every threshold at once, over the whole matrix."""

    def __init__(self, learner: SORS, d: int) -> None:
        self.W, self.H, self.learner = np.eye(d), np.zeros((d, d)), learner

    def step(self, x: Matrix, similar: Matrix, dissimilar: Matrix) -> float:
        eta, sparsity = self.learner.eta, self.learner.sparsity
        loss = 1.0 - float(x @ self.W @ (similar - dissimilar))
        gradient = np.outer(x, similar - dissimilar) * (loss > 0.0)
        size: Matrix | float = 1.0
        if isinstance(self.learner, AdaSORS):
            self.H = np.sqrt(self.H**2 + gradient**2)
            size = self.learner.delta + self.H
        moved = self.W + eta * gradient / size
        self.W = soft(moved, eta * sparsity / size)
        if self.learner.penalty == "off-diagonal":
            np.fill_diagonal(self.W, moved.diagonal())
        return max(loss, 0.0)


# ---- a step -----------------------------------------------------------------------------------------------------


@given(DIMENSIONS, SCALES, SEEDS, st.sampled_from([0.0, 0.02, 0.5]), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_stream_ends_where_eager_thresholds_end(
    d: int, scale: float, seed: int, sparsity: float, adaptive: bool, whole: bool
) -> None:
    penalty = "all" if whole else "off-diagonal"
    eta, sparsity = 0.05 / scale**2, sparsity * scale**2
    learner: SORS | AdaSORS = SORS(eta, sparsity, penalty=penalty)
    if adaptive:
        learner = AdaSORS(0.05, sparsity, delta=1e-2 * scale**2, penalty=penalty)
    eager = Eager(learner, d)  # type: ignore[arg-type]
    for message in triplet_blocks(seed % 1000, d, messages=2, m=12, scale=scale):
        outcomes = learner.learn(message)
        for t, vectors in enumerate(vectors_of(message)):
            wanted = eager.step(*vectors)
            if not outcomes.degenerate[t]:
                assert outcomes.loss[t] == pytest.approx(wanted, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(learner.W, eager.W, rtol=0, atol=1e-8 * np.abs(eager.W).max())


@KINDS
@pytest.mark.parametrize("penalty", ["off-diagonal", "all"])
@pytest.mark.parametrize("density", [0.5, 0.2, 0.06, 0.02])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
def test_zeros_save_work_and_change_nothing(
    make: Any, penalty: str, density: float, dtype: str, tolerance: float
) -> None:
    """Dense and sparse triplets in turn, so that entries of one row are of different age."""
    learner = make(0.05, 0.02, penalty=penalty, dtype=dtype)
    eager = Eager(learner, 64)
    dense = triplet_blocks(5, 64, messages=3, m=4, scale=0.3)
    for sparse, full in zip(thinned(triplet_blocks(6, 64, messages=3), density), dense, strict=True):
        for message in (sparse, full):
            learner.learn(message)
            for vectors in vectors_of(message):
                eager.step(*vectors)
            np.testing.assert_allclose(
                learner.W, eager.W, rtol=0, atol=tolerance * np.abs(eager.W).max(), err_msg=str(density)
            )


@KINDS
def test_entries_off_the_diagonal_stay_zero_until_x_and_v_meet_there(make: Any) -> None:
    draw = np.random.default_rng(0)
    X = np.zeros((3, 50, 30))
    X[0, :, :10] = draw.normal(size=(50, 10))
    X[1, :, 5:20] = draw.normal(size=(50, 15))
    learner = make(0.1, 0.0)
    assert learner.learn_triplets(*X).counts().utilised > 10
    met = np.eye(30, dtype=bool)
    met[:10, 5:20] = True
    np.testing.assert_array_equal(learner.W != 0, met)


def test_without_sparsity_sors_takes_the_subgradient_steps_of_the_loss_of_oasis() -> None:
    """Where the cap decides, those are OASIS's steps."""
    one, other = SORS(1e-3, 0.0), OASIS(1e-3)
    for message in triplet_blocks(2, 10, scale=0.3):
        one.learn(message)
        other.learn(message)
    np.testing.assert_allclose(one.W, other.W, rtol=0, atol=1e-12)


@given(SCALES, SEEDS)
@settings(max_examples=30, deadline=None)
def test_no_entry_of_adasors_moves_by_more_than_eta(scale: float, seed: int) -> None:
    learner = AdaSORS(0.01, 0.0)
    before: Matrix = np.eye(5)
    for message in triplet_blocks(seed % 1000, 5, messages=1, scale=scale):
        for single in singles(message):
            learner.learn(single)
            assert np.abs(learner.W - before).max() <= 0.01 * (1.0 + 1e-9)
            before = learner.W


# ---- what is stored ---------------------------------------------------------------------------------------------


def mixed_blocks() -> list[ConstraintBlock]:
    sparse, dense = thinned(triplet_blocks(7, 64), 0.06), triplet_blocks(8, 64, m=10, scale=0.3)
    return [message for pair in zip(sparse, dense, strict=True) for message in pair]


@KINDS
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_where_a_block_ends_and_who_looks_changes_no_bit(make: Any, dtype: str) -> None:
    """Reading brings nothing up to date; a learner restored in the middle continues bit for bit."""
    whole, cut, restored = (make(0.05, 0.02, dtype=dtype) for _ in range(3))
    for message in mixed_blocks():
        losses = whole.learn(message).loss
        for single in singles(message):
            assert cut.learn(single).loss[0] == losses[0]
            losses = losses[1:]
        assert np.isfinite(cut.W).all() and np.isfinite(cut.map).all()
        for start, stop in ((0, 1), (1, 7), (7, len(message))):
            restored.learn(rows_of(message, slice(start, stop)))
        again = make(0.05, 0.02, dtype=dtype)
        again.restore(restored.state())
        restored = again
    assert digest(whole.state()) == digest(cut.state()) == digest(restored.state())
    assert whole.W.tobytes() == restored.W.tobytes()


@KINDS
def test_a_triplet_without_loss_writes_nothing_and_shrinks(make: Any) -> None:
    X = np.array([[1.0, 1.0, 0.0], [9.0, 9.0, 1.0], [-9.0, -9.0, 1.0]])
    start = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    state: State = {"accepted": 0, "W": start, "steps": 0, "rows": np.zeros(3, np.int64)}
    if make is AdaSORS:
        state["H"] = np.ones((3, 3))
    learner = make(0.1, 0.1)
    learner.restore(state)
    outcomes = learner.learn(block(X, np.tile([0, 1, 2], (20, 1))))
    assert not outcomes.utilised.any() and not outcomes.loss.any()
    np.testing.assert_array_equal(learner.state()["W"], start)
    np.testing.assert_allclose(learner.W, soft(start, 0.2) + np.diag([0.2] * 3), atol=1e-6)
    np.testing.assert_allclose(learner.similarities(X, X), X @ learner.W @ X.T)


@KINDS
def test_counting_begins_again_before_it_would_overflow(make: Any) -> None:
    """The same as ever, only as of a small number of steps."""
    late, early = (make(0.05, 0.02) for _ in range(2))
    blocks = mixed_blocks()
    for learner in (late, early):
        learner.learn(blocks[0])
    state = early.state()
    ahead = sors.MOST_STEPS - 15 - int(state["steps"])
    since, rows = np.asarray(state["since"]), np.asarray(state["rows"])
    moved = {
        "steps": int(state["steps"]) + ahead,
        "rows": rows + ahead,
        "since": np.where(since > 0, since + ahead, 0).astype(np.int32),
    }
    late.restore(state | moved)
    for message in blocks[1:5]:
        for learner in (late, early):
            learner.learn(message)
        np.testing.assert_allclose(late.W, early.W, rtol=0, atol=1e-12)
    assert 0 < int(late.state()["steps"]) < int(early.state()["steps"])


def test_the_state_has_the_age_of_entries_only_where_it_differs() -> None:
    learner = SORS()
    learner.learn(triplet_blocks(1, 64)[0])
    assert set(learner.state()) == {"accepted", "W", "steps", "rows"}
    learner.learn(thinned(triplet_blocks(1, 64), 0.06)[0])
    assert set(learner.state()) == {"accepted", "W", "steps", "rows", "since"}


# ---- guards -----------------------------------------------------------------------------------------------------


@KINDS
def test_without_a_direction_there_is_nothing_to_learn_but_the_threshold(make: Any) -> None:
    X = np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [2.0, 1.0]])
    learner = make()
    outcomes = learner.learn(block(X, np.array([[0, 1, 3], [3, 1, 2], [3, 1, 3]])))
    assert outcomes.degenerate.tolist() == [True, True, False]
    assert outcomes.mistake[:2].tolist() == [1, 1]
    assert outcomes.loss[:2].tolist() == [1.0, 1.0]
    assert outcomes.utilised.tolist() == [False, False, True]
    assert learner.state()["steps"] == 3


@KINDS
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_too_large_is_rejected_and_the_stream_goes_on(dtype: str, d: int, make: Any) -> None:
    """Also where a step would leave the finite numbers only after many others; for d = 20, v is sparse."""
    top = float(np.finfo(dtype).max)
    learner = make(dtype=dtype)
    small = np.zeros((3, 1, d))
    small[0, 0, 0], small[2, 0, 1] = 1.0, 1.0
    for first, second in ((top, top), (top**0.6, top**0.6), (top, 10.0)):
        huge = np.zeros((3, 1, d))
        huge[0, 0, 0], huge[1, 0, 1] = first, second
        before = digest(learner.state()) if learner.dimension else None
        outcomes = learner.learn_triplets(*huge)
        assert outcomes.rejected[0] and outcomes.mistake[0] == -1
        assert before is None or digest(learner.state()) == before
        assert learner.learn_triplets(*small).utilised[0]
        assert np.isfinite(learner.W).all()


@KINDS
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_hyper_parameters_are_refused_by_name(value: Any, make: Any) -> None:
    with pytest.raises(SettingsError, match="eta must be"):
        make(value)
    if value != 0:
        with pytest.raises(SettingsError, match="sparsity must be"):
            make(sparsity=value)
    with pytest.raises(SettingsError, match="delta must be"):
        AdaSORS(delta=value)


@KINDS
def test_other_input_that_does_not_fit_is_refused(make: Any) -> None:
    for name in ("penalty", "dtype", "scaler"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            make(**{name: "other"})
    learner = make()
    learner.learn(triplet_blocks(1, 3)[0])
    with pytest.raises(BadRecord, match="learns from triplets, not pairs"):
        learner.learn(prefix_blocks(1, 3)[0])
    with pytest.raises(SettingsError, match="dtype is float32, but the state to restore holds float64"):
        make(dtype="float32").restore(learner.state())
    with pytest.raises(ValueError, match="learn from a block first"):
        make().W  # noqa: B018
