"""OMDML takes the printed step, stays in the cone and on the simplex, and survives bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.base.several_modalities import LEAST_WEIGHT
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import Kind, Table
from kinstream.testing.blocks import prefix_blocks, singles
from kinstream.testing.learners import digest
from tests.learners.multi import NAMES, features, multi_blocks, tables
from tests.learners.published_unit import OMDML

SIZES = st.lists(st.sampled_from([1, 2, 3, 17, 64]), min_size=1, max_size=3)
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 30.0, 1e3])


def projected(matrix: NDArray[Any]) -> NDArray[Any]:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def parts(message: Any) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """a and b of the only triplet of a block, in every modality."""
    found = []
    for table in message.tables:
        x, similar, other = table.vectors[message.index[0]].astype(np.float64)
        found.append((x - similar, x - other))
    return found


@given(SIZES, SCALES, st.integers(0, 99), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([1e-3, 0.1, 1.0]))
@settings(max_examples=25, deadline=None)
def test_every_step_is_the_printed_one(
    sizes: list[int], scale: float, seed: int, margin: float, aggressiveness: float
) -> None:
    learner = OMDML(0.9, aggressiveness, margin)
    for single in [one for message in multi_blocks(seed, sizes, 2, 12, scale) for one in singles(message)]:
        before, theta = (
            learner.matrices or {n: np.eye(d) for n, d in zip(NAMES, sizes, strict=False)},
            learner.weights,
        )
        theta = theta or dict.fromkeys(before, 1.0 / len(before))
        outcomes = learner.learn(single)
        ab = dict(zip(before, parts(single), strict=True))
        f = {n: float(a @ before[n] @ a - b @ before[n] @ b) for n, (a, b) in ab.items()}
        size = {n: float(a @ before[n] @ a + b @ before[n] @ b) for n, (a, b) in ab.items()}
        fused = sum(theta[n] * f[n] for n in f)
        if outcomes.degenerate[0] or any(abs(f[n]) < 1e-9 * size[n] for n in f):
            continue
        assert outcomes.mistake[0] == (fused >= 0.0)
        assert outcomes.loss[0] == pytest.approx(
            max(0.0, fused + margin), rel=1e-9, abs=1e-9 * sum(size.values())
        )
        if fused + margin <= 0.0:
            assert not outcomes.utilised[0] and learner.weights == theta
            assert all(np.array_equal(learner.matrices[name], before[name]) for name in before)
            continue
        wanted = {n: theta[n] * 0.9 ** (f[n] > 0.0) for n in f}
        for name, (a, b) in ab.items():
            V = np.outer(a, a) - np.outer(b, b)
            length = float(np.sum(V * V))
            tau = min(aggressiveness, max(0.0, f[name] + 1.0) / length) if length else 0.0
            M = projected(before[name] - tau * V) if tau else before[name]
            found = learner.matrices[name]
            np.testing.assert_allclose(
                found, M, rtol=0, atol=1e-9 * max(np.abs(before[name]).max(), tau * float(a @ a + b @ b))
            )
            np.testing.assert_array_equal(found, found.T)
            assert learner.weights[name] == pytest.approx(wanted[name] / sum(wanted.values()), rel=1e-12)
            after = float(a @ found @ a - b @ found @ b)
            assert max(0.0, after + 1.0) <= max(0.0, f[name] + 1.0) + 1e-9 * (1.0 + size[name])


@given(SIZES, SCALES, st.integers(0, 99), st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_matrices_stay_in_the_cone_and_weights_on_the_simplex(
    sizes: list[int], scale: float, seed: int, every: int
) -> None:
    learner = OMDML(0.8, 1.0, 1.0, psd_every=every)
    for message in multi_blocks(seed, sizes, 2, 30, scale):
        outcomes = learner.learn(message)
        assert outcomes.rejected.sum() == 0
    weights = np.array(list(learner.weights.values()))
    assert (weights > 0.0).all() and weights.sum() == pytest.approx(1.0)
    pending = learner.state().get("pending", np.zeros(len(sizes)))
    for number, matrix in zip(np.asarray(pending), learner.matrices.values(), strict=True):
        values = np.linalg.eigvalsh(matrix)
        assert number < every
        assert number > 0 or values[0] >= -1e-10 * max(1.0, values[-1])


def test_between_projections_a_matrix_may_be_indefinite_and_the_metric_is_not() -> None:
    X = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 0.5], [0.0, 3.0]])
    message = tables([X], np.array([[0, 1, 2]]))
    now, later = OMDML(aggressiveness=1.0), OMDML(aggressiveness=1.0, psd_every=2)
    now.learn(message)
    later.learn(message)
    assert np.linalg.eigvalsh(now.matrices["shape"])[0] >= -1e-12
    assert np.linalg.eigvalsh(later.matrices["shape"])[0] < -0.04
    np.testing.assert_allclose(projected(later.matrices["shape"]), now.matrices["shape"], atol=1e-12)
    assert (later.distance(X[1:], X[:-1]) >= 0.0).all()
    np.testing.assert_allclose(later.transform(X), now.transform(X), atol=1e-7)
    later.learn(replace(message, index=np.array([[0, 3, 2]], np.int32)))
    assert np.linalg.eigvalsh(later.matrices["shape"])[0] >= -1e-12


def test_projecting_later_is_another_model_and_projecting_at_once_the_same() -> None:
    blocks = multi_blocks(5, (4, 3))
    states = []
    for every in (1, 4):
        learner = OMDML(margin=1.0, psd_every=every)
        for message in blocks:
            learner.learn(message)
        states.append(learner.matrices["shape"])
    assert not np.allclose(states[0], states[1])


@given(SIZES, SCALES, st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_the_metric_is_the_weighted_sum(sizes: list[int], scale: float, seed: int) -> None:
    learner = OMDML(0.8, margin=1.0)
    message = multi_blocks(seed, sizes, 1, 30, scale)[0]
    learner.learn(message)
    X = features(message)
    Y = {name: table[::-1] for name, table in X.items()}
    wanted, longest = np.zeros(len(X["shape"])), 0.0
    for name, M in learner.matrices.items():
        z = X[name].astype(np.float64) - Y[name]
        wanted += learner.weights[name] * np.einsum("ij,jk,ik->i", z, M, z)
        longest = max(longest, float(np.sum(z * z, axis=1).max()))
    # A matrix that was emptied keeps entries of the size of its rounding.
    atol = 1e-7 * wanted.max() + 1e-12 * longest
    np.testing.assert_allclose(learner.distance(X, Y), wanted, rtol=0, atol=atol)
    mapped = learner.transform(X)
    assert mapped.shape == (len(X["shape"]), sum(sizes))
    np.testing.assert_allclose(np.sum((mapped - mapped[::-1]) ** 2, axis=1), wanted, rtol=0, atol=10 * atol)


def test_one_modality_weighs_one() -> None:
    learner = OMDML(0.5, margin=1.0)
    for message in multi_blocks(1, (5,)):
        learner.learn(message)
        assert learner.weights == {"shape": 1.0}


def test_weights_count_mistakes_and_come_back() -> None:
    """The second modality is always wrong, then always right."""
    good, bad = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0], [1.0]])
    index = np.tile([0, 1, 2], (100, 1))
    learner = OMDML(0.5, 1e-12, 1e6)
    learner.learn(tables([good, bad], index))
    least = learner.weights["colour"] / learner.weights["shape"]
    assert LEAST_WEIGHT / 2.0 <= least <= LEAST_WEIGHT
    learner.learn(tables([bad, good], index[:40]))
    assert learner.weights == {"shape": 0.5, "colour": 0.5}


def test_theta_alone_may_change() -> None:
    """No room for a step: C is so small that the matrices keep their bits."""
    learner = OMDML(0.9, 1e-300, 1e6)
    outcomes = learner.learn(
        tables([np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0], [1.0]])], np.array([[0, 1, 2]]))
    )
    assert outcomes.utilised[0]
    assert learner.matrices["shape"].tolist() == [[1.0]]
    assert learner.weights["shape"] == pytest.approx(1.0 / 1.9)
    outcomes = OMDML(0.9, 1e-300, 1e6).learn(tables([np.array([[0.0], [1.0], [2.0]])], np.array([[0, 1, 2]])))
    assert not outcomes.utilised[0] and outcomes.loss[0] > 0


def test_what_overflows_is_rejected_and_the_stream_goes_on() -> None:
    learner = OMDML(dtype="float32", margin=1.0)
    far = np.array([[0.0, 0.0], [3e38, 0.0], [-3e38, 1.0], [1.0, 0.0], [0.0, 1.0]])
    near = np.array([[0.0], [1.0], [0.5], [1.0], [0.0]])
    outcomes = learner.learn(tables([far, near], np.array([[1, 2, 3], [0, 3, 4]] * 3)))
    assert outcomes.rejected.tolist() == [True, False] * 3
    assert outcomes.utilised.any()
    assert all(np.isfinite(matrix).all() for matrix in learner.matrices.values())


def test_one_bad_modality_rejects_the_row() -> None:
    message = multi_blocks(1, (3, 2))[0]
    spoiled = message.tables[1].vectors.copy()
    spoiled[message.index[4, 1], 0] = np.nan
    touched = (message.index == message.index[4, 1]).any(axis=1)
    wrong = replace(message, tables=(message.tables[0], Table("colour", spoiled)))
    assert OMDML().learn(wrong).rejected.tolist() == touched.tolist()


def test_modalities_that_do_not_fit_are_refused() -> None:
    learner = OMDML()
    message = multi_blocks(1, (3, 2))[0]
    learner.learn(message)
    before = digest(learner.state())
    shape, colour = message.tables
    for wrong in (
        (shape,),
        (shape, Table("text", colour.vectors)),
        (shape, colour, colour),
        (shape, Table("colour", colour.vectors[:-1])),
        (shape, Table("colour", colour.vectors[:, :1])),
        (shape, Table("colour", colour.vectors[:, 0])),
        (shape, Table("colour", colour.vectors[:, :0])),
    ):
        with pytest.raises(BadRecord):
            learner.learn(replace(message, tables=wrong))
        with pytest.raises(BadRecord):
            OMDML().learn(
                replace(message, tables=(*wrong[:-1], Table("colour", colour.vectors[:-1]))[::-1] + wrong[:1])
            )
    with pytest.raises(BadRecord, match="omdml/1 learns from triplets, not pairs"):
        learner.learn(prefix_blocks(1, 2)[0])
    assert digest(learner.state()) == before


def test_features_that_do_not_fit_are_refused() -> None:
    learner = OMDML()
    message = multi_blocks(1, (3, 2))[0]
    assert learner.transform(features(message)).shape == (44, 5)
    learner.learn(message)
    X = features(message)
    for wrong in (
        X["shape"],
        {"shape": X["shape"]},
        X | {"text": X["shape"]},
        X | {"colour": X["colour"][:4]},
    ):
        with pytest.raises(ValueError):
            learner.transform(wrong)
    with pytest.raises(ValueError, match="same shapes"):
        learner.distance(X, {name: table[:3] for name, table in X.items()})
    with pytest.raises(ValueError):
        learner.learn_triplets(X, X, {name: table[:3] for name, table in X.items()})
    with pytest.raises(ValueError, match="no dimension"):
        _ = OMDML().maps


def test_a_single_table_is_the_only_modality() -> None:
    draw = np.random.default_rng(1)
    triplets = draw.normal(size=(3, 30, 4))
    one, other = OMDML(margin=1.0), OMDML(margin=1.0)
    one.learn_triplets(*triplets)
    other.learn_triplets(*({"x": role} for role in triplets))
    assert digest(one.state()) == digest(other.state())
    np.testing.assert_array_equal(one.transform(triplets[0]), other.transform({"x": triplets[0]}))


def test_a_scaler_for_every_modality() -> None:
    learner = OMDML(scaler="minmax", warm_up=30, margin=1.0)
    blocks = multi_blocks(1, (3, 2), scale=50.0)
    assert learner.learn(blocks[0]).counts().utilised < 40
    for message in blocks[1:]:
        learner.learn(message)
    scaled = learner.scale(features(blocks[0]))
    assert scaled.shape == (44, 5)
    assert np.isclose(scaled[:30].min(axis=0), 0.0, atol=0.5).all()
    affine = learner.affine()
    assert {name: found is not None for name, found in affine.items()} == {"shape": True, "colour": True}
    shift, factor = affine["colour"] or (0.0, 0.0)
    np.testing.assert_allclose((features(blocks[0])["colour"] - shift) * factor, scaled[:, 3:], rtol=1e-6)


def test_a_float32_model_is_float32_throughout() -> None:
    learner = OMDML(dtype="float32", margin=1.0)
    message = multi_blocks(1, (3, 2))[0]
    learner.learn(message)
    X = features(message)
    assert learner.transform(X).dtype == learner.distance(X, X).dtype == np.float32
    assert {matrix.dtype for matrix in learner.matrices.values()} == {np.dtype(np.float32)}
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        OMDML().restore(learner.state())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beta", 0.0),
        ("beta", 1.0),
        ("aggressiveness", 0.0),
        ("aggressiveness", float("nan")),
        ("margin", -0.1),
        ("margin", float("inf")),
        ("margin", True),
        ("psd_every", 0),
        ("dtype", "float16"),
        ("scaler", "robust"),
        ("warm_up", 1),
    ],
)
def test_hyper_parameters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} must be"):
        OMDML(**{name: value})


def test_it_takes_triplets_of_any_rule() -> None:
    assert OMDML().accepts == {Kind.TRIPLET} and OMDML().form is Kind.TRIPLET


def test_warm_up_leaves_nothing_to_compile() -> None:
    from kinstream.learners.kernels.several_modalities import omdml

    warm_up("omdml")
    kernel: Any = omdml.triplets
    before = len(kernel.signatures)
    OMDML(margin=1.0).learn(multi_blocks(1, (3, 2, 1))[0])
    assert len(kernel.signatures) == before
