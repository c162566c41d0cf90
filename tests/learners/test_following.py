"""The unit of step sizes, and scalers that follow the features."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier

from kinstream.learners.agent import ClippedSteps, learner_spec
from kinstream.learners.base.scaler import PUBLISHED
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.one_modality.opml import OPML
from kinstream.learners.registry import create, has, names
from kinstream.learners.updates import Before, UpdateOrigin
from kinstream.processors.agent import builder_spec
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Counts, LoadPosition, SampleBlock, Table
from kinstream.streams.settings import Settings
from kinstream.testing.blocks import block, singles
from kinstream.testing.learners import digest
from tests.learners.multi import multi_blocks
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples

KINDS = tuple(kind for kind in names() if (has(kind, "unit") or kind == "oahu") and kind != "fusion")
#: Of several modalities.
SEVERAL = ("lomdml", "omdl-lr-like", "omdml", "omks")
#: Whose map is not carried over, or is none.
NOT_CARRIED = ("soml-da", "kernel-lego", "oahu", "omdl-lr-like", "omks")
Rows = NDArray[np.floating[Any]]
WIDTHS = np.array([1.0, 20.0, 0.05, 3.0])


def triplets(m: int, seed: int, widths: Rows = WIDTHS) -> Any:
    """A block of m triplets of 3 m vectors; similar ones differ less in the first two features."""
    draw = np.random.default_rng(seed)
    near = np.array([0.3, 0.3, 1.0, 1.0])
    x = draw.normal(size=(m, 4))
    X = np.concatenate([x, x + near * draw.normal(size=(m, 4)), draw.normal(size=(m, 4))]) * widths
    return block((X + 5.0).astype(np.float32), np.arange(3 * m, dtype=np.int32).reshape(3, m).T)


@pytest.mark.parametrize("scaler", ["none", "zscore", "minmax", "unit"])
@pytest.mark.parametrize("kind", ["opml", "oasis"])
def test_the_mean_squared_length_of_scaled_vectors_is_1(kind: str, scaler: str) -> None:
    learner: Any = create(kind, scaler=scaler, warm_up=30)
    first = triplets(10, 1)
    learner.learn(first)
    scaled = learner.scale(first.tables[0].vectors)
    assert np.mean(np.sum(scaled**2, axis=1)) == pytest.approx(1.0)


def test_a_deviation_counts_as_at_least_a_sixth_of_the_range() -> None:
    X = np.zeros((60, 3), np.float32)
    X[:, 0], X[0, 1], X[:, 2] = np.linspace(0, 1, 60), 6.0, 7.0
    learner = OPML(scaler="zscore", warm_up=60)
    learner.learn(block(X, np.arange(60, dtype=np.int32).reshape(20, 3)))
    found = learner.affine()
    assert found is not None
    shift, factor = found
    np.testing.assert_allclose(shift, X.astype(float).mean(axis=0))
    # A feature that does not vary is divided by the root mean square deviation of the others.
    one = np.sqrt(X.astype(float).var(axis=0)[:2].mean())
    widths = np.array([X[:, 0].std(ddof=1), 1.0, one])
    np.testing.assert_allclose(factor * widths / factor[1], 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_size_does_for_every_scale(kind: str) -> None:
    """By powers of 2, so that nothing is rounded differently."""
    one, other = create(kind, warm_up=30), create(kind, warm_up=30)
    for seed in range(3):
        one.learn(triplets(60, seed))
        large = triplets(60, seed)
        vectors = large.tables[0].vectors
        vectors *= np.float32(1024.0)
        other.learn(large)
    X = triplets(5, 9).tables[0].vectors
    np.testing.assert_array_equal(one.transform(X), other.transform(X * np.float32(1024.0)))


def test_the_published_unit_is_that_of_the_features() -> None:
    learner = OPML(unit=PUBLISHED)
    assert (learner.algorithm, learner.gamma) == ("opml/1", 1e-3)
    assert (OPML().algorithm, OPML().gamma, OPML(0.5).gamma) == ("opml/7", 0.03, 0.5)
    with pytest.raises(SettingsError, match="unit must be one of length, published"):
        OPML(unit="other")


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_the_published_unit_goes_on_as_it_was(kind: str) -> None:
    old, new = create(kind, unit=PUBLISHED, warm_up=30), create(kind, warm_up=30)
    old.learn(triplets(60, 1))
    new.restore(old.state())
    assert new.algorithm == old.algorithm
    for seed in (2, 3):
        old.learn(triplets(60, seed))
        new.learn(triplets(60, seed))
    assert digest(new.state()) == digest(old.state())


def test_what_lies_far_outside_of_what_was_seen_is_cut_before_it_is_learned() -> None:
    one, other = OPML(scaler="minmax", warm_up=30), OPML(scaler="minmax", warm_up=30)
    first = triplets(10, 1)
    for learner in (one, other):
        learner.learn(first)
    seen = first.tables[0].vectors.astype(float)
    bound = 2.0 * seen.max(axis=0) - seen.min(axis=0)
    far, cut = triplets(1, 2), triplets(1, 2)
    far.tables[0].vectors[0] = 1e6
    cut.tables[0].vectors[0] = bound
    one.learn(far)
    other.learn(cut)
    np.testing.assert_allclose(one.L, other.L, rtol=1e-6)
    # The metric itself is a linear map.
    np.testing.assert_allclose(
        one.scale(np.full((1, 4), 1e6)), one.scale(np.full((1, 4), 5e5)) * 2, rtol=1e-3
    )


def test_the_scale_stays_while_the_features_do() -> None:
    for kind, scaler in (("opml", "zscore"), ("opml", "minmax"), ("oasis", "zscore"), ("lego", "none")):
        learner: Any = create(kind, scaler=scaler)
        for seed in range(30):
            learner.learn(triplets(200, seed))
        assert learner.renewals == 0


def test_a_feature_that_changes_little_keeps_its_part_in_the_metric() -> None:
    # A step that does next to nothing, so that what a renewal does to the map is seen alone.
    learner = OPML(1e-9, scaler="zscore", warm_up=60)
    learner.learn(triplets(60, 1))
    before = learner.affine()
    # A window.
    learner.learn(triplets(20, 2, WIDTHS * np.array([1.5, 1.5, 1.5, 100.0])))
    after = learner.affine()
    assert before is not None and after is not None and learner.renewals == 1
    ratio = before[1] / after[1]
    assert (ratio[:3] < 2.0).all() and ratio[3] > 2.0
    # Of raw features the first three have the part that they had, and the last one the part in scaled ones.
    np.testing.assert_allclose(learner.L, np.diag([*ratio[:3], 1.0]), atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (*NOT_CARRIED, *SEVERAL)])
def test_a_model_is_carried_over_exactly(kind: str) -> None:
    learner: Any = create(kind, scaler="zscore", warm_up=30)
    for seed in range(4):
        learner.learn(triplets(60, seed))
    ratio = np.array([2.0, 0.5, 1.0, 3.0])
    Z = np.random.default_rng(1).normal(size=(6, 4))
    similar: Any = getattr(learner, "W", None)
    mapped = Z @ learner.map.T
    learner._rescale(ratio)
    scaled = Z / ratio
    if isinstance(learner, Bilinear):
        np.testing.assert_allclose(scaled @ learner.W @ scaled.T, Z @ similar @ Z.T, atol=1e-9)
        return
    again = scaled @ learner.map.T
    np.testing.assert_allclose(again @ again.T, mapped @ mapped.T, atol=1e-9)


@pytest.mark.parametrize("kind", ["lomdml", "omdml"])
def test_each_modality_has_a_scale_of_its_own_and_is_carried_over_exactly(kind: str) -> None:
    sizes, widths = (2, 3), (1.0, 500.0)
    learner: Any = create(kind, scaler="zscore", warm_up=30, margin=1.0)
    first = multi_blocks(1, sizes)
    scaled = [
        replace(
            b,
            tables=tuple(
                Table(t.name, t.vectors * np.float32(w)) for t, w in zip(b.tables, widths, strict=True)
            ),
        )
        for b in first
    ]
    for one in scaled:
        learner.learn(one)
    parts = {t.name: t.vectors for t in scaled[0].tables}
    both = learner.scale(parts)
    assert learner.weights.keys() == parts.keys()
    lengths = [float(np.mean(np.sum(part**2, axis=1))) for part in np.split(both, [2], axis=1)]
    assert lengths == pytest.approx([1.0, 1.0], abs=0.3)
    name = learner.modalities[1][0]
    before = learner.maps[name]
    ratio = np.array([2.0, 0.5, 3.0])
    learner._rescale(1, ratio)
    np.testing.assert_allclose(gram(learner.maps[name]), gram(before * ratio), rtol=1e-9)


def gram(matrix: Rows) -> Rows:
    return np.asarray(matrix.T @ matrix)


def test_one_modality_that_leaves_its_scale_is_renewed_and_the_other_stays() -> None:
    learner: Any = create("omdml", scaler="zscore", warm_up=30, margin=1.0)
    blocks = multi_blocks(3, (2, 3))
    for one in blocks:
        learner.learn(one)
    assert learner.renewals == 0
    shift = learner.affine()
    for one in blocks:
        moved = tuple(Table(t.name, t.vectors * np.float32(1 + 50 * n)) for n, t in enumerate(one.tables))
        learner.learn(replace(one, tables=moved))
    (kept, renewed), now = list(shift), learner.affine()
    assert learner.renewals >= 1
    np.testing.assert_array_equal(shift[kept][1], now[kept][1])
    assert (shift[renewed][1] > 10 * now[renewed][1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_renewals_do_not_depend_on_blocks_and_are_in_the_state(kind: str) -> None:
    whole, single, resumed = (create(kind, scaler="zscore", warm_up=30) for _ in range(3))
    for seed, widths in enumerate((WIDTHS, WIDTHS, WIDTHS[::-1], WIDTHS[::-1])):
        message = triplets(37, seed, widths)
        whole.learn(message)
        for one in singles(message):
            single.learn(one)
        fresh = create(kind, scaler="zscore", warm_up=30)
        fresh.restore(resumed.state())
        resumed = fresh
        resumed.learn(message)
    assert whole.renewals == single.renewals >= 1  # type: ignore[attr-defined]
    assert digest(resumed.state()) == digest(whole.state())
    X = triplets(9, 9).tables[0].vectors
    np.testing.assert_allclose(single.transform(X), whole.transform(X), rtol=1e-6, atol=1e-7)


def test_a_renewal_is_told_to_readers_of_updates() -> None:
    learner = OPML(scaler="zscore", warm_up=30)
    whole = []
    for seed, widths in enumerate((WIDTHS, WIDTHS, WIDTHS[::-1], WIDTHS[::-1], WIDTHS[::-1], WIDTHS[::-1])):
        message = triplets(20, seed, widths)
        renewals, before = learner.renewals, Before(learner)
        outcomes = learner.learn(message)
        origin = UpdateOrigin("s", "l", 1, 0, "t", 0, seed, 20 * seed, 20 * seed + 20, 0)
        found = {update.whole for update in before.updates(origin, message, outcomes)}
        whole.append(found)
        if seed:
            assert found == {learner.renewals == renewals}
    assert {True} in whole and whole.count({False}) >= 2


def test_many_clipped_steps_are_told_once_until_they_are_few() -> None:
    steps = ClippedSteps()
    assert [steps.take(Counts(utilised=500, clipped=n)) for n in (40, 40)] == [None, 0.08]
    assert [steps.take(Counts(utilised=1000, clipped=n)) for n in (80, 200, 50, 51)] == [
        None,
        None,
        None,
        0.051,
    ]


def test_the_worker_logs_clipped_steps_and_counts_renewals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClippedSteps, "WINDOW", 20)
    learner = {"kind": "opml", "from": ["one-pass"], "gamma": 30.0, "scaler": "zscore", "warm_up": 24}
    config = Settings.model_validate(
        {"builders": {"one-pass": {"kind": "one-pass"}}, "learners": {"opml": learner}}
    )
    log = MemoryLog(partitions=1)
    builder = Agent(builder_spec(config, "one-pass"), config, log, tmp_path)
    agent = Agent(learner_spec(config, "opml"), config, log, tmp_path)
    for value in samples("a", 30, rows=16):
        log.append(config.topic("events"), b"a", value)
    draw = np.random.default_rng(5)
    for number in range(10):
        labels = draw.integers(0, 3, 16)
        vectors = (draw.normal(size=(16, 4)) + labels[:, None]) * [1.0, 100.0, 0.01, 1.0]
        tables = (Table("x", vectors.astype(np.float32)),)
        later = SampleBlock("a", tables, labels, 2_000 + number, None, LoadPosition("later", number))
        log.append(config.topic("events"), b"a", encode(later))
    with caplog.at_level(logging.WARNING):
        builder.run()
        agent.run()
    machine = agent.runners[0].machine
    space = machine.find("a")
    assert space is not None
    core: Any = space.core
    assert machine.counts["scaler_renewals"] == core.renewals > 0
    found = [record.getMessage() for record in caplog.records if "shortens" in record.getMessage()]
    assert found and len(found) < 5
    assert "opml: the guard shortens" in found[0] and "'a'" in found[0]


SETS = {"breast": load_breast_cancer, "digits": load_digits, "wine": load_wine}


def of_labels(X: Rows, y: NDArray[Any], m: int, seed: int) -> tuple[Rows, Rows, Rows]:
    anchors, same, others = drawn(y.tobytes(), y.dtype.str, m, seed)
    return X[anchors], X[same], X[others]


@cache
def drawn(labels: bytes, dtype: str, m: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    y, draw = np.frombuffer(labels, dtype), np.random.default_rng(seed)
    anchors = draw.integers(0, len(y), m)
    of_class = {c: (np.flatnonzero(y == c), np.flatnonzero(y != c)) for c in np.unique(y)}
    same = np.array([draw.choice(of_class[y[a]][0]) for a in anchors])
    others = np.array([draw.choice(of_class[y[a]][1]) for a in anchors])
    return anchors, same, others


def changed(X: Rows, way: str, draw: np.random.Generator) -> Rows:
    if way == "permuted":
        return X[:, draw.permutation(X.shape[1])]
    return np.asarray(X @ np.linalg.qr(draw.normal(size=(X.shape[1],) * 2))[0])


#: A rotation behind a z-score for all, the rest for three: a permutation is a rotation, too. Without a scaler a learner
#: whose steps become small does not notice a change.
CHANGES = [
    (kind, scaler, way)
    for kind in KINDS
    for scaler, way in (
        ("zscore", "permuted"),
        ("zscore", "rotated"),
        ("minmax", "permuted"),
        ("none", "rotated"),
    )
    if (scaler, way) == ("zscore", "rotated") or kind in ("opml", "oasis", "lego")
    if kind not in ("kernel-lego", "omdl-lr-like")
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "scaler", "way"), CHANGES)
def test_features_that_change_are_learned_as_by_a_new_learner(kind: str, scaler: str, way: str) -> None:
    """5-NN errors of 2,000 triplets after the change; means of three halves."""
    for name, load in SETS.items():
        errors = []
        for seed in range(3):
            draw = np.random.default_rng(seed)
            X, y = load(return_X_y=True)
            order = draw.permutation(len(y))
            X, y, half = X[order], y[order], len(y) // 2
            Z = changed(X, way, draw)
            old, new = create(kind, scaler=scaler), create(kind, scaler=scaler)
            learn(old, of_labels(X[:half], y[:half], 3000, seed))
            for learner in (old, new):
                learn(learner, of_labels(Z[:half], y[:half], 2000, seed + 10))
            errors.append([error(learner, Z, y, half) for learner in (old, new)])
        before, fresh = np.mean(errors, axis=0)
        chance = np.sqrt(fresh * (1.0 - fresh) / (3 * (len(y) - half)))
        assert before <= 1.1 * fresh + 0.01 + chance, f"{name}: {before:.3f}, {fresh:.3f}"


def learn(learner: Any, tables: tuple[Rows, Rows, Rows]) -> None:
    for start in range(0, len(tables[0]), 250):
        learner.learn_triplets(*(table[start : start + 250] for table in tables))


def error(learner: Any, X: Rows, y: NDArray[Any], half: int) -> float:
    near = KNeighborsClassifier(5, algorithm="brute").fit(learner.transform(X[:half]), y[:half])
    return 1.0 - float(near.score(learner.transform(X[half:]), y[half:]))
