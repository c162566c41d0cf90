"""LOMDML takes gradient steps that its guards keep harmless, from first maps that keep distances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing.blocks import prefix_blocks, singles
from tests.learners.multi import NAMES, features, multi_blocks, tables
from tests.learners.published_unit import LOMDML

SIZES = st.lists(st.sampled_from([1, 2, 3, 17, 64]), min_size=1, max_size=3)
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 30.0, 1e3])


def differences(message: ConstraintBlock) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """a and b of the only triplet of a block, by modality."""
    found = {}
    for table in message.tables:
        x, similar, other = table.vectors[message.index[0]].astype(np.float64)
        found[table.name] = x - similar, x - other
    return found


def own(W: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.sum((W @ a) ** 2) - np.sum((W @ b) ** 2))


@given(SIZES, SCALES, st.integers(0, 99), st.sampled_from([1e-4, 1e-2, 1.0]), st.booleans())
@settings(max_examples=25, deadline=None)
def test_every_step_is_the_printed_one(
    sizes: list[int], scale: float, seed: int, eta: float, own_hinge: bool
) -> None:
    learner = LOMDML(7, eta, 0.9, 0.5, own_hinge=own_hinge)
    rows = [one for message in multi_blocks(seed, sizes, 2, 12, scale) for one in singles(message)]
    learner.learn(rows[0])
    for single in rows[1:]:
        before, theta = learner.matrices, learner.weights
        outcomes = learner.learn(single)
        ab = differences(single)
        f = {name: own(before[name], *ab[name]) for name in before}
        size = {
            n: float(np.sum((W @ ab[n][0]) ** 2) + np.sum((W @ ab[n][1]) ** 2)) for n, W in before.items()
        }
        fused = sum(theta[name] * f[name] for name in f)
        unclear = any(abs(f[n]) < 1e-9 * size[n] or abs(f[n] + 1.0) < 1e-9 for n in f)
        if outcomes.degenerate[0] or unclear or abs(fused + 0.5) < 1e-9:
            continue
        assert outcomes.mistake[0] == (fused >= 0.0)
        if fused + 0.5 <= 0.0:
            assert not outcomes.utilised[0] and learner.weights == theta
            assert all(np.array_equal(learner.matrices[name], before[name]) for name in before)
            continue
        cut = False
        for name, (a, b) in ab.items():
            W = before[name]
            moves = f[name] + 1.0 > 0.0 or not own_hinge
            step = min(eta, 0.5 / max(float(a @ a), 1e-300))
            V = np.outer(a, a) - np.outer(b, b)
            wanted = W - 2.0 * step * W @ V if moves else W
            found = learner.matrices[name]
            top = np.abs(W).max() * (1.0 + 2.0 * step * float(a @ a + b @ b))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * max(top, 1e-300))
            cut |= moves and step < eta and not np.array_equal(found, W)
            # The guard's promise: what is lowered never rises.
            assert own(found, a, b) <= f[name] + 1e-9 * (size[name] + top * top * float(a @ a + b @ b))
        assert outcomes.clipped[0] == (cut and outcomes.utilised[0])


@pytest.mark.parametrize("d", [1, 2, 3, 17])
def test_the_step_is_the_gradient(d: int) -> None:
    """Of the modality's own loss, by central differences."""
    learner = LOMDML(4, 1e-3, margin=1e6, own_hinge=False, guard="raw")
    message = next(one for one in singles(multi_blocks(3, (d,))[0]) if one.index[0, 1] != one.index[0, 2])
    start = LOMDML(4)
    start.learn(
        replace(message, tables=(replace(message.tables[0], vectors=message.tables[0].vectors * np.nan),))
    )
    W, (a, b) = start.matrices["shape"], differences(message)["shape"]
    gradient = np.zeros_like(W)
    for place in np.ndindex(*W.shape):
        nudge = np.zeros_like(W)
        nudge[place] = 1e-6
        gradient[place] = (own(W + nudge, a, b) - own(W - nudge, a, b)) / 2e-6
    learner.learn(message)
    np.testing.assert_allclose((W - learner.matrices["shape"]) / 1e-3, gradient, rtol=1e-5, atol=1e-7)


def test_first_maps_keep_distances() -> None:
    draw = np.random.default_rng(4)
    Z = draw.normal(size=(4000, 60))
    learner = LOMDML(20, seed=3)
    learner.learn(tables([np.full((1, 60), np.nan)], np.zeros((1, 3))))
    W = learner.matrices["shape"]
    np.testing.assert_allclose(W @ W.T, 3.0 * np.eye(20), atol=1e-12)
    assert np.mean(np.sum((Z @ W.T) ** 2, axis=1)) == pytest.approx(60.0, rel=0.05)
    assert not np.allclose(W, first(LOMDML(20, seed=4), 60)["shape"])
    assert np.array_equal(W, first(LOMDML(20, seed=3), 60)["shape"])


def first(learner: LOMDML, *sizes: int) -> dict[str, NDArray[Any]]:
    """The maps that the learner begins with."""
    learner.learn(tables([np.full((1, d), np.nan) for d in sizes], np.zeros((1, 3))))
    return learner.matrices


