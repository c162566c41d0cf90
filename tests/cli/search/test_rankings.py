"""What the page shows: all rankings of a query, by hand and by a model that was learned."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kinstream.cli.demo.search.rankings import RANKINGS, TOP, Rankings
from kinstream.evaluation.queries.signals import HALF_AND_HALF
from kinstream.learners.models.query_map import QueryMap
from kinstream.learners.ranking.blend import Blend
from kinstream.search.models.model import Name
from kinstream.search.queries.model import QueryModel
from kinstream.streams.signals import ADAPTED, SIMILARITY, TEXT
from tests.cli.search.material import FUNCTIONS, D, material

NOTHING = QueryModel("search")


def learned() -> QueryModel:
    """It negates a query, and asks nothing but the map: the nearest item becomes the farthest."""
    negated = QueryMap({"W": -np.eye(D, dtype=np.float32)})
    return QueryModel("search", Name(1, 0, 5), "ab", negated, Blend.fixed({ADAPTED: 1.0}))


def by_hand(row: int) -> tuple[list[int], list[int]]:
    """Items by the embedding, and half and half; the text of a query has the word of one item alone."""
    made = material()
    similarity = made.items @ made.queries[row]
    text = made.text([made.functions[row].query])[0]
    halves = HALF_AND_HALF({SIMILARITY: similarity, TEXT: text})
    assert np.flatnonzero(text == text.max()).tolist() == [row]
    return np.argsort(-similarity, kind="stable").tolist(), np.argsort(-halves, kind="stable").tolist()


def test_a_held_out_query_has_an_answer_and_all_rankings_of_it() -> None:
    made = material()
    rankings = Rankings(made)
    asked = rankings.asked(made.functions[20].query)
    assert asked is not None and asked.answer == 20
    np.testing.assert_array_equal(asked.vector, made.queries[20])
    found = json.loads(json.dumps(rankings.all(asked, NOTHING)))
    near, halves = by_hand(20)
    assert [one["row"] for one in found["embedded"]] == near[:TOP]
    assert [one["row"] for one in found["hybrid"]] == halves[:TOP]
    # Before a model the third is the second.
    assert [one["row"] for one in found["learned"]] == halves[:TOP]
    assert found["answer"] == [near.index(20) + 1, *2 * [halves.index(20) + 1]]
    assert [one["other"] for one in found["embedded"]] == list(range(1, TOP + 1))
    assert [one["other"] for one in found["hybrid"]] == [near.index(row) + 1 for row in halves[:TOP]]
    assert [one["answer"] for one in found["hybrid"]] == [row == 20 for row in halves[:TOP]]


def test_the_learned_side_ranks_by_the_model_and_says_where_each_was_before() -> None:
    made = material()
    rankings = Rankings(made)
    asked = rankings.asked(made.functions[20].query)
    assert asked is not None
    found = rankings.all(asked, learned())
    near, halves = by_hand(20)
    assert [one["row"] for one in found["learned"]] == near[::-1][:TOP]
    assert [one["other"] for one in found["learned"]] == [halves.index(row) + 1 for row in near[::-1][:TOP]]
    assert found["answer"][2] == FUNCTIONS + 1 - found["answer"][0]
    # The value is that of the model in every ranking.
    values = {one["row"]: one["score"] for name in RANKINGS for one in found[name]}
    assert sorted(values, key=lambda row: -values[row]) == [row for row in near[::-1] if row in values]


def test_a_typed_query_is_embedded_and_has_no_answer() -> None:
    rankings = Rankings(material())
    asked = rankings.asked("0 0 3")
    assert asked is not None and asked.answer is None
    np.testing.assert_allclose(asked.vector, np.array([2, 0, 0, 1, 0, 0]) / 5**0.5, rtol=1e-6)
    assert "answer" not in rankings.all(asked, NOTHING)
    # Learned queries are no secret either, but only held-out ones have a known answer.
    assert rankings.asked("nothing that it knows") is None


def test_ndcg_counts_held_out_queries_by_the_place_of_their_answer() -> None:
    made = material()
    rankings = Rankings(made)
    orders = [by_hand(row) for row in made.tested.tolist()]
    both = [[near for near, _ in orders], [halves for _, halves in orders]]
    for model, third in ((NOTHING, both[1]), (learned(), [near[::-1] for near in both[0]])):
        for found, order in zip(rankings.ndcg(model), [*both, third], strict=True):
            places = [one.index(row) for one, row in zip(order, made.tested.tolist(), strict=True)]
            gains = [1 / np.log2(place + 2) if place < 10 else 0.0 for place in places]
            assert found == pytest.approx(np.mean(gains))


def test_rows_of_a_click_must_be_of_a_list() -> None:
    rankings = Rankings(material())
    assert rankings.has([0, FUNCTIONS - 1])
    for rows in ([], [-1], [FUNCTIONS], list(range(TOP + 1))):
        assert not rankings.has(rows)


def test_proposed_queries_are_held_out() -> None:
    made = material()
    assert set(Rankings(made).proposed()) <= {made.functions[row].query for row in range(16, FUNCTIONS)}
    assert len(Rankings(made).proposed()) == 5
