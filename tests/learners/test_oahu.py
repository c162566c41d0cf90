"""OAHU's compiled loop is what autograd, plain numpy and finite differences say; and what always holds."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.kernels.ensembles.oahu import bounds, hedge
from kinstream.learners.oahu.anchors import MEASURED
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.oahu.step_rule import HEDGES
from kinstream.learners.oahu.variants import Variant, varied
from kinstream.learners.registry import create, settings_of
from kinstream.streams.errors import SettingsError
from kinstream.testing.blocks import block, rows_of
from kinstream.testing.learners import digest
from tests.learners.oahu_numpy import OAHUNumpy, Weights, distances, forward

Triplets = NDArray[np.float64]
SMALL: dict[str, Any] = {"layers": 2, "hidden": 8}
VARIANTS = ("anchored", "published")
PATHS = ("compiled", "torch")
KAPPA = 0.25


def triplets_of(seed: int, m: int, d: int, scale: float = 1.0) -> Triplets:
    """(3, m, d): anchors, positives and negatives of two noisy classes."""
    draw = np.random.default_rng((seed, d))
    centres = 0.5 * draw.normal(size=(2, d))
    label = draw.integers(0, 2, m)
    noise = draw.normal(size=(3, m, d))
    return np.asarray(scale * (noise + np.stack([centres[label], centres[label], centres[1 - label]])))


def begin(learner: OAHU, d: int) -> None:
    """Let it make its network, by a triplet that it rejects."""
    assert learner.learn_triplets(*np.full((3, 1, d), np.nan)).rejected.all()


def inputs_of(learner: OAHU, T: Triplets, seen: int = 0, squares: float = 0.0) -> Triplets:
    """What the network gets to see of triplets (3, m, d): with c behind them, c^2 = KAPPA times the mean so far."""
    if learner.variant.lift == 0.0:
        return T
    lifted = []
    for triplet in T.transpose(1, 0, 2):
        if seen < MEASURED:
            seen, squares = seen + 3, squares + float(np.sum(triplet**2))
        c = np.sqrt(KAPPA * squares / seen)
        lifted.append(np.column_stack([triplet, np.full(3, c)]))
    return np.asarray(lifted).transpose(1, 0, 2)


def plain(learner: OAHU) -> OAHUNumpy:
    """The numpy form in the state of a learner."""
    return OAHUNumpy(
        Weights.of(learner.state()),
        learner.alpha,
        eta=learner.eta,
        tau=learner.tau,
        beta=learner.variant.beta,
        s=learner.variant.smoothing,
        hedge=learner.variant.hedge,
        temperature=learner.variant.temperature,
        by_alpha=learner.variant.gradient == "hedge",
    )


def begun(variant: str, d: int, seed: int = 0, biases: bool = False, **settings: Any) -> OAHU:
    """A float64 learner with random weights and alpha, as if it had been learning for a while."""
    learner = OAHU(varied(variant, initial="uniform", biases=biases), dtype="float64", seed=seed, **settings)
    begin(learner, d)
    draw = np.random.default_rng(seed)
    state: State = {}
    for name, value in learner.state().items():
        if re.fullmatch(r"(Theta|W|b)\d+", name):
            state[name] = draw.normal(size=np.shape(value)) * np.sqrt(2.0 / len(np.asarray(value)))
        elif name == "alpha":
            raised = draw.uniform(0.5, 1.5, np.shape(value))
            state[name] = raised / raised.sum()
        else:
            state[name] = value
    learner.restore(state)
    return learner


def apart(one: OAHU, other: OAHU) -> float:
    """The largest difference between two states."""
    a, b = one.state(), other.state()
    assert set(a) == set(b)
    gaps = [np.abs(np.asarray(a[name], np.float64) - np.asarray(b[name], np.float64)) for name in a]
    return max(float(np.max(gap, initial=0.0)) for gap in gaps)


def learned(learner: OAHU) -> State:
    """Weights and alpha."""
    return {
        name: value for name, value in learner.state().items() if re.fullmatch(r"(Theta|W|b)\d+|alpha", name)
    }


def parameters(learner: OAHU) -> str:
    """Digest of weights and alpha."""
    return digest(learned(learner))


# Gradients and steps


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("layers", [0, 1, 2, 5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_is_a_finite_difference(variant: str, layers: int, biases: bool) -> None:
    learner = begun(variant, 3, seed=layers + 1, layers=layers, hidden=12, eta=1.0, biases=biases)
    T = triplets_of(layers, 1, 3)
    form = plain(learner)
    triplet = tuple(inputs_of(learner, T)[:, 0])
    assert learner.learn_triplets(*T).utilised[0]
    after = Weights.of(learner.state())
    by_hand = form.gradients(triplet)
    checked = 0
    for group in range(3):
        if group == 1 and not biases:
            continue
        for k, before in enumerate(form.weights[group]):
            found = before - after[group][k]
            wanted = np.zeros_like(before)
            for place in np.ndindex(before.shape):
                values = []
                for step in (1e-6, -1e-6):
                    moved = Weights(*([array.copy() for array in arrays] for arrays in form.weights))
                    moved[group][k][place] += step
                    values.append(form.objective(moved, triplet))
                wanted[place] = (values[0] - values[1]) / 2e-6
            size = max(np.abs(wanted).max(), 1e-3)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7 * size)
            np.testing.assert_allclose(found, by_hand[group][k], rtol=0, atol=1e-12 * max(size, 1.0))
            checked += int(np.abs(wanted).max() > 1e-9)
    assert checked == (layers + 1) + layers * (1 + biases)


@pytest.mark.parametrize("hedge", ["literal", "exp", "linear"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("d", [2, 7])
def test_a_stream_ends_where_the_spec_in_numpy_does(d: int, variant: str, hedge: str) -> None:
    learner = OAHU(varied(variant, hedge=hedge, biases=d == 7), dtype="float64", **SMALL)
    T = triplets_of(1, 100, d)
    begin(learner, d)
    form = plain(learner)
    outcomes = learner.learn_triplets(*T)
    for t, triplet in enumerate(inputs_of(learner, T).transpose(1, 0, 2)):
        alpha = form.alpha
        form.step((triplet[0], triplet[1], triplet[2]))
        assert outcomes.loss[t] == pytest.approx(form.report["loss"], rel=1e-9)
        fused = learner.share * float(alpha @ form.report["margins"])
        if variant == "anchored":
            fused += (1.0 - learner.share) * anchors_margin(T, t)
        assert abs(fused) < 1e-9 or outcomes.mistake[t] == (fused >= 0.0)
    same_weights(learner, form, 1e-9)


def same_weights(learner: OAHU, form: OAHUNumpy, room: float) -> None:
    """Up to rounding, alpha too."""
    for mine, its in zip(Weights.of(learner.state()), form.weights, strict=True):
        for a, b in zip(mine, its, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=room)
    np.testing.assert_allclose(learner.alpha, form.alpha, rtol=room)


def anchors_margin(T: Triplets, t: int) -> float:
    """D(x, x+) - D(x, x-) of triplet t: the mean over root mean square lengths, directions, and lifted directions."""
    root = np.sqrt(np.mean(np.sum(T[:, : min(t + 1, math.ceil(MEASURED / 3))] ** 2, axis=2)))
    X = T[:, t]
    lifted = np.column_stack([X, np.full(3, np.sqrt(KAPPA) * root)])
    margins = [
        np.linalg.norm(Y[0] - Y[1]) - np.linalg.norm(Y[0] - Y[2])
        for Y in (X / root, *(Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (X, lifted)))
    ]
    return float(np.mean(margins))


def compared(variant: str | Variant, dtype: str, d: int, steps: int, together: int, **settings: Any) -> None:
    """Steps of the compiled loop and of torch, some together from the same state: rounding errors grow with each.

    In float32 a unit at the edge of its ReLU, or an embedding next to zero, may magnify the rounding of one step.
    """
    compiled, reference = (OAHU(variant, dtype=dtype, path=path, **settings) for path in PATHS)
    room, most = (1e-10, 1e-10) if dtype == "float64" else (1e-5, 1e-4)
    T, gaps = triplets_of(0, steps, d), []
    for start in range(0, steps, together):
        some = T[:, start : start + together]
        found, wanted = compiled.learn_triplets(*some), reference.learn_triplets(*some)
        gaps.append(max(apart(compiled, reference), float(np.abs(found.loss - wanted.loss).max())))
        for name in ("mistake", "utilised", "clipped", "rejected", "degenerate"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)
        reference.restore(compiled.state())
    assert max(gaps) <= most
    assert together > 1 or np.quantile(gaps, 0.99) <= room


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_compiled_steps_are_those_of_autograd(variant: str, dtype: str) -> None:
    compared(variant, dtype, 17, 200, 1)
    compared(variant, dtype, 17, 200, 5)
    for layers in (0, 1):
        compared(varied(variant, biases=layers == 1), dtype, 3, 100, 5, layers=layers, hidden=7)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_takes_one_step_with_the_mean_gradient(variant: str, path: str) -> None:
    learner = OAHU(variant, dtype="float64", path=path, batch=4, **SMALL)
    learner.learn_triplets(*triplets_of(5, 200, 4))
    form, T = plain(learner), triplets_of(6, 9, 4)
    T[1, 5] = np.nan
    lifted = inputs_of(learner, T, MEASURED, MEASURED * learner._lift.mean)
    outcomes = learner.learn_triplets(*T[:, :3])
    same_weights(learner, form, 0.0)
    rest = learner.learn_triplets(*T[:, 3:])
    assert rest.rejected.tolist() == [False, False, True, False, False, False]
    loss = np.concatenate([outcomes.loss, rest.loss])
    for rows in ([0, 1, 2, 3], [4, 6, 7, 8]):
        old, losses = form.weights, []
        gradients = [form.gradients((lifted[0, t], lifted[1, t], lifted[2, t])) for t in rows]
        for t, gradient in zip(rows, gradients, strict=True):
            x, positive, negative = (forward(old, lifted[s, t]) for s in range(3))
            losses.append(form.losses(*distances((x, positive, negative))))
            assert loss[t] == pytest.approx(float(form.alpha @ losses[-1]), rel=1e-12)
            form.weights = form.weights.minus(form.eta / 4.0, gradient)
        for each in losses:
            form.reweigh(each)
    same_weights(learner, form, 1e-12)


# What always holds


@settings(max_examples=300, deadline=None)
@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(1e-3, 0.66))
def test_thresholds_are_on_the_right_side(near: float, far: float, tau: float) -> None:
    loss, down, up = bounds(near, far, tau)
    assert 0.0 <= loss <= 1.0
    assert down >= 0.0 >= up
    if down:
        c1 = 2.0 - 0.5 / down
        assert -1e-15 <= c1 <= tau + 1e-15 and c1 <= near + 1e-15
    else:
        assert near < 1e-12
    if up:
        c2 = -0.5 / up
        assert 2.0 - tau - 1e-15 <= c2 <= 2.0 + 1e-15 and c2 >= far - 1e-15
    else:
        assert far > 2.0 - 1e-12


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.sampled_from(HEDGES),
    st.integers(0, 1000),
)
def test_the_hedge_is_that_of_the_spec(losses: list[float], beta: float, rule: str, seed: int) -> None:
    alpha = np.random.default_rng(seed).dirichlet(np.ones(len(losses)))
    form = OAHUNumpy(Weights([], [], []), alpha.copy(), beta=beta, hedge=rule)
    found = np.array(losses)
    form.reweigh(found)
    hedge(alpha, found, HEDGES.index(rule), beta, form.s / len(losses))
    np.testing.assert_allclose(alpha, form.alpha, rtol=1e-12)
    assert alpha.min() >= form.s / (len(losses) * (1.0 + form.s)) - 1e-12


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 17, 64]),
    st.floats(-4.0, 3.0).map(lambda power: 10.0**power),
    st.sampled_from(VARIANTS),
    st.sampled_from([0, 1, 2, 5]),
    st.sampled_from(["float64", "float32"]),
    st.booleans(),
    st.integers(0, 1000),
)
def test_what_holds_after_every_step(
    d: int, scale: float, variant: str, layers: int, dtype: str, biases: bool, seed: int
) -> None:
    learner = OAHU(varied(variant, biases=biases), layers=layers, hidden=8, dtype=dtype, seed=seed)
    T = triplets_of(seed, 12, d, scale)
    X = T.reshape(-1, d)
    eps = float(np.finfo(dtype).eps)
    begin(learner, d)
    before = learned(learner)
    for t in range(T.shape[1]):
        outcomes = learner.learn_triplets(*T[:, t : t + 1])
        assert not outcomes.rejected[0] and 0.0 <= outcomes.loss[0] <= 1.0 + 1e-12
        assert outcomes.utilised[0] != outcomes.degenerate[0]
        after = learned(learner)
        # On a line without a constant behind it, the linear model knows two directions, which are equal or opposite.
        if d > 1 or variant == "anchored":
            assert outcomes.utilised[0]
        if outcomes.degenerate[0]:
            assert digest(after) == digest(before)
        alpha = learner.alpha
        assert alpha.sum() == pytest.approx(1.0, abs=1e-12)
        assert (
            alpha.min()
            >= learner.variant.smoothing / ((layers + 1) * (1.0 + learner.variant.smoothing)) - 1e-12
        )
        for name, value in after.items():
            assert np.isfinite(value).all()
            if name.startswith("Theta"):
                old, new = (np.asarray(which[name], np.float64) for which in (before, after))
                size, moved = float(np.linalg.norm(old)), float(np.linalg.norm(new - old))
                assert np.linalg.norm(new) >= size * (1.0 - 4.0 * eps)
                # <grad, Theta> = 0, to the rounding of what is in Theta.
                assert abs(np.sum((new - old) * old)) <= 1e2 * eps * size * (size + moved)
        before = after
    for f in learner._network.embed(learner._lift.apply(learner.scale(X), learner._lift.mean)):
        length = np.linalg.norm(f.astype(np.float64), axis=1)
        assert ((np.abs(length - 1.0) < 10.0 * eps) | (length == 0.0)).all()
    assert sum(learner.weights.values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("d", [2, 3, 17, 64])
def test_a_small_step_lowers_the_loss_as_its_gradient_says(d: int, variant: str) -> None:
    for seed in range(5):
        learner = begun(variant, d, seed, layers=3, hidden=10, eta=1e-5)
        T = triplets_of(seed, 1, d)
        form, lifted = plain(learner), inputs_of(learner, T)
        triplet = (lifted[0, 0], lifted[1, 0], lifted[2, 0])
        gradient = form.gradients(triplet)
        learner.learn_triplets(*T)
        fall = form.objective(form.weights, triplet) - form.objective(Weights.of(learner.state()), triplet)
        square = sum(float(np.sum(a**2)) for arrays in (gradient.W, gradient.Theta) for a in arrays)
        assert fall == pytest.approx(learner.eta * square, rel=1e-2)
        assert fall > 0.0


# Where there is nothing to learn from


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", [1, 2, 17, 100])
@pytest.mark.parametrize("variant", VARIANTS)
def test_three_equal_vectors_teach_nothing(variant: str, d: int, dtype: str) -> None:
    learner = OAHU(variant, dtype=dtype, **SMALL)
    for warm in (0, 40, 200):
        if warm:
            learner.learn_triplets(*triplets_of(1, warm, d))
        T = triplets_of(2, 40, d)
        T[1:, 7:33] = T[0, 7:33]
        outcomes = learner.learn_triplets(*T)
        assert outcomes.degenerate[7:33].all() and not outcomes.utilised[7:33].any()
        assert outcomes.utilised[:7].all() or d == 1
        before = parameters(learner)
        outcomes = learner.learn_triplets(*T[:, 7:33])
        assert outcomes.degenerate.all() and not outcomes.utilised.any() and not outcomes.rejected.any()
        assert outcomes.mistake.tolist() == [1] * 26
        assert parameters(learner) == before


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("path", PATHS)
def test_a_dead_model_is_left_alone(path: str, batch: int) -> None:
    learner = OAHU("published", dtype="float64", path=path, batch=batch, **SMALL)
    T = triplets_of(1, 30, 4)
    learner.learn_triplets(*T)
    # A vector of zeros has no direction under any model; so its pairs have none to learn from.
    for zeros in ([0], [0, 1], [0, 2], [0, 1, 2], [1, 2]):
        spoiled, before = T[:, :1].copy(), parameters(learner)
        spoiled[zeros] = 0.0
        outcomes = learner.learn_triplets(*spoiled)
        assert not outcomes.rejected[0] and np.isfinite(outcomes.loss[0])
        assert outcomes.degenerate[0] and not outcomes.utilised[0]
        assert parameters(learner) == before
    state = learner.state()
    for name in state:
        if name.startswith("Theta"):
            state[name] = np.zeros_like(state[name])
    learner.restore(state)
    outcomes = learner.learn_triplets(*T)
    assert outcomes.degenerate.all() and not outcomes.rejected.any()
    assert all(not embedding.any() for embedding in learner.embed(T[0]))
    assert np.array_equal(learner.state()["W1"], state["W1"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_triplets_that_contradict_each_other_keep_the_state_sound(variant: str) -> None:
    learner = OAHU(variant, **SMALL)
    T = triplets_of(3, 100, 6)
    equal = T.copy()
    equal[2] = equal[1]
    for _ in range(5):
        for some in (T, T[[0, 2, 1]], equal):
            outcomes = learner.learn_triplets(*some)
            assert outcomes.utilised.all()
            assert ((outcomes.loss >= 0.0) & (outcomes.loss <= 1.0)).all()
        assert (outcomes.mistake == 1).all()
    assert all(np.isfinite(value).all() for value in learner.state().values())


# Bad input, seeds, settings, state


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_changes_no_bit(variant: str, value: float) -> None:
    learner = OAHU(variant, **SMALL)
    for seed in (1, 2):
        T = triplets_of(seed, 120, 5)
        learner.learn_triplets(*T)
        before = digest(learner.state())
        for s in range(3):
            spoiled = T[:, :40].copy()
            spoiled[s, :, s] = value
            outcomes = learner.learn_triplets(*spoiled)
            assert outcomes.rejected.all() and (outcomes.mistake == -1).all() and not outcomes.loss.any()
        assert digest(learner.state()) == before


@pytest.mark.parametrize(("path", "batch"), [("compiled", 1), ("compiled", 3), ("torch", 1), ("torch", 3)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1e12, 1e30, 1e160])
def test_huge_vectors_do_no_harm(variant: str, dtype: str, size: float, path: str, batch: int) -> None:
    learner = OAHU(variant, dtype=dtype, path=path, batch=batch, **SMALL)
    for _ in range(2):
        for s in range(3):
            T = triplets_of(s, 20, 5)
            T[s, ::7] *= size
            outcomes = learner.learn_triplets(*T)
            assert np.isfinite(outcomes.loss).all()
            # Their neighbours in the block are learned.
            assert not np.delete(outcomes.rejected, np.s_[::7]).any()
            assert all(np.isfinite(value).all() for value in learner.state().values())
            assert np.isfinite(np.concatenate(learner.embed(T[0, 1:7]), axis=1)).all()


@pytest.mark.parametrize("path", PATHS)
def test_an_overflow_on_the_way_back_is_rejected(path: str) -> None:
    """Weights so large that a gradient is no number, and yet all embeddings are."""
    learner = OAHU("published", path=path, layers=1, hidden=4)
    begin(learner, 2)
    state = learner.state()
    state["W1"] = np.array([[1e-40, 0.0, 0.0, 0.0], [0.0, 1e-40, 0.0, 0.0]], np.float32)
    state["Theta1"] = np.array([[1e32, 1e32], [1e32, -1e32], [0.0, 0.0], [0.0, 0.0]], np.float32)
    learner.restore(state)
    before = parameters(learner)
    outcomes = learner.learn_triplets(*np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1.0]]]))
    assert outcomes.rejected[0] and parameters(learner) == before


@pytest.mark.parametrize(
    ("path", "batch"), [("compiled", 1), ("compiled", 8), ("torch", 8), ("compiled", 300)]
)
def test_the_pull_goes_towards_the_first_weights_at_its_places_in_the_stream(path: str, batch: int) -> None:
    T, every = triplets_of(6, 700, 5), max(256, batch)
    pulled, free = (
        OAHU(varied(pull=pull), dtype="float64", path=path, batch=batch, **SMALL) for pull in (1e-3, 0.0)
    )
    begin(free, 5)
    origin = learned(free)
    for start in (0, every):
        stop = min(start + every, 700)
        free.learn_triplets(*T[:, start:stop])
        if stop - start == every:
            state = free.state()
            for name, first in origin.items():
                if name != "alpha":
                    state[name] = first + np.exp(-1e-3 * every) * (state[name] - first)  # type: ignore[operator]
            free.restore(state)
    begin(pulled, 5)
    for start in range(0, min(2 * every, 700), 100):
        pulled.learn_triplets(*T[:, start : min(start + 100, 2 * every, 700)])
    for name, value in learned(free).items():
        found = np.asarray(learned(pulled)[name])
        np.testing.assert_allclose(found, np.asarray(value), rtol=0, atol=1e-9, err_msg=name)


def test_seeds_say_where_it_begins() -> None:
    T = triplets_of(1, 50, 6)
    for variant in VARIANTS:
        states: list[str] = []
        for seed in (0, 0, 1):
            np.random.seed(len(states))
            learner = OAHU(variant, seed=seed, **SMALL)
            learner.learn_triplets(*T)
            states.append(digest(learner.state()))
        assert states[0] == states[1] != states[2]


def test_the_isometric_beginning_ranks_like_the_cosine_of_lifted_vectors() -> None:
    learner = OAHU(dtype="float64", hidden=40)
    X = triplets_of(1, 30, 9)[0]
    begin(learner, 9)
    lifted = learner._lift.apply(X, 4.0)
    assert lifted[:, -1].tolist() == [1.0] * 30
    directions = lifted / np.linalg.norm(lifted, axis=1, keepdims=True)
    for f in learner._network.embed(lifted):
        np.testing.assert_allclose(f @ f.T, directions @ directions.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_where_blocks_end_changes_nothing_but_rounding(dtype: str) -> None:
    """The mean squared length has the same bits; products of chunks of triplets round differently."""
    draw = np.random.default_rng(3)
    X = 3.0 * draw.normal(size=(90, 6)) + 1.0
    whole = block(X, draw.integers(0, len(X), (512, 3)))
    learners = []
    for size in (1, 7, 256):
        learner = OAHU(dtype=dtype, **SMALL)
        for start in range(0, 512, size):
            learner.learn(rows_of(whole, slice(start, start + size)))
        learners.append(learner)
    for one, other in pairwise(learners):
        for name in ("accepted", "lift_count", "lift_sum"):
            assert one.state()[name] == other.state()[name]
        assert apart(one, other) < (1e-10 if dtype == "float64" else 1e-3)
    assert learners[0].state()["lift_count"] == 3 * math.ceil(MEASURED / 3)


def test_settings_are_refused_by_name() -> None:
    for name in ("path", "variant", "dtype", "scaler"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            OAHU(**{name: "other"})  # type: ignore[arg-type]
    for name in ("hedge", "initial", "gradient"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            varied("anchored", **{name: "other"})
    for value in (0.0, -1.0, math.nan, math.inf, "1", True):
        for name in ("eta", "tau", "share"):
            with pytest.raises(SettingsError, match=f"{name} must be"):
                OAHU(**{name: value})  # type: ignore[arg-type]
        for name in ("beta", "smoothing"):
            with pytest.raises(SettingsError, match=f"{name} must be"):
                varied("anchored", **{name: value})
    for name, value in (
        ("beta", 1.0),
        ("lift", -0.1),
        ("lift", math.inf),
        ("temperature", 0.0),
        ("pull", -1.0),
    ):
        with pytest.raises(SettingsError, match=f"{name} must be"):
            varied("anchored", **{name: value})
    for name, value in (("tau", 0.7), ("share", 1.1)):
        with pytest.raises(SettingsError, match=f"{name} must be"):
            OAHU(**{name: value})  # type: ignore[arg-type]
    for name, value in (("layers", -1), ("hidden", 1), ("seed", -1), ("layers", 1.5)):
        with pytest.raises(SettingsError, match=f"{name} must be a whole number"):
            OAHU(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="biases must be one of False, True"):
        varied(biases="yes")
    with pytest.raises(SettingsError, match="variant must be one of anchored, published"):
        varied("other")
    with pytest.raises(SettingsError, match="anchors must be one of euclidean, cosine, lifted"):
        varied(anchors=("manhattan",))
    with pytest.raises(SettingsError, match="anchors must be different ones"):
        varied(anchors=("cosine", "cosine"))
    with pytest.raises(SettingsError, match="has no setting depth"):
        create("oahu", depth=3)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"hedge": "literal", "biases": False, "beta": 0.99, "smoothing": 0.1}, None),
        ({"initial": "isometric", "lift": 0.25, "anchors": ["euclidean", "cosine", "lifted"]}, None),
        ({"variant": "published", "lift": 0.0, "pull": 0.0, "gradient": "hedge", "anchors": []}, None),
        ({"hidden": 9, "embedding": 4}, None),
        ({"device": "cpu", "unit": "length", "scaler": "zscore"}, None),
        ({"unit": "published"}, None),
        ({"anchors": [], "share": 1.0}, None),
        ({"hedge": "exp"}, "hedge was removed: it follows from `variant`"),
        ({"variant": "published", "lift": 0.25}, "lift was removed: it follows from `variant`"),
        ({"variant": ["published"], "lift": 0.0}, "lift was removed: it follows from `variant`"),
        ({"anchors": []}, "anchors was removed: .* `share = 1.0` for none"),
        ({"embedding": 20}, "embedding was removed: it is half of `hidden`"),
        ({"hidden": "9", "embedding": 4}, "embedding was removed: it is half of `hidden`"),
        ({"device": "cuda", "path": "torch"}, 'device was removed: write `path = "cuda"`'),
        ({"unit": "published", "scaler": "zscore"}, "unit was removed: scales always follow"),
    ],
    ids=str,
)
def test_settings_of_earlier_versions_are_read_where_they_change_nothing(
    given: dict[str, Any], instead: str | None
) -> None:
    if instead is not None:
        with pytest.raises(SettingsError, match=instead):
            create("oahu", **given)
        return
    now = {name: value for name, value in given.items() if name in settings_of("oahu")}
    states = []
    for one in (given, now):
        learner: Any = create("oahu", **one)
        learner.learn_triplets(*triplets_of(2, 20, 5))
        states.append((learner.algorithm, learner.embedding, digest(learner.state())))
    assert states[0] == states[1] and now != given


def test_a_share_of_one_is_the_vote_of_the_learned_metrics_alone() -> None:
    T = triplets_of(1, 40, 6)
    alone, none = OAHU(share=1.0, **SMALL), OAHU(varied(anchors=()), **SMALL)
    for learner in (alone, none):
        learner.learn_triplets(*T)
    assert list(alone.weights) == ["E0", "E1", "E2"]
    assert digest(alone.state()) == digest(none.state())


@pytest.mark.parametrize(
    "other",
    [
        {"layers": 1},
        {"layers": 3},
        {"hidden": 10},
        {"variant": varied(biases=True)},
        {"dtype": "float32"},
        {"batch": 3},
    ],
    ids=str,
)
def test_a_state_of_another_shape_is_refused(other: dict[str, Any]) -> None:
    mine: dict[str, Any] = {"dtype": "float64", **SMALL}
    T = triplets_of(1, 30, 4)
    one, another = OAHU(**mine), OAHU(**mine | other)
    one.learn_triplets(*T)
    another.learn_triplets(*T)
    for learner, state in ((one, another.state()), (another, one.state())):
        before = digest(learner.state())
        with pytest.raises(SettingsError, match="the state to restore is of another"):
            learner.restore(state)
        assert digest(learner.state()) == before
        assert learner.learn_triplets(*T).utilised.all()
