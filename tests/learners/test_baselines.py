"""Baselines score every constraint and learn only in fits, which look back on the latest constraints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier

from kinstream.learners.baselines.batch import fit_itml_of_pairs, fit_lmnn, fit_mahalanobis, fit_rca
from kinstream.learners.baselines.batch_base import Refitted
from kinstream.learners.baselines.euclidean import Euclidean
from kinstream.learners.baselines.itml import ITML
from kinstream.learners.baselines.lmnn import LMNN
from kinstream.learners.baselines.mahalanobis import Mahalanobis
from kinstream.learners.baselines.rca import RCA
from kinstream.learners.baselines.sampling import squared_percentiles
from kinstream.learners.registry import create
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import block, pair_blocks, singles, triplet_blocks

DIMENSIONS = st.sampled_from([1, 2, 3, 17, 64])
SCALES = st.sampled_from([1e-4, 1e-2, 1.0, 1e3])
SEEDS = st.integers(0, 2**32 - 1)
KINDS = ("mahalanobis", "rca", "lmnn", "itml")
SMALL: dict[str, Any] = {"warm_up": 8, "buffer": 50, "refit_every": 40}


def settings_of(kind: str) -> dict[str, Any]:
    """Small windows, and short fits where they are slow."""
    return SMALL | ({"max_iter": 20} if kind in ("lmnn", "itml") else {})


def made(kind: str, **arguments: Any) -> Refitted:
    learner = create(kind, **settings_of(kind) | arguments)
    assert isinstance(learner, Refitted)
    return learner


def chained(seed: int, d: int, m: int, scale: float = 1.0) -> list[NDArray[np.float64]]:
    """Triplets as one-pass construction makes them: each sample with the latest ones of both classes."""
    draw = np.random.default_rng((seed, d))
    label = np.concatenate([[0, 1], draw.integers(0, 2, m)])
    X = scale * (draw.normal(size=(2, d))[label] / np.sqrt(d) + 0.7 * draw.normal(size=(m + 2, d)))
    latest = [0, 1]
    rows = []
    for t in range(2, m + 2):
        rows.append((t, latest[label[t]], latest[1 - label[t]]))
        latest[label[t]] = t
    return [X[index] for index in np.array(rows).T]


def distinct(vectors: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Rows of tables, each once, by first appearance in the order of constraints."""
    rows = np.stack(vectors, axis=1).reshape(-1, vectors[0].shape[1])
    return np.array(list({row.tobytes(): row for row in rows}.values()))


@given(DIMENSIONS, SCALES, SEEDS)
@settings(max_examples=25)
def test_euclidean_scores_triplets(d: int, scale: float, seed: int) -> None:
    tables = scale * np.random.default_rng(seed).normal(size=(3, 40, d))
    tables[2, 7] = tables[1, 7]
    learner = Euclidean(warm_up=10)
    outcomes = learner.learn_triplets(*tables)
    near, far = (np.square(tables[0] - other).sum(axis=1) for other in tables[1:])
    clear = np.abs(near - far) > 1e-9 * far
    np.testing.assert_array_equal(outcomes.mistake[clear], (near >= far)[clear])
    assert outcomes.mistake[7] == 1 and outcomes.loss[7] == 1.0
    np.testing.assert_allclose(
        outcomes.loss, np.maximum(0.0, 1.0 + near - far), rtol=1e-9, atol=1e-9 * scale**2
    )
    assert not outcomes.utilised.any() and not outcomes.rejected.any()
    np.testing.assert_array_equal(learner.map, np.eye(d))


