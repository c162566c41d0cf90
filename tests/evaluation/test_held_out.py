"""Errors on held-out rows: learned metrics of one modality and of several in one table, and their baselines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from kinstream.evaluation.measures.held_out_rows import HeldOutErrors, grade, knn_error
from kinstream.learners import registry
from kinstream.producers.labelled.batch import Batch
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock, Table
from tests.learners.multi import NAMES, tables

#: As in mfeat, modalities of one object that tell its class to different degrees, on different scales.
SIZES = (6, 10, 3)
STRENGTHS = (1.0, 0.4, 0.0)
SCALES = (0.2, 1.0, 8.0)
Parts = Sequence[NDArray[np.float32]]


def objects(seed: int, n: int) -> tuple[Parts, NDArray[np.int64]]:
    """n objects of three classes, one table for each modality."""
    centres = [np.random.default_rng((1, d)).normal(size=(3, d)) for d in SIZES]
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, n)
    parts = [
        (scale * (strength * centre[y] + 0.6 * draw.normal(size=(n, centre.shape[1])))).astype(np.float32)
        for centre, strength, scale in zip(centres, STRENGTHS, SCALES, strict=True)
    ]
    return parts, y


def batch(parts: Parts, y: NDArray[np.int64]) -> Batch:
    found = tuple(Table(name, part) for name, part in zip(NAMES, parts, strict=False))
    return Batch(found, y, tuple(map(str, range(len(y)))))


def measured(found: HeldOutErrors) -> dict[str, float]:
    """Errors by name, of those that have learned."""
    return {row.name: row.error for row in found.rows if row.error is not None}


def triplets(parts: Parts, y: NDArray[np.int64], m: int = 2000) -> ConstraintBlock:
    draw = np.random.default_rng(9)
    anchor = draw.integers(0, len(y), m)
    index = [
        (a, draw.choice(np.flatnonzero(y == y[a])), draw.choice(np.flatnonzero(y != y[a]))) for a in anchor
    ]
    return tables(parts, np.array(index))


@pytest.fixture(scope="module")
def data() -> tuple[Parts, NDArray[np.int64], Batch, Batch]:
    parts, y = objects(3, 300)
    return parts, y, batch(parts, y), batch(*objects(4, 200))


LEARNERS: dict[str, dict[str, Any]] = {
    "omdml": {"beta": 0.9, "margin": 1.0, "scaler": "zscore", "unit": "published"},
    "lomdml": {"beta": 0.9, "margin": 1.0, "rank": 5, "eta": 1e-2, "scaler": "zscore", "unit": "published"},
    "omks": {"bandwidth": 2.0, "scaler": "zscore", "beta": 0.9, "budget": 60, "unit": "published"},
    "omdl-lr-like": {"rank": 8, "beta": 0.9, "margin": 1.0, "scaler": "zscore", "unit": "published"},
    "fusion": {"how": "uniform", "settings": {"gamma": 0.01}, "scaler": "zscore"},
}


def test_learners_of_several_modalities_beat_plain_distance(data: Any) -> None:
    parts, y, train, test = data
    learned = {kind: registry.create(kind, **settings) for kind, settings in LEARNERS.items()}
    for learner in learned.values():
        learner.learn(triplets(parts, y))
    found = grade(learned, train, test)
    assert (found.train_rows, found.test_rows) == (300, 200)
    errors = measured(found)
    alone = [f"euclidean, {name} alone" for name in NAMES]
    assert list(errors) == ["euclidean", *alone, "euclidean, zscore", *LEARNERS]
    for kind in LEARNERS:
        assert errors[kind] < errors["euclidean"] - 0.1
    assert errors["omdml"] < errors["euclidean, zscore"]
    assert (
        errors["euclidean, shape alone"] < errors["euclidean, colour alone"] < errors["euclidean, text alone"]
    )


def test_the_baseline_is_the_vote_on_the_vectors_side_by_side(data: Any) -> None:
    _, y, train, test = data
    x, u = (np.concatenate([table.vectors for table in one.tables], axis=1) for one in (train, test))
    vote = KNeighborsClassifier(5, algorithm="brute").fit(x, y)
    wanted = 1.0 - vote.score(u, np.asarray(test.labels))
    found = grade({}, train, test).rows
    assert found[0].error == pytest.approx(wanted) and len(found) == 1 + len(NAMES)


def test_one_modality_and_several_stand_in_one_table(data: Any) -> None:
    """A learner of one modality measures with that from which it has learned."""
    parts, y, train, test = data
    settings: dict[str, Any] = {"gamma": 1e-2, "scaler": "zscore"}
    several = registry.create("omdml", **LEARNERS["omdml"])
    several.learn(triplets(parts, y))
    one = registry.create("opml", **settings)
    one.learn(triplets(parts[1:2], y))
    fused = registry.create("fusion", settings=settings | {"scaler": "unit"})
    fused.learn(triplets(parts, y))
    learned = {"several": several, "one": one, "fused": fused, "new": registry.create("opml"), "none": None}
    found = grade(learned, train, test)
    errors = measured(found)
    assert [row.name for row in found.rows][4:] == [
        "euclidean, zscore",
        "euclidean, zscore, colour alone",
        "euclidean, unit of all at once",
        *learned,
    ]
    x, u = train.tables[1].vectors, test.tables[1].vectors
    v = np.asarray(test.labels)
    assert errors["one"] == knn_error(one.transform(x), y, one.transform(u), v)
    assert errors["one"] != errors["several"]
    assert not errors.keys() & {"new", "none"}


def test_a_space_of_one_modality_has_both_kinds_too(data: Any) -> None:
    parts, y, _, _ = data
    learned = {kind: registry.create(kind, scaler="zscore") for kind in ("opml", "omdml")}
    for learner in learned.values():
        learner.learn(triplets(parts[:1], y))
    found = grade(learned, batch(parts[:1], y), batch(objects(4, 200)[0][:1], objects(4, 200)[1]))
    assert [row.name for row in found.rows] == ["euclidean", "euclidean, zscore", "opml", "omdml"]
    assert all(row.error is not None and row.error < 0.2 for row in found.rows)


@pytest.mark.parametrize("sizes", [(5, 5), (3, 4)])
def test_a_modality_that_cannot_be_told_is_an_error(sizes: tuple[int, int]) -> None:
    draw = np.random.default_rng(1)
    learner = registry.create("opml")
    learner.learn(tables([draw.normal(size=(9, 5))], np.array([[0, 1, 2]])))
    rows = batch([draw.normal(size=(9, d)).astype(np.float32) for d in sizes], np.arange(9))
    with pytest.raises(SettingsError, match="one has learned from 5 features: it is not clear"):
        grade({"one": learner}, rows, rows)
