"""The recommendation for one data set in sentences: the metric, its gain and cost, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinstream.evaluation.measures.names import Measure
from kinstream.evaluation.report.results import LEVEL, Mark, Results
from kinstream.evaluation.report.words import chance, listed, number, several

#: Below these, the result reports that there was little to learn from.
FEW_ROWS: Final = 10
FEW_CONSTRAINTS: Final = 1_000
#: Features that are displayed, at most.
FEATURES: Final = 10


@dataclass(frozen=True, slots=True)
class Importance:
    """The largest shares of features in a metric.

    Parameters
    ----------
    features : (name, share), the largest first.
    others, rest : number of features that are not displayed, and the sum of their shares.
    """

    metric: str
    features: tuple[tuple[str, float], ...]
    others: int
    rest: float


def sentences(results: Results, line: Mapping[str, Any], what: Measure) -> tuple[str, tuple[str, ...]]:
    """The title and the sentences of a recommendation that names a metric."""
    data, metric, learned = line["data"], line["metric"], line["learned"]
    entries = results.entries(data, what)
    reference = line["unlearned"]
    chosen = entries[metric]
    found: list[str] = []
    if metric in results.unlearned:
        title = f"Use {metric}, which needs no learning: no learner is better here."
        found.append(f"Its {what.title} is {number(chosen.mean)}. {_best_learner(results, line, what)}")
    else:
        before = (
            "" if reference is None else f" instead of {number(entries[reference].mean)} without learning"
        )
        title = f"Use {metric}: {what.title} {number(chosen.mean)}{before}."
        if line["gain"] is not None:
            found.append(f"Its gain over {reference}, the best un-learned metric, is {_gain(line['gain'])}.")
        if chosen.mark is Mark.PERHAPS_BETTER and chosen.test is not None:
            tests = results.comparisons(data, what)
            found.append(
                f"After Holm's correction for {tests} tests it is {chance(chosen.test['p_holm'])}, not significant: "
                "take it as a hint."
            )
    others = [name for name in line["equal"] if name != metric]
    if metric != line["best"]:
        found.append(
            f"It is the simplest metric that does not differ significantly from the best one, {line['best']} "
            f"({number(entries[line['best']].mean)})."
        )
    elif others:
        found.append(f"No significant difference from it: {listed(others)}.")
    for name in line["batch"]:
        found.append(f"{name} is better still ({number(entries[name].mean)}), but needs all rows at once.")
    found.append(_cost(results, data, metric))
    found += _too_little(results, line, metric if metric not in results.unlearned else learned)
    return title, tuple(filter(None, found))


def shares_of(results: Results, data: str) -> Importance | None:
    """The shares of the features in the recommended or the requested metric; None if not known."""
    recommended = results.recommended(data)
    metric = recommended and (recommended["metric"] or recommended["best"])
    for line in results.importance:
        if line["data"] == data and line["metric"] == metric:
            pairs = [(str(one["name"]), float(one["share"])) for one in line["features"]]
            shown, left = pairs[:FEATURES], pairs[FEATURES:]
            return Importance(str(metric), tuple(shown), len(left), math.fsum(share for _, share in left))
    return None


def _best_learner(results: Results, line: Mapping[str, Any], what: Measure) -> str:
    learned, gain = line["learned"], line["gain"]
    if learned is None or gain is None:
        return "No learner was compared with it."
    entry = results.entries(line["data"], what)[learned]
    return (
        f"The best learner, {learned}, has {number(entry.mean)}; its gain over {line['unlearned']}, the best "
        f"un-learned metric, is {_gain(gain)}."
    )


def _gain(gain: Mapping[str, Any]) -> str:
    return (
        f"{_signed(gain['mean'])} (95 % interval {_signed(gain['low'])} to {_signed(gain['high'])}, standard error "
        f"{number(gain['standard_error'])}; paired t-test over {several(gain['n'], 'split')}, {chance(gain['p'])})"
    )


def _signed(value: float) -> str:
    text = number(abs(value))
    return f"-{text}" if value < 0.0 and float(text) else text


def _cost(results: Results, data: str, metric: str) -> str:
    """The cost of a metric; empty if it was not measured."""
    columns = [cell["columns"] for cell in results.of(data, metric) if cell.get("columns") is not None]
    times = results.cost(data, metric)
    parts = []
    if times.learn is not None and metric not in results.unlearned:
        parts.append(f"{_microseconds(times.learn)} a constraint to learn")
    if times.transform is not None:
        parts.append(f"{_microseconds(times.transform)} a row to transform")
    if columns:
        parts.append(several(max(columns), "column"))
    return f"Cost: {', '.join(parts)}." if parts else ""


def _microseconds(value: float) -> str:
    return "less than 0.1 µs" if value < 0.05 else f"{value:,.1f} µs"


def _too_little(results: Results, line: Mapping[str, Any], learner: str | None) -> Iterator[str]:
    """Sentences with the number that shows that there was too little to learn from."""
    if learner is None:
        return
    cells = results.of(line["data"], learner)
    smallest = min((cell.get("smallest_class", FEW_ROWS) for cell in cells), default=FEW_ROWS)
    learned = min((cell.get("constraints", FEW_CONSTRAINTS) for cell in cells), default=FEW_CONSTRAINTS)
    if smallest < FEW_ROWS:
        yield f"Too little to learn from: the smallest class has {several(smallest, 'training row')}."
    if learned < FEW_CONSTRAINTS:
        yield f"Too little to learn from: {learner} had {several(learned, 'constraint')}."
    gain = line["gain"]
    if gain is not None and gain["low"] <= 0.0 < gain["mean"] and (gain["p"] or 0.0) >= LEVEL:
        yield "The interval is wider than the gain: more rows or more splits would narrow it."


def shown_shares(found: Importance) -> Sequence[tuple[str, str]]:
    """Names and shares as text, with a last line for the features that are not displayed."""
    lines = [(name, f"{100.0 * share:.1f} %") for name, share in found.features]
    if found.others:
        lines.append((f"{several(found.others, 'other feature')}", f"{100.0 * found.rest:.1f} %"))
    return lines
