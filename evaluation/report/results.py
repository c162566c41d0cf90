"""A result of `kinstream evaluate`, prepared for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final

from kinstream.evaluation.measures.names import Measure, measure, order

Line = Mapping[str, Any]

UNLEARNED: Final = "unlearned"
BATCH: Final = "batch"
LEVEL: Final = 0.05


class Mark(Enum):
    """A learner against the best un-learned metric of a data set: a sign, and its meaning."""

    BETTER = ("▲", "significantly better, also after Holm's correction")
    PERHAPS_BETTER = ("△", "significantly better, but not after Holm's correction")
    WORSE = ("▼", "significantly worse, also after Holm's correction")
    PERHAPS_WORSE = ("▽", "significantly worse, but not after Holm's correction")

    @property
    def sign(self) -> str:
        return self.value[0]

    @property
    def meaning(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of one metric on one data set by one measure.

    Parameters
    ----------
    std : over splits, with n - 1; None of one split.
    best : no other metric has a better mean.
    reference : the best of the un-learned metrics.
    test : against the reference; None for un-learned metrics, and if nothing could be tested.
    """

    data: str
    metric: str
    mean: float
    std: float | None
    n: int
    best: bool
    reference: bool
    test: Line | None

    @property
    def mark(self) -> Mark | None:
        """None where there is no test, or no significant difference."""
        if self.test is None or self.test["verdict"] == "tie":
            return None
        sure = self.test["p_holm"] is not None and self.test["p_holm"] < LEVEL
        if self.test["verdict"] == "win":
            return Mark.BETTER if sure else Mark.PERHAPS_BETTER
        return Mark.WORSE if sure else Mark.PERHAPS_WORSE


