"""Outcomes tell by how much a triplet was ranked right before its step, in the terms of what the learner offers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.learners.base.learner import Outcomes
from kinstream.learners.base.pairs_of_triplets import merged
from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing.blocks import pair_blocks, singles
from tests.learners.multi import features, multi_blocks
from tests.learners.published_unit import create

SEVERAL: list[tuple[str, dict[str, Any]]] = [
    ("lomdml", {"eta": 0.05}),
    ("lomdml", {"rank": 2, "init": "pca", "warm_up": 20}),
    ("omdml", {"margin": 1.0, "beta": 0.9}),
    ("omdml", {"margin": 1.0, "scaler": "unit"}),
    ("omks", {"warm_up": 20}),
    ("omdl-lr-like", {"margin": 1.0, "warm_up": 40, "rank": 6}),
]


def asked(learner: Any, single: ConstraintBlock) -> float:
    x, near, far = ({n: t[[row]] for n, t in features(single).items()} for row in single.index[0])
    if hasattr(learner, "similarity"):
        return float((learner.similarity(x, near) - learner.similarity(x, far))[0])
    return float((learner.distance(x, far) - learner.distance(x, near))[0])


@pytest.mark.parametrize(("kind", "settings"), SEVERAL)
def test_margins_of_several_modalities_are_those_before_each_step(
    kind: str, settings: dict[str, Any]
) -> None:
    learner: Any = create(kind, **settings)
    utilised = 0
    for single in [one for message in multi_blocks(5, (4, 3)) for one in singles(message)]:
        warm = learner.modalities and learner._warm
        wanted = asked(learner, single) if warm else np.nan
        outcomes = learner.learn(single)
        utilised += int(outcomes.utilised[0])
        if warm:
            assert outcomes.margin[0] == pytest.approx(wanted, rel=1e-7, abs=1e-9)
        if outcomes.mistake[0] >= 0:
            assert outcomes.mistake[0] == (outcomes.margin[0] <= 0.0)
    assert utilised > 10


@pytest.mark.parametrize("path", ["compiled", "torch"])
@pytest.mark.parametrize("batch", [1, 8])
def test_margins_of_networks_are_those_of_their_vote(path: str, batch: int) -> None:
    if path == "torch":
        pytest.importorskip("torch")
    settings = {"layers": 1, "hidden": 6, "eta": 0.05, "dtype": "float64"}
    learner: Any = create("oahu", **settings, path=path, batch=batch)
    learner.learn(multi_blocks(6, (4,), 1, 200)[0])
    for single in singles(multi_blocks(7, (4,), 1)[0]):
        points = single.tables[0].vectors[single.index[0]]
        votes, embedded = list(learner.weights.values()), learner.embed(points)
        near, far = (
            sum(w * float(np.linalg.norm(e[0] - e[s])) for w, e in zip(votes, embedded, strict=True))
            for s in (1, 2)
        )
        outcomes = learner.learn(single)
        assert outcomes.margin[0] == pytest.approx(far - near, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("kind", ["opml", "lego", "pola", "rdml", "mdml", "euclidean", "oasis"])
def test_it_is_no_number_where_nothing_was_measured(kind: str) -> None:
    learner: Any = create(kind)
    X = np.random.default_rng(0).normal(size=(3, 900, 4)).astype(np.float32)
    X[1, ::7] = np.nan
    margin = learner.learn_triplets(*X).margin
    np.testing.assert_array_equal(np.isnan(margin), np.arange(900) % 7 == 0)


@pytest.mark.parametrize("kind", ["copml", "lego", "pola", "rdml", "mdml", "euclidean", "kernel-lego"])
def test_pairs_have_none(kind: str) -> None:
    learner = create(kind)
    for message in pair_blocks(1, 5, m=300):
        assert np.isnan(learner.learn(message).margin).all()


def test_that_of_a_triplet_is_that_of_its_first_pair() -> None:
    pairs, triplets = Outcomes.blank(6), Outcomes.blank(3)
    pairs.margin[:] = [1.0, np.nan, -2.0, np.nan, np.nan, 7.0]
    merged(pairs, triplets)
    np.testing.assert_array_equal(triplets.margin, [1.0, -2.0, np.nan])
    np.testing.assert_array_equal(triplets[slice(1, None)].margin, [-2.0, np.nan])
    assert triplets.report()[-1] is triplets.margin
