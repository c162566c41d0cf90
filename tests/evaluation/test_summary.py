"""Means, tests, wins and losses from cells."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from kinstream.evaluation.measures.names import measure, order
from kinstream.evaluation.runner.statistics import holm, paired, unpaired
from kinstream.evaluation.runner.summary import summarise

Line = dict[str, Any]
ROLES = {"opml": "learner", "euclidean": "unlearned", "oahu": "learner", "cosine": "unlearned"}


def result(values: Mapping[tuple[str, str], Mapping[str, Sequence[float | None]]]) -> Line:
    """A result of these values: by data set and metric, by measure, by split."""
    cells: list[Line] = []
    for (data, metric), measures in values.items():
        for split in range(max(map(len, measures.values()))):
            there = {name: some[split] for name, some in measures.items() if split < len(some)}
            cells.append({"data": data, "metric": metric, "split": split, "measures": there})
    names = list(dict.fromkeys(data for data, _ in values))
    metrics = [{"name": name, "role": role} for name, role in ROLES.items()]
    return {"metrics": metrics, "data": [{"name": name} for name in names], "cells": cells}


def line(lines: list[Line], **wanted: Any) -> Line:
    found = [one for one in lines if all(one[key] == value for key, value in wanted.items())]
    assert len(found) == 1, (wanted, found)
    return found[0]


ERRORS = {
    ("wine", "opml"): {"error": [0.10, 0.12, 0.11, 0.13]},
    ("wine", "oahu"): {"error": [0.20, 0.26, 0.21, 0.25]},
    ("wine", "euclidean"): {"error": [0.20, 0.22, 0.23, 0.25]},
    ("wine", "cosine"): {"error": [0.05, 0.08, 0.05, 0.09]},
    ("iris", "opml"): {"error": [0.05, 0.05, 0.05, 0.05]},
    ("iris", "euclidean"): {"error": [0.05, 0.05, 0.05, 0.05]},
}


def test_means_are_over_splits() -> None:
    found = summarise(result(ERRORS))["summary"]
    first = line(found, data="wine", metric="opml")
    assert first.pop("std") == pytest.approx(0.0129099, abs=1e-7)
    assert first == {
        "data": "wine",
        "metric": "opml",
        "measure": "error",
        "mean": pytest.approx(0.115),
        "n": 4,
    }
    assert line(found, data="iris", metric="opml")["std"] == 0.0
    assert [(one["data"], one["metric"]) for one in found] == [
        ("wine", "opml"),
        ("wine", "euclidean"),
        ("wine", "oahu"),
        ("wine", "cosine"),
        ("iris", "opml"),
        ("iris", "euclidean"),
    ]


def test_learners_are_tested_against_unlearned_metrics_and_each_other() -> None:
    found = summarise(result(ERRORS))["tests"]
    assert [(one["data"], one["first"], one["second"], one["verdict"]) for one in found] == [
        ("wine", "opml", "euclidean", "win"),
        ("wine", "opml", "cosine", "loss"),
        ("wine", "oahu", "euclidean", "tie"),
        ("wine", "oahu", "cosine", "loss"),
        ("wine", "opml", "oahu", "win"),
        ("iris", "opml", "euclidean", "tie"),
    ]
    wine = {(one["first"], one["second"]): one for one in found if one["data"] == "wine"}
    a, b = ERRORS["wine", "opml"]["error"], ERRORS["wine", "euclidean"]["error"]
    one = wine["opml", "euclidean"]
    assert (one["t"], one["p"], one["difference"], one["n"]) == (
        paired(a, b).t,
        paired(a, b).p,
        pytest.approx(-0.11),
        4,
    )
    assert one["p_unpaired"] == unpaired(a, b).p
    # One family against un-learned metrics, one between learners.
    against = [one for one in wine.values() if one["second"] in ("euclidean", "cosine")]
    assert [one["p_holm"] for one in against] == pytest.approx(
        list(holm(np.array([one["p"] for one in against])))
    )
    assert wine["opml", "oahu"]["p_holm"] == wine["opml", "oahu"]["p"]


def test_larger_is_better_where_it_is() -> None:
    found = summarise(
        result(
            {
                ("wine", "opml"): {
                    "auc": [0.9, 0.92, 0.91],
                    "error": [0.9, 0.92, 0.91],
                    "utilisation": [0.9] * 3,
                },
                ("wine", "oahu"): {
                    "auc": [0.8, 0.83, 0.8],
                    "error": [0.8, 0.83, 0.8],
                    "utilisation": [0.1] * 3,
                },
            }
        )
    )
    assert [(one["measure"], one["verdict"]) for one in found["tests"]] == [("error", "loss"), ("auc", "win")]
    # Nothing is won by using more constraints; it is told all the same.
    assert {one["measure"] for one in found["summary"]} == {"error", "auc", "utilisation"}


def test_wins_are_counted_over_data_sets() -> None:
    found = summarise(result(ERRORS))["win_tie_loss"]
    assert found[0] == {
        "measure": "error",
        "first": "opml",
        "second": "euclidean",
        "win": 1,
        "tie": 1,
        "loss": 0,
    }
    assert line(found, first="opml", second="cosine") == {
        "measure": "error",
        "first": "opml",
        "second": "cosine",
        "win": 0,
        "tie": 0,
        "loss": 1,
    }


def test_one_split_is_no_test() -> None:
    found = summarise(result({("wine", "opml"): {"error": [0.1]}, ("wine", "euclidean"): {"error": [0.2]}}))
    assert [(one["std"], one["n"]) for one in found["summary"]] == [(None, 1)] * 2
    [test] = found["tests"]
    assert (test["p"], test["p_unpaired"], test["p_holm"], test["t"]) == (None,) * 4
    assert (test["verdict"], test["n"], test["difference"]) == ("tie", 1, -0.1)
    # A tie that was not tested is none over data sets.
    assert found["win_tie_loss"] == []


def test_splits_are_paired_where_both_are_known() -> None:
    found = summarise(
        result(
            {
                ("wine", "opml"): {"error": [0.1, None, 0.3, 0.2], "auc": [0.5]},
                ("wine", "euclidean"): {"error": [0.2, 0.9, float("nan"), 0.35]},
            }
        )
    )
    [test] = found["tests"]
    assert test["n"] == 2
    assert test["difference"] == pytest.approx(-0.125)
    assert {(one["metric"], one["measure"]): one["n"] for one in found["summary"]} == {
        ("opml", "error"): 3,
        ("opml", "auc"): 1,
        ("euclidean", "error"): 3,
    }


def test_a_difference_without_variance_is_json() -> None:
    found = summarise(
        result({("wine", "opml"): {"error": [0.25] * 3}, ("wine", "euclidean"): {"error": [0.5] * 3}})
    )
    [test] = found["tests"]
    assert (test["t"], test["p"], test["verdict"]) == (None, 0.0, "win")
    json.dumps(found, allow_nan=False)


def test_the_order_of_cells_makes_no_difference() -> None:
    given = result(ERRORS)
    expected = json.dumps(summarise(given))
    for seed in range(5):
        random.Random(seed).shuffle(given["cells"])
        assert json.dumps(summarise(given)) == expected


def test_nothing_comes_of_nothing() -> None:
    assert summarise({"metrics": [], "data": [], "cells": []}) == {
        "summary": [],
        "tests": [],
        "win_tie_loss": [],
        "recommendation": [],
    }


def test_what_is_refused() -> None:
    given = result({("wine", "opml"): {"error": [0.1]}})
    for change, text in (
        ({"metric": "other"}, "a cell of other on wine"),
        ({"data": "other"}, "a cell of opml on other"),
        ({}, "two cells of opml on wine, split 0"),
        ({"split": 1, "measures": {"speed": 1.0}}, "'speed' is not a measure"),
    ):
        with pytest.raises(ValueError, match=text):
            summarise(given | {"cells": [*given["cells"], given["cells"][0] | change]})


def test_measures_are_known_by_name() -> None:
    names = ["precision_at_2", "recall_at_10", "recall_at_9", "utilisation", "map", "error"]
    assert sorted(names, key=order) == names[::-1]
    assert measure("recall_at_10").title == "Recall@10"
    for wrong in ("recall_at_0", "recall_at_", "recall_at_1x", "Error"):
        with pytest.raises(ValueError, match="is not a measure"):
            measure(wrong)
    for name in names:
        assert measure(name).better in (
            "smaller is better",
            "larger is better",
            "neither direction is better",
        )
