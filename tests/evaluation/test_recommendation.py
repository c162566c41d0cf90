"""The recommendation: a clear win, a draw, a loss; the simplest of those that do not differ significantly from the
best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kinstream.evaluation.runner.recommendation import recommend

FAMILIES = {"raw": "un-learned", "z": "un-learned", "opml": "single", "mixture": "ensemble", "LDA": "batch"}
RAW = [0.20, 0.22, 0.21, 0.23, 0.20]


def recommended(measure: str = "error", **values: Sequence[float]) -> dict[str, Any]:
    metrics = [
        {"name": name, "role": "unlearned" if kind == "un-learned" else "learner", "family": kind}
        for name, kind in FAMILIES.items()
        if name in values
    ]
    known = {("d", name, measure): dict(enumerate(given)) for name, given in values.items()}
    (line,) = recommend(known, metrics, ["d"])
    return line


def less(values: Sequence[float], by: float, *wobble: float) -> list[float]:
    return [
        value - by + w for value, w in zip(values, wobble or [0.002, -0.002, 0.0, 0.001, -0.001], strict=True)
    ]


def test_a_clear_win_is_recommended_with_its_gain() -> None:
    line = recommended(raw=RAW, z=less(RAW, -0.05), mixture=less(RAW, 0.1))
    assert (line["metric"], line["best"], line["unlearned"], line["learned"]) == (
        "mixture",
        "mixture",
        "raw",
        "mixture",
    )
    gain = line["gain"]
    # Gaps .098, .102, .1, .099, .101: s = .00158, s / sqrt(5) = .000707, t of 4 degrees of freedom 2.776.
    assert gain["mean"] == pytest.approx(0.1)
    assert gain["standard_error"] == pytest.approx(0.000707, abs=1e-6)
    assert (gain["low"], gain["high"]) == pytest.approx((0.1 - 0.001963, 0.1 + 0.001963), abs=1e-5)
    assert gain["of"] == "mixture" and gain["n"] == 5


def test_a_draw_is_for_the_metric_that_needs_no_learning() -> None:
    line = recommended(raw=RAW, mixture=less(RAW, 0.001, 0.01, -0.01, 0.005, -0.005, 0.0))
    assert (line["best"], line["metric"], line["equal"]) == ("mixture", "raw", ["raw", "mixture"])
    assert line["gain"]["of"] == "mixture" and line["gain"]["low"] < 0.0 < line["gain"]["mean"]


def test_a_loss_is_for_the_best_metric_that_needs_no_learning() -> None:
    line = recommended(raw=RAW, z=less(RAW, 0.03), mixture=less(RAW, -0.1))
    assert (line["best"], line["metric"], line["unlearned"]) == ("z", "z", "z")
    assert line["gain"]["of"] == "mixture" and line["gain"]["high"] < 0.0


def test_a_single_learner_comes_before_an_ensemble_that_is_not_told_apart() -> None:
    line = recommended(
        raw=RAW, opml=less(RAW, 0.099), mixture=less(RAW, 0.1, 0.004, -0.004, 0.001, -0.001, 0.0)
    )
    assert (line["best"], line["metric"]) == ("mixture", "opml")
    assert line["gain"]["of"] == "opml"


def test_a_learner_that_is_not_told_apart_from_no_learning_is_not_the_simplest_of_the_best() -> None:
    """The best differs significantly from raw; opml, because it is noisy, neither from the best nor from raw."""
    noisy = [0.05, 0.30, 0.04, 0.28, 0.10]
    line = recommended(raw=RAW, opml=noisy, mixture=less(RAW, 0.1))
    assert set(line["equal"]) == {"opml", "mixture"}
    assert line["metric"] == "mixture"


def test_batch_learners_are_named_and_not_recommended() -> None:
    line = recommended(raw=RAW, mixture=less(RAW, 0.05), LDA=less(RAW, 0.1))
    assert (line["metric"], line["best"], line["batch"]) == ("mixture", "mixture", ["LDA"])
    assert recommended(raw=RAW, LDA=less(RAW, 0.001, 0.01, -0.01, 0.0, 0.0, 0.0))["batch"] == []


def test_larger_is_better_where_the_measure_says_so() -> None:
    line = recommended("ndcg_at_10", raw=RAW, mixture=[value + 0.1 for value in RAW])
    assert line["metric"] == "mixture" and line["gain"]["mean"] == pytest.approx(0.1)
    assert recommended("ndcg_at_10", raw=RAW, mixture=less(RAW, 0.1))["metric"] == "raw"


def test_one_split_recommends_nothing() -> None:
    line = recommended(raw=RAW[:1], mixture=[0.0])
    assert (line["metric"], line["gain"]) == (None, None)
    assert (line["best"], line["unlearned"], line["learned"]) == ("mixture", "raw", "mixture")
