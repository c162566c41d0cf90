"""OMKS is OASIS where its kernel is linear, keeps its budget, and says what its similarity is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.base.scaler import PUBLISHED
from kinstream.learners.models.export import export
from kinstream.learners.registry import create, names
from kinstream.learners.several_modalities.omks import mean_distance
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ModelVersion
from kinstream.testing.blocks import prefix_blocks, singles, triplet_blocks
from tests.learners.multi import features, multi_blocks, tables
from tests.learners.published_unit import OMKS

DIMENSIONS = st.sampled_from([1, 2, 3, 17, 64])
SCALES = st.sampled_from([1e-4, 1.0, 1e3])


def matrix(learner: OMKS, d: int) -> NDArray[Any]:
    """W of a linear kernel in one modality: similarities between unit vectors."""
    rows, columns = np.meshgrid(np.arange(d), np.arange(d), indexing="ij")
    unit = np.eye(d)
    return learner.similarity(unit[rows.ravel()], unit[columns.ravel()]).reshape(d, d)


@given(DIMENSIONS, SCALES, st.integers(0, 99), st.sampled_from([1e-3, 0.1, 1e3]))
@settings(max_examples=20, deadline=None)
def test_a_linear_kernel_is_oasis(d: int, scale: float, seed: int, aggressiveness: float) -> None:
    learner, W = OMKS("linear", 500, aggressiveness=aggressiveness), np.eye(d)
    for single in [one for message in triplet_blocks(seed, d, 2, 15, scale) for one in singles(message)]:
        x, similar, other = single.tables[0].vectors[single.index[0]].astype(np.float64)
        near, far = float(x @ W @ similar), float(x @ W @ other)
        size = float(np.abs(x) @ np.abs(W) @ (np.abs(similar) + np.abs(other)))
        outcomes = learner.learn(single)
        if abs(near - far) > 1e-9 * size:
            assert outcomes.mistake[0] == (near <= far)
        loss = max(0.0, 1.0 - near + far)
        assert outcomes.loss[0] == pytest.approx(loss, rel=1e-6, abs=1e-8 * (1.0 + size))
        v = similar - other
        square = float(x @ x) * float(v @ v)
        if not outcomes.degenerate[0] and outcomes.utilised[0] and square > 0.0:
            W += min(aggressiveness, loss / square) * np.outer(x, v)
    np.testing.assert_allclose(matrix(learner, d), W, rtol=0, atol=1e-6 * np.abs(W).max())
    assert learner.weights == {"x": 1.0}


@pytest.mark.skipif("oasis" not in names(), reason="there is no OASIS to compare with")
def test_a_linear_kernel_is_the_learner_oasis() -> None:
    one, other = OMKS("linear", 500, aggressiveness=0.2), create("oasis", aggressiveness=0.2, unit=PUBLISHED)
    for message in triplet_blocks(3, 6, 3, 40):
        found, wanted = one.learn(message), other.learn(message)
        np.testing.assert_array_equal(found.mistake, wanted.mistake)
        np.testing.assert_array_equal(found.utilised, wanted.utilised)
        np.testing.assert_allclose(found.loss, wanted.loss, rtol=1e-9, atol=1e-12)


def by_hand(learner: OMKS, name: str, kernel: str, x: NDArray[Any], y: NDArray[Any]) -> float:
    """The similarity of one expert from its state."""
    state = learner.state()
    sizes = dict(learner.modalities)
    lo = 0
    for modality, size in learner.modalities:
        if modality == name:
            break
        lo += size
    columns = slice(lo, lo + sizes[name])
    rate = 0.5 / learner.bandwidths[name] ** 2

    def k(u: NDArray[Any], v: NDArray[Any]) -> float:
        return float(u @ v) if kernel == "linear" else float(np.exp(-rate * np.sum((u - v) ** 2)))

    expert = learner.experts.index(name if len(learner.kernels) == 1 else f"{name}/{kernel}")
    total = k(x, y)
    rows = zip(*(np.asarray(state[n]) for n in ("anchors", "positives", "negatives", "tau")), strict=True)
    for anchor, positive, negative, tau in rows:
        total += tau[expert] * k(x, anchor[columns]) * (k(positive[columns], y) - k(negative[columns], y))
    return total


@pytest.mark.parametrize("drop", ["oldest", "smallest"])
def test_the_fused_similarity_is_the_expansion(drop: str) -> None:
    learner = OMKS(["rbf", "linear"], 15, 0.9, 0.3, drop=drop, bandwidth=1.5)
    for message in multi_blocks(2, (3, 2)):
        learner.learn(message)
    assert set(learner.weights) == {"shape/rbf", "shape/linear", "colour/rbf", "colour/linear"}
    assert sum(learner.weights.values()) == pytest.approx(1.0)
    X = {name: table.astype(np.float64)[:4] for name, table in features(message).items()}
    Y = {name: table.astype(np.float64)[4:8] for name, table in features(message).items()}
    wanted = np.zeros(4)
    for expert, weight in learner.weights.items():
        name, kernel = expert.split("/")
        wanted += [weight * by_hand(learner, name, kernel, X[name][n], Y[name][n]) for n in range(4)]
    np.testing.assert_allclose(learner.similarity(X, Y), wanted, rtol=1e-10)


@pytest.mark.parametrize("kernels", ["linear", "rbf", ["linear", "rbf"]])
def test_the_mistake_is_that_of_the_fused_similarity(kernels: Any) -> None:
    learner = OMKS(kernels, 12, 0.8, bandwidth=1.0)
    stream = [one for message in multi_blocks(4, (3, 2)) for one in singles(message)]
    learner.learn(stream[0])
    for single in stream[1:]:
        x, near, far = ({n: t[[row]] for n, t in features(single).items()} for row in single.index[0])
        margin = float((learner.similarity(x, near) - learner.similarity(x, far))[0])
        outcomes = learner.learn(single)
        assert abs(margin) < 1e-12 or outcomes.mistake[0] == (margin <= 0.0)


def test_the_support_set_keeps_its_budget_and_drops_as_told() -> None:
    oldest, smallest = (OMKS("linear", 5, aggressiveness=0.05, drop=drop) for drop in ("oldest", "smallest"))
    kept: list[NDArray[Any]] = []
    for single in singles(multi_blocks(5, (3,))[0]):
        if oldest.learn(single).utilised[0]:
            kept.append(single.tables[0].vectors[single.index[0, 0]].astype(np.float64))
        smallest.learn(single)
    assert len(kept) > 10
    anchors = np.asarray(oldest.state()["anchors"])
    assert {tuple(row) for row in anchors} == {tuple(row) for row in kept[-5:]}
    assert len(np.asarray(smallest.state()["anchors"])) == 5


@pytest.mark.parametrize("kernels", ["linear", ["linear", "rbf"]])
@pytest.mark.parametrize("aggressiveness", [1e-3, 0.05, 10.0])
def test_of_equally_small_triplets_the_oldest_goes(kernels: Any, aggressiveness: float) -> None:
    """Where C cuts every step short, all are equal. A restart in between forgets no age."""
    learner = OMKS(kernels, 5, aggressiveness=aggressiveness, drop="smallest", bandwidth=2.0)
    kept: list[tuple[list[float], float]] = []
    ties, dropped = 0, []
    for t, single in enumerate(one for message in multi_blocks(5, (3, 2)) for one in singles(message)):
        learner.learn(single)
        state = learner.state()
        tau = np.asarray(state["tau"]).sum(axis=1)
        rows = np.concatenate([np.asarray(state[n]) for n in ("anchors", "positives", "negatives")], axis=1)
        found = [(row.tolist(), float(size)) for row, size in zip(rows, tau, strict=True)]
        newest = found[int(state["newest"])]
        if sorted(found) != sorted(kept):
            if len(kept) == 5:
                sums = [size for _, size in kept]
                ties += sums.count(min(sums)) > 1
                dropped.append(sums.index(min(sums)))
                del kept[dropped[-1]]
            kept.append(newest)
        assert sorted(found) == sorted(kept)
        if t % 3 == 0:
            learner = OMKS(kernels, 5, aggressiveness=aggressiveness, drop="smallest", bandwidth=2.0)
            learner.restore(state)
    assert len(dropped) > 10
    if aggressiveness == 1e-3:
        assert ties > 10
    else:
        assert max(dropped) > 0


def test_the_bandwidth_is_the_mean_distance_of_the_warm_up() -> None:
    learner = OMKS("rbf", 30, warm_up=20)
    message = multi_blocks(6, (3, 2))[0]
    outcomes = learner.learn(message)
    first = int(np.flatnonzero(outcomes.utilised)[0])
    assert (outcomes.mistake[:first] == -1).all() and (outcomes.mistake[first:] >= 0).all()
    seen: dict[int, None] = {}
    for row in message.index[:first].ravel():
        seen.setdefault(int(row), None)
    colour = message.tables[1].vectors[list(seen)[:20]].astype(np.float64)
    pairs = [np.linalg.norm(colour[i] - colour[j]) for i in range(20) for j in range(i)]
    assert learner.bandwidths["colour"] == pytest.approx(np.mean(pairs))
    assert mean_distance(np.ones((4, 2))) == 1.0


def test_the_metric_is_the_nearest_one_to_the_similarity() -> None:
    learner = OMKS("linear", 100, aggressiveness=0.2)
    for message in triplet_blocks(1, 4):
        learner.learn(message)
    W = matrix(learner, 4)
    values, vectors = np.linalg.eigh((W + W.T) / 2.0)
    A = (vectors * np.maximum(values, 0.0)) @ vectors.T
    assert values[0] < 0.0
    X = message.tables[0].vectors.astype(np.float64)
    z = X[1:] - X[:-1]
    np.testing.assert_allclose(learner.distance(X[1:], X[:-1]), np.einsum("ij,jk,ik->i", z, A, z), rtol=1e-9)


def test_the_metric_of_a_gaussian_kernel_on_its_support() -> None:
    """Where nothing was clipped, d(x, y) = S(x, x) + S(y, y) - S(x, y) - S(y, x)."""
    learner = OMKS("rbf", 100, aggressiveness=1e-3, bandwidth=1.0)
    message = triplet_blocks(1, 4)[0]
    learner.learn(message)
    X = np.asarray(learner.state()["anchors"])[:10]
    x, y = X[1:], X[:-1]
    wanted = (
        learner.similarity(x, x)
        + learner.similarity(y, y)
        - learner.similarity(x, y)
        - learner.similarity(y, x)
    )
    np.testing.assert_allclose(learner.distance(x, y), wanted, rtol=1e-6, atol=1e-9)
    assert OMKS("rbf", bandwidth=2.0).transform(X).shape == X.shape


def test_constraints_without_direction_are_degenerate() -> None:
    X = np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [3.0, 1.0]])
    outcomes = OMKS("linear").learn(tables([X], np.array([[0, 1, 3], [3, 1, 2], [3, 1, 0]])))
    assert outcomes.degenerate.tolist() == [True, True, False]
    assert outcomes.loss[:2].tolist() == [1.0, 1.0] and outcomes.mistake[:2].tolist() == [1, 1]
    outcomes = OMKS("rbf", bandwidth=1.0).learn(tables([X], np.array([[0, 1, 3], [3, 1, 2]])))
    assert outcomes.degenerate.tolist() == [False, True]


def test_what_overflows_is_rejected_and_the_stream_goes_on() -> None:
    X = np.array([[3e38, 0.0], [-3e38, 0.0], [1.0, 0.0], [0.0, 1.0]])
    far = np.full((4, 1), 1e38) * np.array([[1.0], [2.0], [3.0], [1.0]])
    learner = OMKS(["linear", "rbf"], bandwidth=1.0, aggressiveness=1e30)
    for _ in range(4):
        outcomes = learner.learn(tables([X, far], np.array([[0, 1, 2], [2, 3, 0], [3, 2, 1]] * 2)))
        assert np.isfinite(outcomes.loss).all()
    assert all(np.isfinite(np.asarray(learner.state()[name])).all() for name in ("anchors", "tau"))
    assert learner.learn(multi_blocks(1, (2, 1))[0]).counts().seen > 0


def test_what_does_not_fit_is_refused() -> None:
    learner = OMKS("linear", 20, dtype="float32")
    learner.learn(multi_blocks(1, (3, 2))[0])
    with pytest.raises(BadRecord):
        learner.learn(multi_blocks(1, (3, 4))[0])
    with pytest.raises(BadRecord, match="learns from triplets"):
        learner.learn(prefix_blocks(1, 2)[0])
    with pytest.raises(SettingsError, match="budget 20, but the state"):
        OMKS("linear", 20).restore(learner.state())
    with pytest.raises(SettingsError, match="budget 2, but the state"):
        OMKS("linear", 2, dtype="float32").restore(learner.state())
    message = multi_blocks(1, (3, 2))[0]
    X = features(message)
    with pytest.raises(ValueError, match="same shapes"):
        learner.similarity(X, {name: table[:3] for name, table in X.items()})
    with pytest.raises(ValueError, match="not a linear map"):
        _ = learner.maps
    version = ModelVersion("s", "l", "omks/1", 1, 1, 0, "t", 0, 0, "", "", 0)
    with pytest.raises(SettingsError, match="omks/11 is not a linear map and has no such export"):
        export(learner, version, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernels", "cubic"),
        ("kernels", []),
        ("kernels", ["rbf", "rbf"]),
        ("budget", 0),
        ("drop", "random"),
        ("bandwidth", 0.0),
        ("beta", 1.0),
        ("aggressiveness", -1.0),
        ("dtype", "float16"),
        ("scaler", "robust"),
        ("warm_up", 1),
    ],
)
def test_hyper_parameters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} must be"):
        OMKS(**{name: value})


def test_order_of_tables_and_float32() -> None:
    learner = OMKS(["linear", "rbf"], 20, bandwidth=1.0, dtype="float32")
    message = multi_blocks(1, (3, 2))[0]
    learner.learn(message)
    learner.learn(replace(message, tables=message.tables[::-1]))
    X = features(message)
    assert learner.transform(X).dtype == np.float32
    np.testing.assert_array_equal(learner.transform(X), learner.transform(dict(reversed(X.items()))))


def test_warm_up_leaves_nothing_to_compile() -> None:
    from kinstream.learners.kernels.several_modalities import omks

    warm_up("omks")
    kernel: Any = omks.triplets
    before = len(kernel.signatures)
    OMKS(["linear", "rbf"], drop="smallest", bandwidth=1.0).learn(multi_blocks(1, (3, 2, 1))[0])
    assert len(kernel.signatures) == before
