"""The scaler is part of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.base import scaler
from kinstream.testing.blocks import block, singles, triplet_blocks
from kinstream.testing.learners import digest
from tests.learners.published_unit import OPML


@pytest.mark.parametrize("name", ["zscore", "minmax"])
def test_statistics_are_those_of_the_distinct_vectors_of_the_warm_up(name: str) -> None:
    draw = np.random.default_rng(1)
    X = (5.0 + draw.normal(size=(40, 3)) * [1.0, 10.0, 0.0]).astype(np.float32)
    index = np.column_stack([np.arange(38), np.arange(1, 39), np.arange(2, 40)])
    learner = OPML(scaler=name, warm_up=20)
    # The first 18 constraints name rows 0 to 19.
    outcomes = learner.learn(block(X, index))
    assert not outcomes.utilised[:18].any() and (outcomes.mistake[:18] >= 0).all()
    assert outcomes.utilised[18:].any()
    seen = X[:20].astype(float)
    wanted: NDArray[Any] = (X - seen.mean(0)) / np.where(seen.std(0, ddof=1) > 0, seen.std(0, ddof=1), 1.0)
    if name == "minmax":
        width = np.ptp(seen, axis=0)
        wanted = (X - seen.min(0)) / np.where(width > 0, width, 1.0)
    np.testing.assert_allclose(learner.transform(X), wanted @ learner.L.T, atol=1e-9)


@pytest.mark.parametrize("name", ["zscore", "minmax"])
def test_statistics_do_not_depend_on_blocks_or_on_the_order_of_a_table(name: str) -> None:
    whole, single, shuffled = (OPML(scaler=name, warm_up=70, kernel="sequential") for _ in range(3))
    for message in triplet_blocks(2, 4):
        whole.learn(message)
        for one in singles(message):
            single.learn(one)
        order = np.random.default_rng(0).permutation(len(message.tables[0].vectors))
        table = message.tables[0].vectors[order]
        shuffled.learn(block(table, np.argsort(order)[message.index]))
    assert digest(whole.state()) == digest(single.state()) == digest(shuffled.state())


def test_a_small_catalogue_gets_through_the_warm_up() -> None:
    learner = OPML(scaler="zscore", warm_up=30)
    X = np.random.default_rng(0).normal(size=(6, 2))
    index = np.tile([[0, 1, 2], [3, 4, 5]], (100, 1))
    outcomes = learner.learn(block(X, index))
    assert not outcomes.utilised[:120].any() and outcomes.utilised[120:].any()


def test_unit_length() -> None:
    X = np.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [3e30, 4e30]], np.float32)
    found = scaler.create("unit").apply(X)
    wanted = np.array([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0], [0.6, 0.8]])
    np.testing.assert_allclose(found.astype(float), wanted, rtol=1e-6)


def test_scaled_learning_is_learning_of_scaled_features() -> None:
    raw, scaled = OPML(1e-1, scaler="unit"), OPML(1e-1)
    for message in triplet_blocks(3, 5, scale=100.0):
        tables = message.tables[0].vectors.astype(float)[message.index.T]
        raw.learn_triplets(*tables)
        scaled.learn_triplets(*(t / np.linalg.norm(t, axis=1, keepdims=True) for t in tables))
    np.testing.assert_allclose(raw.L, scaled.L, atol=1e-9)
