"""Which learner to run, and whether it is better than doing nothing: the results of the tests, in sentences.

Doing nothing is the best un-learned metric of a data set. A learner is better if the paired t-test is significant at
0.05 (spec 11); the report adds whether that holds after Holm's correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kinstream.replay.evaluation.measures.names import Measure
from kinstream.replay.evaluation.report.results import Entry, Mark, Results, Standing
from kinstream.replay.evaluation.report.words import chance, listed, several, spread

_FEW_SPLITS: Final = 5


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one data set.

    Parameters
    ----------
    run : a metric; None if nothing could be tested.
    learner : the best of the learners that are significantly better than doing nothing, those that stay so after the
        correction first; without any, the best of all learners. None if none was measured.
    reference : the best un-learned metric; None if none was measured.
    """

    data: str
    run: str | None
    learner: Entry | None
    reference: Entry | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a result.

    Parameters
    ----------
    title : in one line.
    sentences : why.
    by_data : in the order of display; empty for one data set, which the sentences then describe.
    cautions : what to keep in mind.
    """

    title: str
    sentences: tuple[str, ...] = ()
    by_data: tuple[Advice, ...] = ()
    cautions: tuple[str, ...] = ()


def answer(results: Results) -> Answer:
    """The answer by the deciding measure, `Results.headline`."""
    what = results.headline
    if what is None:
        return Answer("Nothing was measured that could be better or worse.")
    standings = [results.standing(name, what) for name in results.learners]
    standings = [one for one in standings if one.rank is not None]
    if not standings:
        return Answer("No learner was measured, so there is nothing to choose.")
    standings.sort(key=_merit)
    judged = f"Judged by {what.title} ({what.better})"
    by_data = tuple(advice(results, data, what) for data in results.data_names)
    if not any(one.tested for one in standings):
        return _untested(results, what, standings, judged, by_data)
    top = standings[0]
    if len(by_data) == 1:
        sentences: tuple[str, ...] = (f"{judged}, {_advice_text(results, by_data[0], what)}.",)
        by_data = ()
    else:
        sentences = (f"{judged}, {top.metric} is {_balance(top)}.", *_next(standings))
    title = _title(top, len(results.data_names))
    return Answer(title, sentences + _others(results, what, standings), by_data, _cautions(results))


def advice(results: Results, data: str, what: Measure) -> Advice:
    """The advice for one data set."""
    entries = results.entries(data, what)
    learners = [entries[name] for name in results.learners if name in entries]
    reference = results.reference(data, what)
    if not learners:
        return Advice(data, None, None, reference)
    # The sort is stable: the first of equals by the order of display.
    learners.sort(key=lambda entry: entry.mean if what.smaller_is_better else -entry.mean)
    if reference is None or not any(entry.test for entry in learners):
        return Advice(data, None, learners[0], reference)
    for mark in (Mark.BETTER, Mark.PERHAPS_BETTER):
        for entry in learners:
            if entry.mark is mark:
                return Advice(data, entry.metric, entry, reference)
    return Advice(data, reference.metric, learners[0], reference)


def _merit(one: Standing) -> tuple[int, int, float]:
    """Sort key; the sort leaves equal ones in the order of display."""
    assert one.rank is not None
    return len(one.worse) - len(one.better), -one.sure, one.rank


def _title(top: Standing, data: int) -> str:
    if not top.better:
        return "No learner is better than doing nothing here."
    if len(top.better) <= len(top.worse):
        return "On balance, no learner is better than doing nothing here."
    if not top.sure:
        return f"{top.metric} may be better than doing nothing, but the evidence is weak."
    if data == 1:
        return f"Run {top.metric}: it is better than doing nothing."
    return f"Run {top.metric}: it is better than doing nothing on {len(top.better)} of {data} data sets."


def _balance(one: Standing) -> str:
    """The data sets where a learner is better, not different, and worse."""
    against = "than the best un-learned metric"
    kept = "all" if one.sure == len(one.better) else str(one.sure) if one.sure else "none"
    better = (
        f"significantly better {against} on {listed(one.better)} "
        f"({len(one.better)} of {one.tested}; after Holm's correction {kept} of these)"
        if one.better
        else f"significantly better {against} on no data set"
    )
    same = [f"not significantly different on {listed(one.same)}"] if one.same else []
    return "; ".join([better, *same, f"significantly worse on {listed(one.worse) if one.worse else 'none'}"])


def _next(standings: Sequence[Standing]) -> tuple[str, ...]:
    if len(standings) < 2 or not standings[1].better:
        return ()
    other = standings[1]
    return (
        f"Next comes {other.metric}: better on {len(other.better)}, not significantly different on {len(other.same)}, "
        f"worse on {len(other.worse)}.",
    )


def _advice_text(results: Results, one: Advice, what: Measure) -> str:
    """An advice as text."""
    learner, reference = one.learner, one.reference
    if learner is None or reference is None or one.run is None:
        return "no test was possible"
    nothing = f"{reference.metric}, the best un-learned metric, with {_value(reference)}"
    tests = _chances(results, learner, what)
    if one.run == learner.metric:
        text = f"{learner.metric} has {_value(learner)}, significantly better than {nothing} ({tests})"
        if learner.mark is Mark.PERHAPS_BETTER:
            text += "; this does not hold after the correction, so take it as a hint"
        return text
    marks = [entry.mark for name in results.learners if (entry := results.entries(one.data, what).get(name))]
    if all(mark in (Mark.WORSE, Mark.PERHAPS_WORSE) for mark in marks):
        return (
            f"every learner is significantly worse than {nothing}; the best one, {learner.metric}, has "
            f"{_value(learner)}"
        )
    return (
        f"no learner is significantly better than {nothing}; the best one, {learner.metric}, has {_value(learner)} "
        f"({tests})"
    )


def _chances(results: Results, entry: Entry, what: Measure) -> str:
    if entry.test is None:
        return "not tested"
    text = f"paired t-test over {several(entry.test['n'], 'split')}, {chance(entry.test['p'])}"
    family = results.comparisons(entry.data, what)
    return (
        text
        if family < 2
        else f"{text}; after Holm's correction for {family} tests, {chance(entry.test['p_holm'])}"
    )


def _value(entry: Entry) -> str:
    return spread(entry.mean, entry.std)


def _others(results: Results, what: Measure, standings: Sequence[Standing]) -> tuple[str, ...]:
    """How the other learners compare with the first one."""
    top, rest = standings[0], standings[1:]
    if not rest:
        return ()
    equal = []
    for other in rest:
        found = [results.compared(data, what, top.metric, other.metric) for data in results.data_names]
        verdicts = [verdict for verdict, _ in filter(None, found)]
        if verdicts and "win" not in verdicts:
            equal.append(other.metric)
    if equal:
        where = "" if len(results.data_names) == 1 else " on any data set"
        return (
            f"{top.metric} is not significantly better{where} than {listed(equal)}, so by these figures "
            f"{'that one' if len(equal) == 1 else 'those'} would do as well.",
        )
    each = "The other learner" if len(rest) == 1 else "Each of the other learners"
    where = "" if len(results.data_names) == 1 else " on at least one data set"
    return (f"{each} is significantly worse than {top.metric}{where}.",)


def _untested(
    results: Results, what: Measure, standings: Sequence[Standing], judged: str, by_data: tuple[Advice, ...]
) -> Answer:
    """Without un-learned metrics, or with one split."""
    if results.unlearned and results.splits < 2:
        title = "One split is not evidence: whether learning helps here is not known."
        reason = "A test takes at least two splits; run it again with more of them before you rely on a difference."
    elif results.unlearned:
        title = "Learners and un-learned metrics have no splits in common: whether learning helps here is not known."
        reason = "See the list of what was left out, below."
    else:
        title = (
            "Nothing un-learned was measured beside the learners: whether learning helps here is not known."
        )
        reason = "Run it again with the un-learned metrics to see whether any of these is better than doing nothing."
    others = _others(results, what, standings) if results.splits > 1 else ()
    if len(by_data) > 1:
        return Answer(title, (f"The measure is {what.title} ({what.better}).", reason, *others), by_data)
    best, reference = by_data[0].learner, by_data[0].reference
    assert best is not None
    against = (
        ""
        if reference is None
        else f", and the best un-learned metric, {reference.metric}, {_value(reference)}"
    )
    return Answer(
        title, (f"{judged}, the best learner, {best.metric}, has {_value(best)}{against}.", reason, *others)
    )


def _cautions(results: Results) -> tuple[str, ...]:
    found = []
    counts = ((len(results.learners), "learner"), (len(results.unlearned), "un-learned metric"))
    picked = [f"the best of {several(count, name)}" for count, name in counts if count > 1]
    if picked:
        found.append(
            f"Picked by the test rows {'are' if len(picked) > 1 else 'is'} {listed(picked)}; on new data expect a "
            f"little less of {'both' if len(picked) > 1 else 'it'}."
        )
    found.append("Splits of one data set share rows, so the p-values are rather too small than too large.")
    if results.splits < _FEW_SPLITS:
        found.append(f"With {several(results.splits, 'split')} only large differences can be seen.")
    return tuple(found)
