"""From the cells of an evaluation to means, tests, wins and losses. The format is that of `kinstream evaluate`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kinstream.evaluation.measures.names import measure, order
from kinstream.evaluation.runner.recommendation import BATCH, family, recommend
from kinstream.evaluation.runner.statistics import holm_known, paired, unpaired, verdict

#: A cell, metric, data set, or one entry of a summary, as in `result.json`.
Item = Mapping[str, Any]
Line = dict[str, Any]
#: Value by split, of one data set, metric and measure.
_Splits = Mapping[int, float]
_Values = Mapping[tuple[str, str, str], _Splits]

LEARNER: Final = "learner"
UNLEARNED: Final = "unlearned"


def summarise(result: Item) -> dict[str, list[Line]]:
    """The parts "summary", "tests", "win_tie_loss" and "recommendation" of a result.

    Parameters
    ----------
    result : with "cells", in any order, one for each data set, metric and split; and with all "metrics" and "data"
        that they name, in the order of display. A measure that a cell lacks, or has as None or NaN, is not known there.

    Raises
    ------
    ValueError : a cell comes twice, or names a measure, a metric or a data set that is not known.
    """
    metrics: Sequence[Item] = result["metrics"]
    names = [str(item["name"]) for item in result["data"]]
    values = _values(result["cells"], [str(item["name"]) for item in metrics], names)
    lines = _tests(values, metrics, names)
    return {
        "summary": _means(values, metrics, names),
        "tests": lines,
        "win_tie_loss": _win_tie_loss(lines),
        "recommendation": recommend(values, metrics, names),
    }


def _means(values: _Values, metrics: Sequence[Item], data: Sequence[str]) -> list[Line]:
    """Mean and standard deviation (with n - 1; None of one value) over splits, by data set, metric and measure."""
    found = []
    kinds = _measures(values)
    for name in data:
        for metric in metrics:
            for kind in kinds:
                splits = values.get((name, str(metric["name"]), kind))
                if splits:
                    mean, std = _mean(list(splits.values()))
                    keys: Line = {"data": name, "metric": str(metric["name"]), "measure": kind}
                    found.append(keys | {"mean": mean, "std": std, "n": len(splits)})
    return found


def _tests(values: _Values, metrics: Sequence[Item], data: Sequence[str]) -> list[Line]:
    """Every learner against every un-learned metric, and against every learner that is displayed after it.

    Measures without a better direction are not tested, nor measures that no split has for both. `difference` is the
    mean of first less second; `t` is None where it is infinite. With one split there is no test: `p` is None and the
    verdict a tie. One family of Holm's correction are the tests of one data set and measure against un-learned
    metrics, those of batch learners apart, and another one those between learners.
    """
    learners = [str(metric["name"]) for metric in metrics if metric["role"] == LEARNER]
    unlearned = [str(metric["name"]) for metric in metrics if metric["role"] == UNLEARNED]
    batch = [str(metric["name"]) for metric in metrics if family(metric) == BATCH]
    online = [name for name in learners if name not in batch]
    against_none, beside = (
        [(first, second) for first in some for second in unlearned] for some in (online, batch)
    )
    between = [(first, second) for i, first in enumerate(learners) for second in learners[i + 1 :]]
    found: list[Line] = []
    kinds = _measures(values)
    for name in data:
        for kind in kinds:
            smaller = measure(kind).smaller_is_better
            if smaller is None:
                continue
            for pairs in (against_none, beside, between):
                lines = list(_family(values, name, kind, pairs, smaller))
                for line, p in zip(lines, holm_known([line["p"] for line in lines]), strict=True):
                    line["p_holm"] = p
                found += lines
    return found


def _win_tie_loss(lines: Iterable[Item]) -> list[Line]:
    """How often over data sets the first of two metrics wins, ties and loses; without a test, none of these."""
    counts: dict[tuple[str, str, str], Line] = {}
    for line in lines:
        if line["p"] is None:
            continue
        key = (str(line["measure"]), str(line["first"]), str(line["second"]))
        empty: Line = dict(zip(("measure", "first", "second"), key, strict=True))
        counts.setdefault(key, empty | {"win": 0, "tie": 0, "loss": 0})[line["verdict"]] += 1
    return sorted(counts.values(), key=lambda line: order(line["measure"]))


def _family(
    values: _Values, name: str, kind: str, pairs: Sequence[tuple[str, str]], smaller: bool
) -> Iterator[Line]:
    for first, second in pairs:
        one, other = values.get((name, first, kind), {}), values.get((name, second, kind), {})
        splits = [split for split in one if split in other]
        if not splits:
            continue
        a, b = [one[split] for split in splits], [other[split] for split in splits]
        test = paired(a, b)
        yield {
            "data": name,
            "measure": kind,
            "first": first,
            "second": second,
            "difference": test.difference,
            "t": test.t if test.t is None or math.isfinite(test.t) else None,
            "p": test.p,
            "p_unpaired": unpaired(a, b).p,
            "p_holm": None,
            "verdict": verdict(test, smaller_is_better=smaller).value,
            "n": test.n,
        }


def _values(cells: Iterable[Item], metrics: Sequence[str], data: Sequence[str]) -> _Values:
    """The known values of all cells, by split in ascending order."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    seen: set[tuple[str, str, int]] = set()
    for cell in sorted(cells, key=lambda cell: int(cell["split"])):
        name, metric, split = str(cell["data"]), str(cell["metric"]), int(cell["split"])
        if name not in data or metric not in metrics:
            raise ValueError(f"there is a cell of {metric} on {name}, and one of these names is not known")
        if (name, metric, split) in seen:
            raise ValueError(f"there are two cells of {metric} on {name}, split {split}")
        seen.add((name, metric, split))
        for kind, value in cell["measures"].items():
            measure(kind)
            if value is not None and math.isfinite(value):
                found.setdefault((name, metric, kind), {})[split] = float(value)
    return found


def _measures(values: _Values) -> list[str]:
    return sorted({kind for _, _, kind in values}, key=order)


def _mean(values: Sequence[float]) -> tuple[float, float | None]:
    """Sums without intermediate rounding, so that all processors give the same bits."""
    n = len(values)
    if all(value == values[0] for value in values):
        return values[0], 0.0 if n > 1 else None
    mean = math.fsum(values) / n
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
