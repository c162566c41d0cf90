"""Limits are one-sided, and other data decide nothing."""

from __future__ import annotations

import pytest

from benchmarks.papers.shared.comparison import Line, PaperComparison, compared
from benchmarks.papers.shared.published import Reported, table

PRINTED = table("paper", "error", ("opml", "lego"), "iris | 0.100±0.010 | 0.200±0.020")


def line(mean: float, **changes: object) -> Line:
    given: dict[str, object] = {
        "published": Reported(0.1, 0.01),
        "published_data": "iris",
        "same_data": True,
        "bounded": True,
    }
    return Line("iris", "opml", "error", mean, 0.01, 10, **(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "above"), [(0.0, False), (0.1, False), (0.1199, False), (0.1201, True), (0.5, True)]
)
def test_only_worse_than_two_deviations_is_above(mean: float, above: bool) -> None:
    assert line(mean).above is above
    assert PaperComparison((line(mean),)).exceptions == ((line(mean),) if above else ())


def test_where_more_is_better_less_is_worse() -> None:
    worse = Line("iris", "opml", "macro_f1", 0.07, None, 1, Reported(0.1, 0.01), "iris", True)
    assert worse.above
    better = Line("iris", "opml", "macro_f1", 0.9, None, 1, Reported(0.1, 0.01), "iris", True)
    assert not better.above
    neither = Line("iris", "opml", "utilisation", 0.9, None, 1, Reported(0.1, 0.01), "iris", True)
    assert not neither.above


def test_other_data_and_figures_without_a_deviation_decide_nothing() -> None:
    assert not line(0.5, same_data=False).above
    assert not line(0.5, published=Reported(0.1)).above
    assert not line(0.5, published=None).above
    assert line(0.5, published=None).difference is None


def result(*names: str) -> dict[str, object]:
    means = {"opml": 0.15, "lego": 0.21, "oahu": 0.3}
    return {
        "data": [{"name": name} for name in names],
        "metrics": [{"name": metric} for metric in means],
        "summary": [
            {"data": name, "metric": metric, "measure": measure, "mean": mean, "std": 0.0, "n": 3}
            for name in names
            for metric, mean in means.items()
            for measure in ("error", "macro_f1")
        ],
    }


def test_figures_are_found_by_set_and_metric() -> None:
    found = compared(
        result("iris", "like-iris", "unknown"),
        (PRINTED,),
        {"iris": "iris"},
        {"like-iris": ("iris",)},
        ("opml",),
    )
    told = [(one.data, one.metric, one.published, one.same_data, one.bounded) for one in found.lines]
    opml, lego = (PRINTED.get("iris", metric) for metric in ("opml", "lego"))
    assert told == [
        ("iris", "opml", opml, True, True),
        ("iris", "lego", lego, True, False),
        ("iris", "oahu", None, False, False),
        ("like-iris", "opml", opml, False, False),
        ("like-iris", "lego", lego, False, False),
        ("like-iris", "oahu", None, False, False),
        ("unknown", "opml", None, False, False),
        ("unknown", "lego", None, False, False),
        ("unknown", "oahu", None, False, False),
    ]
    assert [(one.data, one.metric) for one in found.exceptions] == [("iris", "opml")]
    lines = found.as_dict()["lines"]
    assert (lines[0]["difference"], lines[0]["above"]) == (pytest.approx(0.05), True)
