"""The sentence that answers which learner to run: it says no more than the tests do."""

from __future__ import annotations

from kinstream.evaluation.report.answer import ReportAnswer, answer
from kinstream.evaluation.report.results import Results
from tests.monitoring.report.made_results import IRIS, WINE, Errors, made


def told(errors: Errors) -> ReportAnswer:
    return answer(Results(made(errors)))


def only(errors: Errors, *names: str) -> Errors:
    return {
        data: {name: values for name, values in metrics.items() if name in names}
        for data, metrics in errors.items()
    }


def test_a_learner_that_is_better_is_recommended_with_its_gain() -> None:
    found = told({"wine": WINE})
    assert found.title == "Use opml: k-NN error 0.110 instead of 0.212 without learning."
    # Differences .10, .11, .09, .11, .10: mean .102, s .00837, standard error .00374, t of 4 degrees 2.776.
    assert found.sentences == (
        "Its gain over euclidean, the best un-learned metric, is 0.102 (95 % interval 0.092 to 0.112, standard error "
        "0.004; paired t-test over 5 splits, p < 0.001).",
    )
    assert found.by_data == ()


def test_metrics_that_are_not_told_apart_are_named_with_it() -> None:
    errors = {"wine": WINE | {"copml": [0.10, 0.12, 0.11, 0.12, 0.10]}}
    assert "No significant difference from it: copml." in told(errors).sentences


def test_no_learner_is_better() -> None:
    found = told(only({"wine": WINE}, "euclidean°", "oasis", "oahu"))
    assert found.title == "Use euclidean, which needs no learning: no learner is better here."
    assert found.sentences[0].startswith(
        "Its k-NN error is 0.212. The best learner, oahu, has 0.210; its gain over euclidean, the best un-learned "
        "metric, is 0.002 (95 % interval -0.008 to 0.012,"
    )
    assert found.sentences[1:] == (
        "It is the simplest metric that does not differ significantly from the best one, oahu (0.210).",
        "The interval is wider than the gain: more rows or more splits would narrow it.",
    )


def test_every_learner_is_worse() -> None:
    found = told(only({"wine": WINE}, "euclidean°", "oasis"))
    assert found.title == "Use euclidean, which needs no learning: no learner is better here."
    assert "The best learner, oasis, has 0.314; its gain" in found.sentences[0]
    assert "is -0.102 (95 % interval -0.112 to -0.092," in found.sentences[0]
    assert len(found.sentences) == 1


def test_what_the_correction_takes_away_is_said() -> None:
    # p = 0.02 of the paired test, over six tests.
    gaps = [0.01, 0.03, 0.02, 0.005, 0.03]
    base = WINE["euclidean°"]
    others = {f"learner {i}": [b + 0.01 * (-1) ** s for s, b in enumerate(base)] for i in range(5)}
    errors = {
        "wine": {"euclidean°": base, "opml": [b - gap for b, gap in zip(base, gaps, strict=True)], **others}
    }
    found = told(errors)
    assert found.title == "Use opml: k-NN error 0.193 instead of 0.212 without learning."
    assert found.sentences[1].startswith("After Holm's correction for 6 tests it is p = 0.1")
    assert found.sentences[1].endswith("not significant: take it as a hint.")


def test_too_little_to_learn_from_is_said_with_the_number() -> None:
    result = made({"wine": WINE})
    for cell in result["cells"]:
        cell |= {"smallest_class": 4 if cell["split"] == 2 else 30, "constraints": 284}
    found = answer(Results(result))
    assert found.sentences[1:] == (
        "Too little to learn from: the smallest class has 4 training rows.",
        "Too little to learn from: opml had 284 constraints.",
    )


def test_what_it_costs_is_said_where_it_was_measured() -> None:
    result = made({"wine": WINE})
    times = []
    for cell in result["cells"]:
        cell |= {"constraints": 2_000, "columns": 13}
        place = {name: cell[name] for name in ("data", "metric", "split")}
        times.append(place | {"seconds_learning": 0.03, "seconds_transform": 1e-6, "transformed": 50})
    found = answer(Results(result, times))
    assert found.sentences[1] == (
        "Cost: 15.0 µs a constraint to learn, less than 0.1 µs a row to transform, 13 columns."
    )


