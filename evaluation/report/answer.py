"""Which metric to use, and whether it is better than doing nothing: the results of the tests, in sentences.

One data set has the recommendation of its result. Over several, learners are ordered by the data sets that they win.
Doing nothing is the best un-learned metric of a data set. A learner is better if the paired t-test is significant at
0.05; the report adds whether that holds after Holm's correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kinstream.evaluation.measures.names import Measure
from kinstream.evaluation.report.advice import sentences
from kinstream.evaluation.report.results import Entry, LearnerStanding, Results
from kinstream.evaluation.report.words import listed, several, spread

_FEW_SPLITS: Final = 5


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one data set.

    Parameters
    ----------
    run : the recommended metric; None if nothing could be tested.
    learner : that, or the best of all learners if it is un-learned. None if none was measured.
    reference : the best un-learned metric; None if none was measured.
    """

    data: str
    run: str | None
    learner: Entry | None
    reference: Entry | None


@dataclass(frozen=True, slots=True)
class ReportAnswer:
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


def answer(results: Results) -> ReportAnswer:
    """The answer by the deciding measure, `Results.headline`."""
    what = results.headline
    if what is None:
        return ReportAnswer("Nothing was measured that could be better or worse.")
    standings = [results.standing(name, what) for name in results.learners if name not in results.batch]
    standings = [one for one in standings if one.rank is not None]
    if not standings:
        return ReportAnswer("No learner was measured, so there is nothing to choose.")
    standings.sort(key=_merit)
    judged = f"Judged by {what.title} ({what.better})"
    by_data = tuple(advice(results, data, what) for data in results.data_names)
    if not any(one.tested for one in standings):
        return _untested(results, what, standings, judged, by_data)
    top = standings[0]
    line = results.recommended(by_data[0].data)
    if len(by_data) == 1 and line is not None and line["metric"] is not None:
        return ReportAnswer(*sentences(results, line, what), cautions=_cautions(results))
    why = (f"{judged}, {top.metric} is {_balance(top)}.", *_next(standings))
    title = _title(top, len(results.data_names))
    return ReportAnswer(title, why + _others(results, what, standings), by_data, _cautions(results))


def advice(results: Results, data: str, what: Measure) -> Advice:
    """The advice for one data set."""
    entries = results.entries(data, what)
    learners = [entries[name] for name in results.learners if name in entries and name not in results.batch]
    reference = results.reference(data, what)
    if not learners:
        return Advice(data, None, None, reference)
    # The sort is stable: the first of equals by the order of display.
    learners.sort(key=lambda entry: entry.mean if what.smaller_is_better else -entry.mean)
    line = results.recommended(data)
    run = None if line is None or reference is None else line["metric"]
    best = next((entry for entry in learners if entry.metric == run), learners[0])
    return Advice(data, run, best, reference)


def _merit(one: LearnerStanding) -> tuple[int, int, float]:
    """Sort key; the sort leaves equal ones in the order of display."""
    assert one.rank is not None
    return len(one.worse) - len(one.better), -one.sure, one.rank


def _title(top: LearnerStanding, data: int) -> str:
    if not top.better:
        return "No learner is better than doing nothing here."
    if len(top.better) <= len(top.worse):
        return "On balance, no learner is better than doing nothing here."
    if not top.sure:
        return f"{top.metric} may be better than doing nothing, but the evidence is weak."
    if data == 1:
        return f"Run {top.metric}: it is better than doing nothing."
    return f"Run {top.metric}: it is better than doing nothing on {len(top.better)} of {data} data sets."


def _balance(one: LearnerStanding) -> str:
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


def _next(standings: Sequence[LearnerStanding]) -> tuple[str, ...]:
    if len(standings) < 2 or not standings[1].better:
        return ()
    other = standings[1]
    return (
        f"Next comes {other.metric}: better on {len(other.better)}, not significantly different on {len(other.same)}, "
        f"worse on {len(other.worse)}.",
    )


def _value(entry: Entry) -> str:
    return spread(entry.mean, entry.std)


def _others(results: Results, what: Measure, standings: Sequence[LearnerStanding]) -> tuple[str, ...]:
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
    results: Results,
    what: Measure,
    standings: Sequence[LearnerStanding],
    judged: str,
    by_data: tuple[Advice, ...],
) -> ReportAnswer:
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
        return ReportAnswer(
            title, (f"The measure is {what.title} ({what.better}).", reason, *others), by_data
        )
    best, reference = by_data[0].learner, by_data[0].reference
    assert best is not None
    against = (
        ""
        if reference is None
        else f", and the best un-learned metric, {reference.metric}, {_value(reference)}"
    )
    return ReportAnswer(
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
