"""What the page shows: both rankings of a query, by hand and by a map that was learned."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kinstream.cli.demo.search.rankings import TOP, Rankings
from kinstream.learners.models.query_map import QueryMap
from kinstream.search.models.model import Name
from kinstream.search.queries.model import QueryModel
from tests.cli.search.material import FUNCTIONS, D, material

NOTHING = QueryModel("search")


def learned() -> QueryModel:
    """It negates a query: the nearest item becomes the farthest."""
    return QueryModel("search", Name(1, 0, 5), "ab", QueryMap({"W": -np.eye(D, dtype=np.float32)}))


def test_a_held_out_query_has_an_answer_and_both_rankings_of_it() -> None:
    made = material()
    rankings = Rankings(made)
    asked = rankings.asked(made.functions[20].query)
    assert asked is not None and asked.answer == 20
    np.testing.assert_array_equal(asked.vector, made.queries[20])
    found = json.loads(json.dumps(rankings.both(asked, NOTHING)))
    right = np.argsort(-(made.items @ made.queries[20]), kind="stable")
    assert [one["row"] for one in found["embedded"]] == right[:TOP].tolist()
    assert found["embedded"] == found["adapted"]
    assert found["answer"] == [right.tolist().index(20) + 1] * 2
    assert [one["other"] for one in found["embedded"]] == list(range(1, TOP + 1))
    assert [one["answer"] for one in found["embedded"]] == (right[:TOP] == 20).tolist()


def test_the_learned_side_ranks_by_the_map_and_says_where_each_was_before() -> None:
    made = material()
    rankings = Rankings(made)
    asked = rankings.asked(made.functions[20].query)
    assert asked is not None
    found = rankings.both(asked, learned())
    right = np.argsort(-(made.items @ made.queries[20]), kind="stable")[::-1]
    assert [one["row"] for one in found["adapted"]] == right[:TOP].tolist()
    assert [one["other"] for one in found["adapted"]] == list(range(FUNCTIONS, FUNCTIONS - TOP, -1))
    assert sum(found["answer"]) == FUNCTIONS + 1
    # The score is that of the map on both sides.
    for one in found["adapted"] + found["embedded"]:
        assert one["score"] == pytest.approx(-float(made.items[one["row"]] @ made.queries[20]))


def test_a_typed_query_is_embedded_and_has_no_answer() -> None:
    rankings = Rankings(material())
    asked = rankings.asked("0 0 3")
    assert asked is not None and asked.answer is None
    np.testing.assert_allclose(asked.vector, np.array([2, 0, 0, 1, 0, 0]) / 5**0.5, rtol=1e-6)
    assert "answer" not in rankings.both(asked, NOTHING)
    # Learned queries are no secret either, but only held-out ones have a known answer.
    assert rankings.asked("nothing that it knows") is None


def test_ndcg_counts_held_out_queries_by_the_place_of_their_answer() -> None:
    made = material()
    rankings = Rankings(made)
    for model, side in ((NOTHING, 1), (learned(), -1)):
        places = [
            np.argsort(-side * (made.items @ made.queries[row]), kind="stable").tolist().index(row)
            for row in made.tested
        ]
        gains = [1 / np.log2(place + 2) if place < 10 else 0.0 for place in places]
        assert rankings.ndcg(model) == pytest.approx(np.mean(gains))


def test_rows_of_a_click_must_be_of_a_list() -> None:
    rankings = Rankings(material())
    assert rankings.has([0, FUNCTIONS - 1])
    for rows in ([], [-1], [FUNCTIONS], list(range(TOP + 1))):
        assert not rankings.has(rows)


def test_proposed_queries_are_held_out() -> None:
    made = material()
    assert set(Rankings(made).proposed()) <= {made.functions[row].query for row in range(16, FUNCTIONS)}
    assert len(Rankings(made).proposed()) == 5
