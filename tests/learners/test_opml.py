"""OPML and COPML are the closed form of the paper, at all scales and in small dimensions too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, prefix_blocks, singles, triplet_blocks
from tests.learners.published_unit import COPML, OPML
from tests.learners.reference import ReferenceOPML

DIMENSIONS = (1, 2, 3, 8, 30)
SCALES = (1e-4, 1e-2, 1.0, 30.0, 1e3)


@pytest.mark.parametrize("kernel", ["sequential", "blocked"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("d", DIMENSIONS)
def test_every_step_is_the_inverse_of_the_paper(d: int, scale: float, kernel: str) -> None:
    gamma = 0.05
    learner, reference = OPML(gamma, kernel=kernel), ReferenceOPML(d, gamma)
    for message in triplet_blocks(d, d, messages=3, m=20, scale=scale):
        for single in singles(message):
            x, similar, dissimilar = single.tables[0].vectors[single.index[0]].astype(float)
            before: NDArray[Any] = learner.L if learner.dimension else np.eye(d)
            reference.L = before
            wanted = reference.triplet(x, similar, dissimilar)
            found = learner.learn(single)
            if wanted["edge"] < 1e-9 or found.degenerate[0]:
                continue
            for name in ("mistake", "utilised", "clipped"):
                assert bool(getattr(found, name)[0]) == wanted[name], name
            assert found.loss[0] == pytest.approx(wanted["loss"], rel=1e-9, abs=1e-9)
            largest = max(np.abs(reference.L).max(), np.abs(before).max())
            np.testing.assert_allclose(learner.L, reference.L, rtol=0, atol=1e-8 * largest)


@pytest.mark.parametrize("kernel", ["sequential", "blocked"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("d", [1, 2, 21, 130])
def test_a_stream_ends_where_the_reference_ends(d: int, dtype: str, tolerance: float, kernel: str) -> None:
    gamma = 1e-3
    learner, reference = OPML(gamma, dtype=dtype, kernel=kernel), ReferenceOPML(d, gamma)
    utilised = 0
    for message in triplet_blocks(5, d, messages=3, m=100):
        utilised += learner.learn(message).counts().utilised
        for rows in message.index:
            x, similar, dissimilar = message.tables[0].vectors[rows].astype(float)
            reference.triplet(x, similar, dissimilar)
    assert utilised > 20
    np.testing.assert_allclose(learner.L, reference.L, rtol=0, atol=tolerance * np.abs(reference.L).max())


@pytest.mark.parametrize("seed", range(20))
def test_determinant_and_margin(seed: int) -> None:
    draw = np.random.default_rng(seed)
    d = int(draw.integers(1, 9))
    scale = 10.0 ** draw.uniform(-4, 3)
    gamma = 10.0 ** draw.uniform(-4, -1)
    for _ in range(20):
        learner = OPML(gamma)
        learner.restore({"accepted": 0, "L": draw.normal(size=(d, d)) + 2.0 * np.eye(d)})
        triplet = scale * draw.normal(size=(3, 1, d))
        before = learner.L
        value = np.diff(learner.distance(np.repeat(triplet[0], 2, 0), triplet[1:, 0]))[0]
        outcomes = learner.learn_triplets(*triplet)
        after = np.diff(learner.distance(np.repeat(triplet[0], 2, 0), triplet[1:, 0]))[0]
        if not outcomes.utilised[0]:
            assert np.array_equal(learner.L, before)
            continue
        # far - near never shrinks on the triplet just learned, and det L keeps its sign: I + gamma A is
        # positive.
        assert after >= value - 1e-9 * abs(value)
        x, similar, dissimilar = triplet[:, 0]
        A = np.outer(x - similar, x - similar) - np.outer(x - dissimilar, x - dissimilar)
        least = np.linalg.eigvalsh(A)[0]
        step = 0.9 / -least if outcomes.clipped[0] else gamma
        det = np.linalg.det(np.eye(d) + step * A)
        assert det > 0
        assert np.linalg.det(learner.L) * det == pytest.approx(np.linalg.det(before), rel=1e-6)


@pytest.mark.parametrize("kernel", ["sequential", "blocked"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_map_stays_finite_when_the_scale_is_hopeless(dtype: str, kernel: str) -> None:
    learner = OPML(0.5, dtype=dtype, kernel=kernel)
    for message in triplet_blocks(1, 3, messages=10, m=100, scale=1e3):
        noise = replace(message, index=np.random.default_rng(0).permuted(message.index, axis=1))
        outcomes = learner.learn(noise)
        assert np.isfinite(learner.L).all()
        assert not (outcomes.utilised & outcomes.rejected).any()


def test_raw_rejects_what_the_closed_form_does_not_define() -> None:
    # gamma bb = 1 exactly, a = 0: det(I + gamma A) = 0.
    X = np.array([[0.0], [0.0], [2.0], [0.5]])
    index = np.array([[0, 1, 2], [0, 1, 3]])
    learner = OPML(0.25, guard="raw")
    learner.restore({"accepted": 0, "L": np.array([[0.1]])})
    outcomes = learner.learn(block(X, index))
    assert outcomes.rejected.tolist() == [True, False]
    assert outcomes.utilised.tolist() == [False, True]
    assert OPML(0.25).learn(block(X, index)).counts().rejected == 0


def test_a_step_that_would_turn_a_direction_round_is_rejected_or_clipped() -> None:
    X = np.array([[0.0], [1.0], [2.0]])
    start: State = {"accepted": 0, "L": np.array([[0.1]])}
    raw, clip = OPML(1.0, guard="raw"), OPML(1.0)
    raw.restore(start)
    clip.restore(start)
    message = block(X, np.array([[0, 1, 2]]))
    assert raw.learn(message).rejected[0]
    assert raw.L[0, 0] == 0.1
    assert clip.learn(message).clipped[0]
    assert clip.L[0, 0] == pytest.approx(1.0)


def test_normalise_sees_the_same_at_every_scale() -> None:
    maps = []
    for scale in (1.0, 1024.0):
        learner = OPML(0.2, guard="normalise")
        for message in triplet_blocks(6, 4, scale=1.0):
            vectors = message.tables[0].vectors * np.float32(scale)
            learner.learn(replace(message, tables=(replace(message.tables[0], vectors=vectors),)))
        maps.append(learner.L)
        assert learner.transform(vectors).shape == vectors.shape
    np.testing.assert_array_equal(maps[0], maps[1])


def test_two_halves_of_a_mirror_are_degenerate() -> None:
    X = np.array([[0.0, 0.0], [1.0, 2.0], [-1.0, -2.0]])
    outcomes = OPML().learn(block(X, np.array([[0, 1, 2], [0, 1, 1], [0, 0, 1]])))
    assert outcomes.degenerate.tolist() == [True, True, False]
    assert outcomes.mistake.tolist() == [1, 1, 0]
    assert outcomes.loss.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("d", DIMENSIONS)
def test_prefix_pairs_are_the_inverse_of_the_paper(d: int, scale: float) -> None:
    gamma = 0.3
    learner, reference = COPML(gamma1=gamma), ReferenceOPML(d, gamma)
    for message in prefix_blocks(d, d, scale=scale):
        left, right = message.tables[0].vectors[message.index.T].astype(float)
        for x, previous in zip(left, right, strict=True):
            reference.pair(x, previous, gamma)
        outcomes = learner.learn(message)
        assert (outcomes.mistake == -1).all()
        assert (outcomes.utilised == ~outcomes.degenerate).all()
        assert outcomes.counts().scored == 0
    np.testing.assert_allclose(learner.L, reference.L, rtol=0, atol=1e-8 * np.abs(reference.L).max())


def test_a_prefix_pair_shrinks_by_the_square_of_the_closed_form() -> None:
    x, y = np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])
    learner = COPML(gamma1=0.1)
    learner.learn_pairs(x, y)
    assert learner.distance(x, y)[0] == pytest.approx(5.0 * (1.0 + 0.1 * 5.0) ** -2)


def test_the_prefix_can_be_capped() -> None:
    learner = COPML(max_prefix_updates=12)
    updates = [learner.learn(message).counts().utilised for message in prefix_blocks(1, 3, messages=3)]
    assert updates == [9, 3, 0]
    assert learner.prefix_updates == 12


def test_other_pairs_are_ignored() -> None:
    learner = COPML()
    X = np.eye(3)
    pairs = block(X, np.array([[0, 1], [1, 2]]), Kind.PAIR)
    mixed = replace(pairs, rules=(*pairs.rules, "clicks"), rule=np.array([1, 0], np.uint8))
    outcomes = learner.learn(mixed)
    assert outcomes.ignored.tolist() == [True, False]
    assert outcomes.utilised.tolist() == [False, True]
    assert learner.accepted == 1


def test_without_a_prefix_copml_is_opml() -> None:
    one, other = OPML(1e-2), COPML(gamma1=0.5, gamma2=1e-2)
    for message in triplet_blocks(8, 6):
        one.learn(message)
        other.learn(message)
    np.testing.assert_array_equal(one.L, other.L)


def test_opml_takes_no_pairs() -> None:
    with pytest.raises(BadRecord, match="opml/1 learns from triplets, not pairs"):
        OPML().learn(prefix_blocks(1, 2)[0])


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), float("inf"), True, "1"])
def test_hyper_parameters_are_refused_by_name(gamma: float) -> None:
    with pytest.raises(SettingsError, match="gamma must be"):
        OPML(gamma)
    with pytest.raises(SettingsError, match="gamma1 must be"):
        COPML(gamma1=gamma)
    with pytest.raises(SettingsError, match="gamma2 must be"):
        COPML(gamma2=gamma)


def test_other_hyper_parameters_are_refused_by_name() -> None:
    for name in ("guard", "dtype", "scaler", "kernel"):
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            OPML(**{name: "other"})
    with pytest.raises(SettingsError, match=r"gamma must be above 0 and below 0\.25"):
        OPML(0.25, guard="normalise")
    with pytest.raises(SettingsError, match="max_prefix_updates must be"):
        COPML(max_prefix_updates=-1)


def test_a_float32_model_is_float32_throughout() -> None:
    learner = OPML(dtype="float32")
    X = triplet_blocks(1, 5)[0].tables[0].vectors
    learner.learn(triplet_blocks(1, 5)[0])
    assert learner.L.dtype == learner.transform(X).dtype == learner.distance(X, X).dtype == np.float32
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        OPML().restore(learner.state())


@pytest.mark.parametrize("kernel", ["sequential", "blocked"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_by_default_a_gamma_far_too_large_ends_neither_in_infinity_nor_in_silence(
    dtype: str, kernel: str
) -> None:
    learner = OPML(1.0, dtype=dtype, kernel=kernel)
    for message in triplet_blocks(4, 6, messages=40, m=50, scale=1e3):
        counts = learner.learn(message).counts()
        assert counts.rejected == 0
        assert np.isfinite(counts.loss_sum)
    assert counts.clipped == counts.utilised > 0
    assert 1e6 < np.abs(learner.L).max() <= 1.000001e9