@dataclass(frozen=True, slots=True)
class LearnerStanding:
    """A learner against the best un-learned metric of each data set.

    Parameters
    ----------
    better, same, worse : the data sets with this result, among those where a test was possible.
    sure : the number of `better` that remain after Holm's correction.
    rank : mean place among all metrics over the data sets, from 1, by the means; None where it has none.
    """

    metric: str
    better: tuple[str, ...]
    same: tuple[str, ...]
    worse: tuple[str, ...]
    sure: int
    rank: float | None

    @property
    def tested(self) -> int:
        """On how many data sets."""
        return len(self.better) + len(self.same) + len(self.worse)


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean times of a metric in microseconds: of a constraint that is learned, and of a row that is transformed."""

    learn: float | None
    transform: float | None


class Results:
    """A result, with its entries grouped for a report.

    Parameters
    ----------
    result : format 1 of `kinstream evaluate`.
    times : of its cells, the content of `timings.json`; without them costs are not known.

    Raises
    ------
    ValueError : another format.
    """

    def __init__(self, result: Line, times: Sequence[Line] = ()) -> None:
        if result.get("format") != 1:
            raise ValueError(f"the format of this result is {result.get('format')!r}, and 1 is known")
        self.plan: Line = result["plan"]
        self.metrics: Sequence[Line] = result["metrics"]
        self.data: Sequence[Line] = result["data"]
        self.summary: Sequence[Line] = result["summary"]
        self.tests: Sequence[Line] = result["tests"]
        #: Empty in results of earlier versions.
        self.importance: Sequence[Line] = result.get("importance", ())
        self._recommended = {line["data"]: line for line in result.get("recommendation", ())}
        self._times = times
        #: In the order of display.
        self.names = tuple(str(metric["name"]) for metric in self.metrics)
        self.unlearned = tuple(str(metric["name"]) for metric in self.metrics if metric["role"] == UNLEARNED)
        self.learners = tuple(name for name in self.names if name not in self.unlearned)
        #: Learners that are fitted to all rows at once, and only compared with.
        self.batch = tuple(str(metric["name"]) for metric in self.metrics if metric.get("family") == BATCH)
        self.data_names = tuple(str(one["name"]) for one in self.data)
        place = (
            {name: i for i, name in enumerate(self.names)},
            {name: i for i, name in enumerate(self.data_names)},
        )
        self.cells: Sequence[Line] = sorted(
            result["cells"],
            key=lambda cell: (place[1][cell["data"]], place[0][cell["metric"]], cell["split"]),
        )
        self._cells: dict[tuple[str, str], list[Line]] = {}
        for cell in self.cells:
            self._cells.setdefault((cell["data"], cell["metric"]), []).append(cell)
        self._means = {(line["data"], line["measure"], line["metric"]): line for line in self.summary}
        self._tests = {
            (line["data"], line["measure"], line["first"], line["second"]): line for line in self.tests
        }
        self._entries: dict[tuple[str, str], dict[str, Entry]] = {}

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Those that some metric has, the most important one first."""
        return tuple(map(measure, sorted({line["measure"] for line in self.summary}, key=order)))

    @property
    def headline(self) -> Measure | None:
        """The deciding measure: the first one that has a better direction."""
        return next((one for one in self.measures if one.smaller_is_better is not None), None)

    @cached_property
    def splits(self) -> int:
        """The most that any metric has of a data set."""
        return max((len(cells) for cells in self._cells.values()), default=0)

    def of(self, data: str, metric: str) -> Sequence[Line]:
        """The cells of a metric on a data set, by split."""
        return self._cells.get((data, metric), ())

    def entries(self, data: str, what: Measure) -> Mapping[str, Entry]:
        """The value of each metric on a data set, in the order of display; those without a value are missing."""
        key = (data, what.name)
        if key not in self._entries:
            self._entries[key] = self._made(data, what)
        return self._entries[key]

    def reference(self, data: str, what: Measure) -> Entry | None:
        """The best un-learned metric by its mean; the first one of equals."""
        return next((entry for entry in self.entries(data, what).values() if entry.reference), None)

    def compared(self, data: str, what: Measure, first: str, second: str) -> tuple[str, Line] | None:
        """Verdict of two metrics, from the side of the first one, and the test; None where there is none."""
        test = self._tests.get((data, what.name, first, second))
        if test is not None:
            return (str(test["verdict"]), test) if test["p"] is not None else None
        test = self._tests.get((data, what.name, second, first))
        if test is None or test["p"] is None:
            return None
        return {"win": "loss", "loss": "win"}.get(test["verdict"], "tie"), test

    def comparisons(self, data: str, what: Measure) -> int:
        """How many tests against un-learned metrics Holm's correction on this data set is for."""
        return sum(
            line["data"] == data
            and line["measure"] == what.name
            and line["first"] not in self.batch
            and line["second"] in self.unlearned
            and line["p"] is not None
            for line in self.tests
        )

    def recommended(self, data: str) -> Line | None:
        """The line of a data set in the part "recommendation"; None where there is none."""
        return self._recommended.get(data)

    def cost(self, data: str, metric: str) -> Cost:
        """Of a metric on a data set, over all splits."""
        times = [one for one in self._times if (one["data"], one["metric"]) == (data, metric)]
        constraints = sum(cell.get("constraints", 0) for cell in self.of(data, metric))
        rows = sum(one.get("transformed", 0) for one in times)
        learning = sum(one["seconds_learning"] for one in times)
        transform = sum(one.get("seconds_transform", 0.0) for one in times)
        return Cost(
            1e6 * learning / constraints if times and constraints else None,
            1e6 * transform / rows if rows else None,
        )

    def standing(self, metric: str, what: Measure) -> LearnerStanding:
        """A learner against the best un-learned metrics, over all data sets."""
        found: dict[str, list[str]] = {"win": [], "tie": [], "loss": []}
        sure, ranks = 0, []
        for data in self.data_names:
            entries = self.entries(data, what)
            if metric not in entries:
                continue
            entry = entries[metric]
            ranks.append(_rank(entry.mean, [other.mean for other in entries.values()], what))
            if entry.test is not None:
                found[entry.test["verdict"]].append(data)
                sure += entry.mark is Mark.BETTER
        rank = sum(ranks) / len(ranks) if ranks else None
        return LearnerStanding(
            metric, tuple(found["win"]), tuple(found["tie"]), tuple(found["loss"]), sure, rank
        )

    def _made(self, data: str, what: Measure) -> dict[str, Entry]:
        lines = [self._means[key] for name in self.names if (key := (data, what.name, name)) in self._means]
        if not lines:
            return {}
        best = _best([line["mean"] for line in lines], what)
        plain = [line for line in lines if line["metric"] in self.unlearned]
        level = _best([line["mean"] for line in plain], what) if plain else None
        reference = next((line["metric"] for line in plain if line["mean"] == level), None)
        found = {}
        for line in lines:
            name = line["metric"]
            test = self._tests.get((data, what.name, name, reference)) if name in self.learners else None
            found[name] = Entry(
                data,
                name,
                line["mean"],
                line["std"],
                line["n"],
                best=best is not None and line["mean"] == best,
                reference=name == reference,
                test=test if test is not None and test["p"] is not None else None,
            )
        return found


def _best(means: Sequence[float], what: Measure) -> float | None:
    if what.smaller_is_better is None:
        return None
    return min(means) if what.smaller_is_better else max(means)


def _rank(mean: float, means: Sequence[float], what: Measure) -> float:
    """Place from 1; equal ones share the mean of their places."""
    ahead = sum(other < mean if what.smaller_is_better else other > mean for other in means)
    return ahead + (1 + sum(other == mean for other in means)) / 2