def test_over_several_data_sets_wins_are_counted() -> None:
    found = told({"wine": WINE, "iris": IRIS})
    assert found.title == "Run opml: it is better than doing nothing on 1 of 2 data sets."
    assert found.sentences[0] == (
        "Judged by k-NN error (smaller is better), opml is significantly better than the best un-learned metric on "
        "wine (1 of 2; after Holm's correction all of these); not significantly different on iris; "
        "significantly worse on none."
    )
    assert [(one.data, one.run) for one in found.by_data] == [("wine", "opml"), ("iris", "cosine")]
    # The best learner of iris has the same mean as the best metric that learns nothing.
    iris = found.by_data[1]
    assert iris.learner is not None and iris.reference is not None
    assert (iris.learner.metric, iris.reference.metric) == ("opml", "cosine")


def test_a_learner_that_loses_as_often_as_it_wins_is_not_advised() -> None:
    worse = IRIS | {"opml": [0.5, 0.52, 0.51, 0.53, 0.5]}
    found = told(only({"wine": WINE, "iris": worse}, "euclidean°", "opml"))
    assert found.title == "On balance, no learner is better than doing nothing here."
    assert "significantly worse on iris" in found.sentences[0]
    # Where it does win, it is still what to run.
    assert [one.run for one in found.by_data] == ["opml", "euclidean"]


def test_the_learner_with_the_better_balance_comes_first() -> None:
    other = {"wine": WINE, "iris": IRIS, "glass": IRIS}
    best = {"wine": WINE["opml"], "iris": [0.01, 0.01, 0.0, 0.01, 0.02], "glass": IRIS["opml"]}
    errors = {data: metrics | {"copml": best[data]} for data, metrics in other.items()}
    found = told(errors)
    assert found.title == "Run copml: it is better than doing nothing on 2 of 3 data sets."
    assert found.sentences[1] == "Next comes opml: better on 1, not significantly different on 2, worse on 0."


def test_one_split_answers_nothing() -> None:
    found = told({"wine": {name: values[:1] for name, values in WINE.items()}})
    assert found.title == "One split is not evidence: whether learning helps here is not known."
    assert (
        "the best learner, opml, has 0.100, and the best un-learned metric, euclidean, 0.200"
        in found.sentences[0]
    )
    several = told({data: {name: values[:1] for name, values in WINE.items()} for data in ("a", "b")})
    assert [one.run for one in several.by_data] == [None, None]


def test_without_unlearned_metrics_nothing_is_known_of_learning() -> None:
    found = told(only({"wine": WINE}, "opml", "oasis"))
    assert found.title.startswith("Nothing un-learned was measured")
    assert found.sentences[-1] == "The other learner is significantly worse than opml."


def test_without_learners_or_measures_there_is_no_choice() -> None:
    assert (
        told(only({"wine": WINE}, "euclidean°")).title
        == "No learner was measured, so there is nothing to choose."
    )
    assert told({}).title == "Nothing was measured that could be better or worse."


def test_splits_that_do_not_meet_are_no_test() -> None:
    found = told({"wine": {"euclidean°": [0.1, 0.2, None, None], "opml": [None, None, 0.3, 0.4]}})
    assert found.title.startswith("Learners and un-learned metrics have no splits in common")


def test_cautions_say_what_the_figures_hide() -> None:
    many = " ".join(told({"wine": WINE}).cautions)
    assert "Picked by the test rows are the best of 3 learners and the best of 2 un-learned metrics" in many
    assert "Splits of one data set share rows" in many
    assert "only large differences" not in many
    few = told({"wine": {name: WINE[name][:3] for name in ("euclidean°", "opml")}}).cautions
    assert few[-1] == "With 3 splits only large differences can be seen."
    assert not any("Picked" in caution for caution in few)
