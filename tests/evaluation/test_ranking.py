"""NDCG, reciprocal rank and recall against scikit-learn and by hand, for labels and for clicks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

from kinstream.evaluation.measures.clicks import click_lists
from kinstream.evaluation.measures.measurement import of_constraints
from kinstream.evaluation.measures.quality import click_retrieval, retrieval
from kinstream.learners import registry
from kinstream.streams.records.values import ConstraintBlock, Kind, Table

RANKS = (1, 2, 5, 10)


def scores(query: NDArray[Any], gallery: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(-np.sum((query[:, None] - gallery[None]) ** 2, axis=2))


@pytest.mark.parametrize("seed", range(3))
def test_labels_give_what_scikit_learn_gives(seed: int) -> None:
    draw = np.random.default_rng(seed)
    query, gallery = draw.normal(size=(30, 4)), draw.normal(size=(70, 4))
    asked, known = draw.integers(0, 4, 30), draw.integers(0, 4, 70)
    relevant = asked[:, None] == known[None]
    found = retrieval(query, gallery, asked, known, RANKS, same_rows=False)
    assert found.ndcg == pytest.approx(ndcg_score(relevant, scores(query, gallery), k=10))
    order = np.argsort(-scores(query, gallery), axis=1)
    first = np.take_along_axis(relevant, order, axis=1).argmax(axis=1)
    assert found.reciprocal_rank == pytest.approx(np.mean(1.0 / (1.0 + first)))


@pytest.mark.parametrize("seed", range(3))
def test_clicks_give_what_scikit_learn_gives(seed: int) -> None:
    draw = np.random.default_rng(seed)
    query, gallery = draw.normal(size=(20, 3)), draw.normal(size=(40, 3))
    relevant = draw.random((20, 40)) < 0.08
    relevant[:, 0] = True
    clicked = [np.flatnonzero(row) for row in relevant]
    found = click_retrieval(query, gallery, clicked, RANKS)
    assert found.ndcg == pytest.approx(ndcg_score(relevant, scores(query, gallery), k=10))
    precision = label_ranking_average_precision_score(relevant, scores(query, gallery))
    assert found.mean_average_precision == pytest.approx(precision)
    order = np.argsort(-scores(query, gallery), axis=1)
    ordered = np.take_along_axis(relevant, order, axis=1)
    assert found.recall == pytest.approx([ordered[:, :k].any(axis=1).mean() for k in RANKS])


def clicks(rule: str = "click-skip-above") -> ConstraintBlock:
    """Two lists. Query (0, 0): (1, 0) was clicked and (0, 3) passed over; query (9, 0): (0, 3) over (8, 0), (7, 0)."""
    vectors = np.array([[0, 0], [1, 0], [0, 3], [9, 0], [0, 3], [8, 0], [7, 0]], np.float32)
    index = np.array([[0, 1, 2], [3, 4, 5], [3, 4, 6]], np.int32)
    return ConstraintBlock(
        space="s",
        kind=Kind.TRIPLET,
        tables=(Table("default", vectors),),
        index=index,
        signs=np.zeros(3, np.int8),
        rules=(rule,),
        rule=np.zeros(3, np.uint8),
        derived=np.zeros(3, np.bool_),
        weights=np.ones(3, np.float32),
        time_ms=0,
        events=np.array([1, 2, 2], np.int32),
    )


def test_an_event_of_clicks_is_a_query_and_equal_items_are_one() -> None:
    found = click_lists([clicks()])
    assert found is not None
    assert found.queries["default"].tolist() == [[0.0, 0.0], [9.0, 0.0]]
    # (0, 3) is in both lists.
    assert found.items["default"].tolist() == [[1.0, 0.0], [0.0, 3.0], [8.0, 0.0], [7.0, 0.0]]
    assert [one.tolist() for one in found.clicked] == [[0], [1]]


def test_held_out_clicks_are_ranked_among_all_items() -> None:
    model = registry.create("euclidean")
    found = of_constraints(model, False, [clicks()], RANKS).values
    # Ranks 1 and 4: of (9, 0), (0, 3) is farther than (8, 0), (7, 0) and (1, 0).
    assert found["mrr"] == pytest.approx((1.0 + 1.0 / 4.0) / 2.0)
    assert found["ndcg_at_10"] == pytest.approx((1.0 + 1.0 / np.log2(5.0)) / 2.0)
    # There are four items, so K of 5 and 10 say nothing.
    assert {name: value for name, value in found.items() if name.startswith("recall")} == {
        "recall_at_1": 0.5,
        "recall_at_2": 0.5,
    }
    assert found["held_out_mistakes"] == pytest.approx(2.0 / 3.0)


def test_triplets_of_labels_are_no_clicks() -> None:
    assert click_lists([clicks("one-pass")]) is None
    assert (
        "mrr" not in of_constraints(registry.create("euclidean"), False, [clicks("one-pass")], RANKS).values
    )
