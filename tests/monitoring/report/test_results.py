"""What a report reads off a result: references, marks, standings."""

from __future__ import annotations

import pytest

from kinstream.evaluation.measures.names import measure
from kinstream.evaluation.report.results import Mark, Results
from tests.monitoring.report.made_results import IRIS, WINE, made

ERROR = measure("error")


def test_learners_are_held_against_the_best_unlearned_metric_of_each_data_set() -> None:
    results = Results(made({"wine": WINE, "iris": IRIS}))
    assert (results.learners, results.unlearned) == (("opml", "oasis", "oahu"), ("euclidean", "cosine"))
    assert [results.reference(data, ERROR).metric for data in ("wine", "iris")] == ["euclidean", "cosine"]  # type: ignore[union-attr]
    wine = results.entries("wine", ERROR)
    assert {name: entry.mark for name, entry in wine.items()} == {
        "euclidean": None,
        "cosine": None,
        "opml": Mark.BETTER,
        "oasis": Mark.WORSE,
        "oahu": None,
    }
    assert [name for name, entry in wine.items() if entry.best] == ["opml"]
    assert [name for name, entry in wine.items() if entry.reference] == ["euclidean"]
    assert wine["oahu"].test is not None
    assert wine["oahu"].test["second"] == "euclidean"
    assert wine["euclidean"].test is None


def test_larger_may_be_better() -> None:
    results = Results(made({"wine": WINE}))
    found = results.entries("wine", measure("auc"))
    assert found["opml"].best and found["euclidean"].reference
    assert found["opml"].mark is Mark.BETTER
    assert found["oasis"].mark is Mark.WORSE


def test_what_does_not_stand_after_the_correction_has_an_open_mark() -> None:
    result = made({"wine": WINE})
    for line in result["tests"]:
        line["p_holm"] = 0.2
    found = Results(result).entries("wine", ERROR)
    assert (found["opml"].mark, found["oasis"].mark) == (Mark.PERHAPS_BETTER, Mark.PERHAPS_WORSE)


def test_a_standing_is_over_all_data_sets() -> None:
    results = Results(made({"wine": WINE, "iris": IRIS}))
    opml, oasis = results.standing("opml", ERROR), results.standing("oasis", ERROR)
    assert (opml.better, opml.same, opml.worse, opml.sure) == (("wine",), ("iris",), (), 1)
    assert (oasis.better, oasis.same, oasis.worse, oasis.sure) == ((), (), ("wine", "iris"), 0)
    # On wine the first; on iris cosine, oahu and opml have the same mean.
    assert opml.rank == pytest.approx((1 + 2) / 2)
    assert oasis.rank == 5.0
    assert opml.tested == 2


def test_a_comparison_can_be_read_from_both_sides() -> None:
    results = Results(made({"wine": WINE}))
    forth, back = (results.compared("wine", ERROR, *pair) for pair in (("opml", "oasis"), ("oasis", "opml")))
    assert forth is not None and back is not None
    assert (forth[0], back[0]) == ("win", "loss")
    assert forth[1] is back[1]
    assert results.compared("wine", ERROR, "opml", "missing") is None
    assert results.comparisons("wine", ERROR) == 6


def test_one_split_has_no_marks() -> None:
    results = Results(made({"wine": {name: values[:1] for name, values in WINE.items()}}))
    assert all(entry.mark is None and entry.test is None for entry in results.entries("wine", ERROR).values())
    assert results.compared("wine", ERROR, "opml", "oasis") is None
    assert results.splits == 1


def test_measures_come_in_their_order_and_the_first_with_a_direction_decides() -> None:
    results = Results(made({"wine": WINE}))
    assert [one.name for one in results.measures] == [
        "error",
        "auc",
        "mistake_rate",
        "utilisation",
        "recall_at_1",
        "recall_at_5",
    ]
    assert results.headline == ERROR
    assert Results(made({"wine": {"opml": [None, None]}})).headline == measure("mistake_rate")
    assert Results(made({})).headline is None


def test_other_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="format of this result is 2, and 1 is known"):
        Results(made({}, format=2))