@given(DIMENSIONS, SCALES, SEEDS)
@settings(max_examples=25)
def test_euclidean_scores_pairs_by_a_threshold(d: int, scale: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    left, right = scale * draw.normal(size=(2, 40, d))
    signs = draw.choice(np.array([-1, 1], np.int8), 40)
    low, high = 0.5 * d * scale**2, 2.5 * d * scale**2
    outcomes = Euclidean(y_similar=low, y_dissimilar=high).learn_pairs(left, right, signs)
    squared = np.square(left - right).sum(axis=1)
    beyond = signs * (squared - (low + high) / 2.0)
    clear = np.abs(beyond) > 1e-9 * high
    np.testing.assert_array_equal(outcomes.mistake[clear], (beyond > 0.0)[clear])
    np.testing.assert_allclose(outcomes.loss, np.maximum(0.0, beyond), rtol=1e-9, atol=1e-9 * high)


def test_pairs_have_no_mistake_before_the_threshold_is_known() -> None:
    draw = np.random.default_rng(0)
    left, right = draw.normal(size=(2, 30, 3))
    learner = Euclidean(warm_up=20)
    assert np.isnan(learner.threshold)
    outcomes = learner.learn_pairs(left, right)
    assert (outcomes.mistake[:9] == -1).all() and (outcomes.mistake[10:] >= 0).all()
    low, high = squared_percentiles(distinct([left[:10], right[:10]])) or (0.0, 0.0)
    assert learner.threshold == pytest.approx((low + high) / 2.0)


def test_a_tie_is_a_mistake() -> None:
    X = np.array([[0.0], [1.0], [-1.0], [3.0]])
    learner = Euclidean(y_similar=0.5, y_dissimilar=1.5)
    outcomes = learner.learn(block(X, np.array([[0, 1, 2]])))
    assert outcomes.mistake.tolist() == [1]
    pairs = block(X, np.array([[0, 1], [0, 1], [0, 3]]), Kind.PAIR, signs=np.array([1, -1, -1]))
    assert learner.learn(pairs).mistake.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_fits_come_when_they_are_due_and_are_what_is_utilised(kind: str) -> None:
    tables = chained(1, 3, 400, scale=5.0)
    learner = made(kind)
    utilised, losses = [], []
    for t in range(400):
        before = learner.fits
        outcomes = learner.learn_triplets(*(table[t : t + 1] for table in tables))
        assert bool(outcomes.utilised[0]) == (learner.fits > before)
        utilised.append(bool(outcomes.utilised[0]))
        losses.append(float(outcomes.loss[0]))
    fits = np.flatnonzero(utilised)
    assert len(fits) == learner.fits >= 3
    assert (np.diff(fits) >= 40).all()
    for first, last in pairwise(fits):
        # Nothing that is due waits longer than for a loss.
        assert not np.any(np.array(losses[first + 40 : last]) > 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_scored_as_single_constraints(kind: str) -> None:
    blocks = triplet_blocks(3, 5) + pair_blocks(3, 5)
    one, other = made(kind), made(kind)
    for message in blocks:
        whole = one.learn(message)
        parts = [other.learn(single) for single in singles(message)]
        for name in ("mistake", "utilised", "degenerate", "loss"):
            np.testing.assert_array_equal(
                getattr(whole, name), np.concatenate([getattr(part, name) for part in parts])
            )


@given(st.sampled_from([1, 2, 3, 17]), SCALES, SEEDS)
@settings(max_examples=15)
def test_a_mahalanobis_fit_is_that_of_the_window(d: int, scale: float, seed: int) -> None:
    tables = [np.float32(table).astype(float) for table in chained(seed % 1000, d, 90, scale)]
    learner = Mahalanobis(buffer=30, refit_every=25, warm_up=2)
    # The first constraint is for the warm-up.
    since = -1
    for t in range(90):
        found = learner.learn_triplets(*(table[t : t + 1] for table in tables))
        # A fit is due after so many constraints, and waits for one with a loss: there may be none.
        since += 1
        assert found.utilised[0] == (since >= 25 and found.loss[0] > 0)
        if found.utilised[0]:
            since = 0
            window = distinct([table[max(1, t - 29) : t + 1] for table in tables])
            np.testing.assert_array_equal(learner.map, fit_mahalanobis(window))
            low, high = squared_percentiles(window @ learner.map.T) or (0.0, 0.0)
            assert learner.threshold == (low + high) / 2.0


def test_an_rca_fit_takes_chains_for_chunklets() -> None:
    x, similar, dissimilar = chained(2, 3, 120)
    learner = RCA(buffer=80, refit_every=80, warm_up=2)
    last = int(np.flatnonzero(learner.learn_triplets(x, similar, dissimilar).utilised)[0]) + 1
    rows = slice(last - 80, last)
    X = distinct([x[rows], similar[rows], dissimilar[rows]])
    graph = networkx.Graph((u.tobytes(), v.tobytes()) for u, v in zip(x[rows], similar[rows], strict=True))
    parts = list(networkx.connected_components(graph))
    labels = [next((k for k, part in enumerate(parts) if row.tobytes() in part), -1) for row in X]
    wanted = fit_rca(X, labels)
    np.testing.assert_allclose(learner.map, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


def test_rca_waits_for_rank_and_mahalanobis_for_vectors() -> None:
    draw = np.random.default_rng(5)
    for learner in (
        RCA(buffer=10, refit_every=10, warm_up=2),
        Mahalanobis(buffer=3, refit_every=10, warm_up=2),
    ):
        left = draw.normal(size=(200, 12))
        outcomes = learner.learn_pairs(left, left + 1.0 + draw.normal(size=left.shape))
        assert learner.fits == 0 and not outcomes.utilised.any()
        np.testing.assert_array_equal(learner.map, np.eye(12))


def test_an_lmnn_fit_takes_chains_for_classes() -> None:
    tables = chained(3, 2, 130)
    learner = LMNN(buffer=200, refit_every=100, warm_up=2, max_iter=20)
    outcomes = learner.learn_triplets(*tables)
    last = int(np.flatnonzero(outcomes.utilised)[0])
    # The first constraint is the warm-up's; the classes of the others are what connects them.
    x, similar, _ = (table[1 : last + 1] for table in tables)
    graph = networkx.Graph((u.tobytes(), v.tobytes()) for u, v in zip(x, similar, strict=True))
    parts = [part for part in networkx.connected_components(graph) if len(part) > 3]
    assert len(parts) == 2
    X = distinct([x, similar])
    wanted = fit_lmnn(X, [row.tobytes() in parts[0] for row in X], max_iter=20)
    np.testing.assert_allclose(learner.map, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_without_classes_lmnn_has_nothing_to_fit() -> None:
    learner = LMNN(buffer=50, refit_every=40, warm_up=2)
    tables = np.random.default_rng(0).normal(size=(3, 200, 2))
    assert not learner.learn_triplets(*tables).utilised.any()


def test_an_itml_fit_has_the_bounds_of_its_targets() -> None:
    draw = np.random.default_rng(6)
    left, right = draw.normal(size=(2, 60, 3))
    signs = draw.choice(np.array([-1, 1], np.int8), 60)
    learner = ITML(y_similar=1.0, y_dissimilar=8.0, buffer=60, refit_every=40, max_iter=50)
    last = int(np.flatnonzero(learner.learn_pairs(left, right, signs).utilised)[0]) + 1
    wanted = fit_itml_of_pairs(left[:last], right[:last], signs[:last], (1.0, 8.0), max_iter=50)
    np.testing.assert_array_equal(learner.map, wanted)
    assert learner.threshold == 4.5


@pytest.mark.parametrize("kind", KINDS)
def test_zero_fits_once_as_soon_as_the_buffer_is_full(kind: str) -> None:
    tables = chained(4, 3, 400)
    learner = made(kind, refit_every=0)
    outcomes = learner.learn_triplets(*tables)
    found = np.flatnonzero(outcomes.utilised)
    assert len(found) == 1
    # The warm-up's constraints are not kept; then the buffer fills, and the next loss is waited for.
    assert 50 <= found[0] < 80


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-4, 1e3])
def test_streams_of_any_scale_stay_finite(kind: str, scale: float) -> None:
    learner = made(kind)
    for message in triplet_blocks(7, 3, scale=scale) + pair_blocks(7, 3, scale=scale):
        counts = learner.learn(message).counts()
        assert counts.rejected == 0 and np.isfinite(counts.loss_sum)
    assert learner.fits > 0 and np.isfinite(learner.map).all()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_too_large_to_square_are_rejected(kind: str) -> None:
    learner = made(kind)
    for message in triplet_blocks(8, 3):
        learner.learn(message)
    before = learner.map
    far = learner.learn_triplets(*(1e200 * table for table in chained(8, 3, 30)))
    assert far.rejected.all()
    np.testing.assert_array_equal(learner.map, before)
    large = made(kind)
    large.learn_triplets(*(1e150 * table for table in chained(8, 3, 100)))
    assert np.isfinite(large.transform(np.ones((1, 3)))).all()


def test_fits_help_on_real_data() -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    train = np.arange(110)
    draw = np.random.default_rng(1)
    rows = []
    for _ in range(4):
        latest: dict[int, int] = {}
        for t in draw.permutation(train).tolist():
            if y[t] in latest and len(latest) > 1:
                other = draw.choice([k for k in latest if k != y[t]])
                rows.append((t, latest[y[t]], latest[int(other)]))
            latest[int(y[t])] = t
    triplets = np.array(rows).T
    error = {}
    for kind in ("euclidean", *KINDS):
        learner = Euclidean() if kind == "euclidean" else made(kind, buffer=300, refit_every=300, warm_up=50)
        learner.learn_triplets(X[triplets[0]], X[triplets[1]], X[triplets[2]])
        mapped = learner.transform(X)
        model = KNeighborsClassifier(5).fit(mapped[train], y[train])
        error[kind] = 1.0 - model.score(mapped[110:], y[110:])
    assert max(error.values()) < 0.2, error
    assert min(error["lmnn"], error["itml"], error["rca"]) <= error["euclidean"], error


def test_settings_are_refused_by_name() -> None:
    for kind in KINDS:
        for name, value in (("buffer", 1), ("refit_every", -1), ("warm_up", 1)):
            with pytest.raises(SettingsError, match=f"{name} must be"):
                create(kind, **{name: value})
        with pytest.raises(SettingsError, match="dtype must be one of"):
            create(kind, dtype="float16")
    for arguments in ({"n_neighbors": 0}, {"mu": 1.0}, {"max_iter": 1}):
        with pytest.raises(SettingsError, match=f"{next(iter(arguments))} must be"):
            create("lmnn", **arguments)
    for arguments in ({"gamma": 0.0}, {"max_iter": 0}):
        with pytest.raises(SettingsError, match=f"{next(iter(arguments))} must be"):
            create("itml", **arguments)
    with pytest.raises(SettingsError, match="y_similar and y_dissimilar go together"):
        Euclidean(y_similar=1.0)


def test_a_state_of_another_type_is_refused() -> None:
    learner = Mahalanobis(dtype="float32", warm_up=8, buffer=50, refit_every=40)
    for message in triplet_blocks(1, 3):
        learner.learn(message)
    assert learner.map.dtype == np.float32
    with pytest.raises(SettingsError, match="dtype is float64, but the state to restore holds float32"):
        Mahalanobis(warm_up=8, buffer=50, refit_every=40).restore(learner.state())
