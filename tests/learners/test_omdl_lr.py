"""The reconstruction of OMDL-LR is OMDML on kernel embeddings, with a pull towards a graph's neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.models.export import export
from kinstream.learners.several_modalities.omdl_lr import laplacian
from kinstream.learners.several_modalities.omks import mean_distance
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ConstraintBlock, ModelVersion
from kinstream.testing.blocks import prefix_blocks, rows_of, singles
from tests.learners.multi import NAMES, features, multi_blocks, tables
from tests.learners.published_unit import OMDLLR, OMDML

SIZES = st.lists(st.sampled_from([1, 2, 3, 17, 64]), min_size=1, max_size=2)
SCALES = st.sampled_from([1e-4, 1.0, 1e3])


def learned(sizes: tuple[int, ...], *, messages: int = 2, scale: float = 1.0, **arguments: Any) -> OMDLLR:
    """A learner whose warm-up is over."""
    learner = OMDLLR(**{"rank": 8, "warm_up": 25, "margin": 1.0} | arguments)
    for message in multi_blocks(1, sizes, messages, 40, scale):
        learner.learn(message)
    return learner


def embedded(learner: OMDLLR, name: str, X: NDArray[Any]) -> NDArray[Any]:
    """e_i(x) of the rows of X (n, d), from the state."""
    state = learner.state()
    landmarks, factor = np.asarray(state[f"landmarks.{name}"]).T, np.asarray(state[f"factor.{name}"])
    rate = np.asarray(state["rate"])[[one for one, _ in learner.modalities].index(name)]
    k = np.exp(-rate * np.array([np.sum((landmarks - row) ** 2, axis=1) for row in X.astype(np.float64)]))
    return np.asarray(k @ factor)


def test_coordinates_reproduce_the_kernel_on_the_landmarks() -> None:
    learner = learned((3, 2), rank=25)
    for place, name in enumerate(NAMES[:2]):
        landmarks = np.asarray(learner.state()[f"landmarks.{name}"]).T
        assert landmarks.shape[0] == 25
        e = embedded(learner, name, landmarks)
        squared = np.array([np.sum((landmarks - row) ** 2, axis=1) for row in landmarks])
        rate = 0.5 / mean_distance(landmarks) ** 2
        assert np.asarray(learner.state()["rate"])[place] == pytest.approx(rate)
        np.testing.assert_allclose(e @ e.T, np.exp(-rate * squared), atol=1e-8)


@given(SIZES, SCALES, st.sampled_from([0.0, 1e-3, 1.0]))
@settings(max_examples=10, deadline=None)
def test_every_step_is_one_of_omdml_and_a_pull(sizes: list[int], scale: float, smoothness: float) -> None:
    learner = learned(tuple(sizes), scale=scale, smoothness=smoothness, beta=0.9)
    for single in singles(multi_blocks(7, sizes, 1, 12, scale)[0]):
        before, theta = learner.matrices, learner.weights
        outcomes = learner.learn(single)
        ab = {}
        for table in single.tables:
            x, similar, other = embedded(learner, table.name, table.vectors[single.index[0]])
            ab[table.name] = x - similar, x - other
        f = {n: float(a @ before[n] @ a - b @ before[n] @ b) for n, (a, b) in ab.items()}
        fused = sum(theta[n] * f[n] for n in f)
        if outcomes.degenerate[0] or any(abs(value) < 1e-9 for value in f.values()):
            continue
        assert outcomes.mistake[0] == (fused >= 0.0)
        if fused + 1.0 <= 0.0:
            continue
        for name, (a, b) in ab.items():
            V = np.outer(a, a) - np.outer(b, b)
            length = float(np.sum(V * V))
            tau = min(0.1, max(0.0, f[name] + 1.0) / length) if length else 0.0
            M = projected(before[name] - tau * V)
            M = projected(M - np.asarray(learner.state()[f"pull.{name}"]))
            np.testing.assert_allclose(
                learner.matrices[name], M, rtol=0, atol=1e-8 * max(1.0, np.abs(M).max())
            )


def projected(matrix: NDArray[Any]) -> NDArray[Any]:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def test_without_a_pull_it_is_omdml_on_the_embeddings() -> None:
    learner = learned((3, 2), smoothness=0.0)
    before = learner.matrices, learner.weights
    plain = OMDML(margin=1.0)
    message = multi_blocks(9, (3, 2))[0]
    other = as_embedded(learner, message)
    plain.learn(rows_of(other, slice(0, 0)))
    nothing = tables([np.full((1, d), np.nan) for d in (8, 8)], np.zeros((1, 3)))
    plain.learn(nothing)
    state = plain.state()
    state |= {f"M.{name}": M for name, M in before[0].items()} | {"behind": learner.state()["behind"]}
    plain.restore(state)
    np.testing.assert_array_equal(learner.learn(message).mistake, plain.learn(other).mistake)
    for name, M in plain.matrices.items():
        np.testing.assert_allclose(learner.matrices[name], M, atol=1e-5)


def as_embedded(learner: OMDLLR, message: ConstraintBlock) -> ConstraintBlock:
    parts = [embedded(learner, table.name, table.vectors) for table in message.tables]
    return tables(parts, message.index)


def test_the_pull_draws_neighbours_together() -> None:
    free, pulled = (learned((3, 2), smoothness=s, aggressiveness=1e-9) for s in (0.0, 0.1))
    X = {name: np.asarray(free.state()[f"landmarks.{name}"]).T for name in NAMES[:2]}
    L = laplacian(X["shape"], 3)
    i, j = np.argwhere(L < 0)[0]
    one, other = ({name: part[[row]] for name, part in X.items()} for row in (i, j))
    assert pulled.distance(one, other)[0] < 0.9 * free.distance(one, other)[0]


def test_the_laplacian_is_that_of_the_nearest_neighbours() -> None:
    L = laplacian(np.array([[0.0], [1.0], [3.0], [3.5]]), 1)
    assert L.tolist() == [[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, -1], [0, 0, -1, 1]]
    draw = np.random.default_rng(1).normal(size=(30, 4))
    L = laplacian(draw, 5)
    assert (L == L.T).all() and (L.sum(axis=1) == 0).all() and np.diag(L).min() >= 5
    assert np.linalg.eigvalsh(L)[0] > -1e-12
    assert laplacian(np.zeros((1, 2)), 5).tolist() == [[0.0]]


@given(SIZES, SCALES)
@settings(max_examples=8, deadline=None)
def test_matrices_stay_in_the_cone_and_weights_on_the_simplex(sizes: list[int], scale: float) -> None:
    learner = learned(tuple(sizes), scale=scale, beta=0.8, aggressiveness=1.0, smoothness=0.1)
    assert sum(learner.weights.values()) == pytest.approx(1.0)
    for matrix in learner.matrices.values():
        values = np.linalg.eigvalsh(matrix)
        assert values[0] >= -1e-10 * max(1.0, values[-1])


def test_coordinates_do_not_depend_on_the_rows_beside_them() -> None:
    learner = learned((3, 2))
    X = features(multi_blocks(3, (3, 2))[0])
    one_by_one = [learner.transform({n: table[[row]] for n, table in X.items()}) for row in range(20)]
    together = learner.transform({n: table[:20] for n, table in X.items()})
    np.testing.assert_allclose(np.concatenate(one_by_one), together, rtol=0, atol=1e-13)
    blocks = multi_blocks(4, (3, 2))
    whole, apart = learned((3, 2)), learned((3, 2))
    for message in blocks:
        whole.learn(message)
        for single in singles(message):
            apart.learn(single)
    assert {n: M.tobytes() for n, M in whole.matrices.items()} == {
        n: M.tobytes() for n, M in apart.matrices.items()
    }


def test_equal_vectors_are_one_landmark() -> None:
    X = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    learner = OMDLLR(warm_up=2, margin=1.0)
    outcomes = learner.learn(tables([X], np.array([[0, 1, 2]] * 20)))
    assert outcomes.degenerate.sum() == 12 and not outcomes.utilised.any()
    assert learner.transform(X).shape == (3, 1)


def test_what_does_not_fit_is_refused() -> None:
    learner = learned((3, 2), dtype="float32")
    with pytest.raises(BadRecord):
        learner.learn(multi_blocks(1, (3, 4))[0])
    with pytest.raises(BadRecord, match="learns from triplets"):
        learner.learn(prefix_blocks(1, 2)[0])
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        OMDLLR().restore(learner.state())
    version = ModelVersion("s", "l", "omdl-lr-like/1", 1, 1, 0, "t", 0, 0, "", "", 0)
    with pytest.raises(SettingsError, match="omdl-lr-like/11 is not a linear map and has no such export"):
        export(learner, version, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", 0),
        ("aggressiveness", 0.0),
        ("smoothness", -1.0),
        ("eta", 0.0),
        ("neighbours", 0),
        ("beta", 1.0),
        ("margin", -1.0),
        ("dtype", "float16"),
        ("scaler", "robust"),
        ("warm_up", 1),
    ],
)
def test_hyper_parameters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} must be"):
        OMDLLR(**{name: value})