def test_modalities_with_few_features_keep_all_of_them() -> None:
    maps = first(LOMDML(5), 7, 3)
    assert [maps[name].shape for name in ("shape", "colour")] == [(5, 7), (3, 3)]
    np.testing.assert_allclose(maps["colour"] @ maps["colour"].T, np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(first(LOMDML(2, init="identity"), 3)["shape"], np.eye(2, 3))
    # Each modality draws its own.
    same = first(LOMDML(2), 4, 4)
    assert not np.allclose(same["shape"], same["colour"])


def test_pca_begins_with_the_directions_of_the_warm_up() -> None:
    draw = np.random.default_rng(8)
    X = draw.normal(size=(90, 5)) * np.array([0.1, 5.0, 0.2, 3.0, 0.3]) + 7.0
    message = tables([X], np.arange(90).reshape(30, 3))
    learner = LOMDML(2, 1e-9, init="pca", warm_up=60, margin=1e6, own_hinge=False)
    outcomes = learner.learn(message)
    assert outcomes.utilised.tolist() == [False] * 20 + [True] * 10
    a, b = X[0] - X[1], X[0] - X[2]
    assert outcomes.mistake[0] == (np.float32(a @ a) >= np.float32(b @ b))
    W = learner.matrices["shape"]
    _, vectors = np.linalg.eigh(np.cov(X[:60].astype(np.float32).T))
    np.testing.assert_allclose(np.abs(W @ vectors[:, [4, 3]]), np.eye(2), atol=1e-4)
    np.testing.assert_allclose(W @ W.T, np.eye(2), atol=1e-4)
    assert "buffer.rows" not in learner.state()


def test_pca_of_fewer_vectors_than_rows() -> None:
    X = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    learner = LOMDML(3, init="pca", warm_up=2, margin=1.0)
    outcomes = learner.learn(tables([X], np.array([[0, 1, 2]] * 10)))
    assert outcomes.utilised[1:].all()
    assert learner.matrices["shape"].shape == (3, 3)
    assert learner.transform(X).shape == (3, 3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_triplets_that_contradict_each_other_end_at_the_cap(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOMDML, "norm_cap", 50.0)
    learner = LOMDML(3, 1e-2, margin=1e6, own_hinge=False, dtype=dtype)
    for message in multi_blocks(2, (4, 2), 6, 80, 30.0):
        learner.learn(message)
        outcomes = learner.learn(replace(message, index=message.index[:, [0, 2, 1]].copy()))
        assert outcomes.rejected.sum() == 0
    assert outcomes.clipped.any()
    norms = [np.linalg.norm(W.astype(np.float64)) for W in learner.matrices.values()]
    assert all(norm <= 50.0 * (1.0 + 1e-5) for norm in norms)


def test_raw_steps_may_end_in_rejections_and_never_in_infinity() -> None:
    learner = LOMDML(3, 1.0, margin=1e6, own_hinge=False, guard="raw")
    rejected = 0
    for message in multi_blocks(2, (4,), 4, 80, 1e3):
        rejected += int(learner.learn(message).rejected.sum())
        assert not learner.learn(message).clipped.any()
        assert np.isfinite(learner.matrices["shape"]).all()
    assert rejected > 0


@given(SIZES, st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_the_metric_is_the_weighted_sum(sizes: list[int], seed: int) -> None:
    learner = LOMDML(4, 1e-2, 0.8, 1.0)
    message = multi_blocks(seed, sizes, 1, 30)[0]
    learner.learn(message)
    X = features(message)
    Y = {name: table[::-1] for name, table in X.items()}
    wanted = sum(
        learner.weights[name] * np.sum(((X[name].astype(np.float64) - Y[name]) @ W.T) ** 2, axis=1)
        for name, W in learner.matrices.items()
    )
    np.testing.assert_allclose(learner.distance(X, Y), wanted, rtol=1e-9, atol=1e-12)
    assert learner.transform(X).shape[1] == sum(min(4, d) for d in sizes)
    maps = learner.maps
    mapped = np.concatenate([X[name] @ maps[name].T for name in NAMES[: len(sizes)]], axis=1)
    np.testing.assert_allclose(learner.transform(X), mapped, rtol=0, atol=1e-9)


def test_a_warm_up_goes_on_where_it_stopped() -> None:
    blocks = multi_blocks(6, (4, 3), 6)
    whole = LOMDML(2, init="pca", scaler="minmax", warm_up=70, margin=1.0)
    parts = LOMDML(2, init="pca", scaler="minmax", warm_up=70, margin=1.0)
    for message in blocks:
        whole.learn(message)
        for single in singles(message):
            state = parts.state()
            parts = LOMDML(2, init="pca", scaler="minmax", warm_up=70, margin=1.0)
            parts.restore(state)
            parts.learn(single)
    assert {n: W.tobytes() for n, W in whole.matrices.items()} == {
        n: W.tobytes() for n, W in parts.matrices.items()
    }
    assert whole.weights == parts.weights


def test_what_does_not_fit_is_refused() -> None:
    learner = LOMDML(dtype="float32")
    learner.learn(multi_blocks(1, (3, 2))[0])
    with pytest.raises(BadRecord):
        learner.learn(multi_blocks(1, (3, 4))[0])
    with pytest.raises(BadRecord, match="learns from triplets"):
        learner.learn(prefix_blocks(1, 2)[0])
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        LOMDML().restore(learner.state())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", 0),
        ("rank", 2.0),
        ("eta", 0.0),
        ("beta", 1.5),
        ("margin", -1.0),
        ("init", "random"),
        ("seed", -1),
        ("own_hinge", "yes"),
        ("guard", "none"),
        ("dtype", "float16"),
        ("scaler", "robust"),
        ("warm_up", 1),
    ],
)
def test_hyper_parameters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} must be"):
        LOMDML(**{name: value})


def test_warm_up_leaves_nothing_to_compile() -> None:
    from kinstream.learners.kernels.several_modalities import lomdml

    warm_up("lomdml")
    kernel: Any = lomdml.triplets
    before = len(kernel.signatures)
    LOMDML(margin=1.0, own_hinge=False).learn(multi_blocks(1, (3, 2, 1))[0])
    assert len(kernel.signatures) == before
