"""One recommendation for each data set: the simplest metric that does not differ significantly from the best.

1. The best metric is that with the best mean over the splits, by the first measure with a direction.
2. A metric is significantly worse if its mean is worse and the t-test of the differences, paired by split, is
significant at `statistics.LEVEL`.
3. Among the others, an un-learned metric comes before a single learner, and that before a learner made of others; among
equals the one with the best mean is chosen. A learner must be significantly better than the best un-learned metric.
Batch learners are never recommended: they are only for comparison.

The gain over the best un-learned metric is the mean of the paired differences, positive if the recommended metric is
better, with its standard error s / sqrt(n) and the interval of 95 % of Student's t with n - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kinstream.evaluation.experiment.plan import FAMILIES
from kinstream.evaluation.measures.names import Measure, measure, order
from kinstream.evaluation.runner.statistics import LEVEL, paired

Line = dict[str, Any]
_Splits = Mapping[int, float]

UNLEARNED: Final = FAMILIES[0]
BATCH: Final = FAMILIES[-1]


def family(metric: Mapping[str, Any]) -> str:
    """The family of a metric of a result, one of `FAMILIES`; results of earlier versions have only its role."""
    default = UNLEARNED if metric["role"] == "unlearned" else "single"
    return str(metric.get("family", default))


def recommend(
    values: Mapping[tuple[str, str, str], _Splits],
    metrics: Sequence[Mapping[str, Any]],
    data: Sequence[str],
) -> list[Line]:
    """The part "recommendation" of a result: a line for each data set on which something was measured.

    Parameters
    ----------
    values : value by split, of each data set, metric and measure.
    metrics, data : in the order of display.

    Returns
    -------
    lines : "metric" is the recommended one, None without a test; "best" the one with the best mean and "equal" all that
        do not differ significantly from it; "unlearned" and "learned" the best of each by the mean, None if there is
        none; "batch" the batch learners that are significantly better than the recommended metric. "gain" is that of
        the recommended metric, or, if it is un-learned, of "learned".
    """
    families = {str(metric["name"]): family(metric) for metric in metrics}
    kinds = sorted({kind for _, _, kind in values}, key=order)
    headline = next((kind for kind in kinds if measure(kind).smaller_is_better is not None), None)
    if headline is None:
        return []
    found = []
    for name in data:
        known = {m: dict(values[name, m, headline]) for m in families if (name, m, headline) in values}
        if known:
            found.append(_line(name, measure(headline), known, families))
    return found


def _line(data: str, what: Measure, values: Mapping[str, _Splits], families: Mapping[str, str]) -> Line:
    sign = 1.0 if what.smaller_is_better else -1.0
    costs = {name: sign * math.fsum(splits.values()) / len(splits) for name, splits in values.items()}
    offered = [name for name in values if families[name] != BATCH]
    # The first of equal ones by family, then by the order of display.
    ranked = sorted(offered, key=lambda name: (costs[name], FAMILIES.index(families[name])))
    learned = next((name for name in ranked if families[name] != UNLEARNED), None)
    unlearned = next((name for name in ranked if families[name] == UNLEARNED), None)
    line: Line = {"data": data, "measure": what.name, "metric": None, "best": None, "equal": [], "batch": []}
    line |= {"learned": learned, "unlearned": unlearned, "gain": None}
    if not ranked:
        return line
    best = ranked[0]
    line["best"] = best
    tested = [name for name in ranked if _common(values[best], values[name])]
    if not tested or (unlearned is not None and unlearned not in tested):
        return line
    equal = [name for name in tested if not _worse(values[name], values[best], sign)]
    line["equal"] = [name for name in offered if name in equal]
    chosen = min(
        (
            name
            for name in equal
            if unlearned is None
            or families[name] == UNLEARNED
            or _worse(values[unlearned], values[name], sign)
        ),
        key=lambda name: FAMILIES.index(families[name]),
    )
    line["metric"] = chosen
    line["batch"] = [
        name for name in values if families[name] == BATCH and _worse(values[chosen], values[name], sign)
    ]
    other = learned if families[chosen] == UNLEARNED else chosen
    if other is not None and unlearned is not None and _common(values[other], values[unlearned]):
        line["gain"] = {"of": other} | _gain(values[other], values[unlearned], sign)
    return line


def _common(first: _Splits, second: _Splits) -> list[int]:
    """Splits of both; none if they are too few to test."""
    both = [split for split in first if split in second]
    return both if len(both) > 1 else []


def _pairs(first: _Splits, second: _Splits) -> tuple[list[float], list[float]]:
    both = _common(first, second)
    return [first[split] for split in both], [second[split] for split in both]


def _worse(first: _Splits, second: _Splits, sign: float) -> bool:
    """Whether the first metric is significantly worse than the second one."""
    if not _common(first, second):
        return False
    test = paired(*_pairs(first, second))
    return sign * test.difference > 0.0 and test.p is not None and test.p < LEVEL


def _gain(first: _Splits, second: _Splits, sign: float) -> Line:
    from scipy.stats import t

    a, b = _pairs(first, second)
    test = paired(a, b)
    gaps = [sign * (y - x) for x, y in zip(a, b, strict=True)]
    n = len(gaps)
    mean = math.fsum(gaps) / n
    error = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / (n - 1) / n)
    reach = float(t.ppf(1.0 - LEVEL / 2.0, n - 1)) * error
    return {
        "mean": mean,
        "standard_error": error,
        "low": mean - reach,
        "high": mean + reach,
        "p": test.p,
        "n": n,
    }


def important(
    cells: Iterable[Mapping[str, Any]], metrics: Sequence[str], names: Mapping[str, Sequence[str]]
) -> list[Line]:
    """The part "importance" of a result: mean share of every feature by data set and metric, the largest first.

    Parameters
    ----------
    metrics : in the order of display.
    names : of the features by data set; f0, f1 and so on if a data set has none.
    """
    found: dict[tuple[str, str], list[Sequence[float]]] = {}
    for cell in cells:
        if cell.get("shares") is not None:
            found.setdefault((cell["data"], cell["metric"]), []).append(cell["shares"])
    lines = []
    for data in names:
        for metric in metrics:
            splits = found.get((data, metric))
            if not splits:
                continue
            means = [math.fsum(values) / len(splits) for values in zip(*splits, strict=True)]
            called = names[data] or [f"f{at}" for at in range(len(means))]
            features = [
                {"name": name, "share": round(mean, 6)} for name, mean in zip(called, means, strict=True)
            ]
            features.sort(key=lambda one: -one["share"])  # type: ignore[operator]
            lines.append({"data": data, "metric": metric, "features": features})
    return lines
