"""Our figures beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from benchmarks.papers.shared.published import Printed, Reported

#: Measures for which larger is better. Utilisation has no better direction.
_MORE_IS_BETTER: Final = ("macro_f1", "map")
_NEITHER: Final = ("utilisation",)


@dataclass(frozen=True, slots=True)
class Line:
    """One metric on one data set, and one published figure at most.

    Parameters
    ----------
    mean, std, n : ours over n splits; the deviation is None of one split.
    published : the paper's, None if it has none.
    published_data : the paper's name of the data set that the figure is of.
    same_data : whether that is the same data set. If not, the figure is shown for information only.
    bounded : whether the published mean and two deviations are a limit of ours.
    """

    data: str
    metric: str
    measure: str
    mean: float
    std: float | None
    n: int
    published: Reported | None = None
    published_data: str = ""
    same_data: bool = False
    bounded: bool = False

    @property
    def difference(self) -> float | None:
        """Ours less the published mean."""
        return None if self.published is None else self.mean - self.published.mean

    @property
    def above(self) -> bool:
        """Whether ours is worse than the published mean by more than two of its deviations. Being better passes."""
        figure = self.published
        if figure is None or figure.std is None or not self.same_data or self.measure in _NEITHER:
            return False
        sign = -1.0 if self.measure in _MORE_IS_BETTER else 1.0
        return sign * (self.mean - figure.mean) > 2.0 * figure.std


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a paper that holds a figure, and ours."""

    what: str
    ours: str
    published: str


@dataclass(frozen=True)
class PaperComparison:
    """All lines, in the order of data sets, measures and metrics, and the statements."""

    lines: tuple[Line, ...]
    statements: tuple[Statement, ...] = ()

    @property
    def held(self) -> tuple[Line, ...]:
        """Lines that have a limit."""
        return tuple(line for line in self.lines if line.bounded)

    @property
    def exceptions(self) -> tuple[Line, ...]:
        """Lines that have a limit and are above it."""
        return tuple(line for line in self.held if line.above)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        lines = [asdict(line) | {"difference": line.difference, "above": line.above} for line in self.lines]
        return {"lines": lines, "statements": [asdict(one) for one in self.statements]}


def compared(
    result: Mapping[str, Any],
    printed: Sequence[Printed],
    same: Mapping[str, str],
    other: Mapping[str, Sequence[str]],
    bounded: Sequence[str],
    statements: Sequence[Statement] = (),
) -> PaperComparison:
    """The means of a result beside the papers' figures for the same measures.

    Parameters
    ----------
    result : as `result.json` has it.
    same, other, bounded : see `benchmarks.papers.shared.protocol.Protocol`.
    """
    found: list[Line] = []
    for data in (one["name"] for one in result["data"]):
        for table in printed:
            for metric in (one["name"] for one in result["metrics"]):
                found += _lines(result, table, data, metric, same, other, bounded)
    return PaperComparison(tuple(found), tuple(statements))


def _lines(
    result: Mapping[str, Any],
    table: Printed,
    data: str,
    metric: str,
    same: Mapping[str, str],
    other: Mapping[str, Sequence[str]],
    bounded: Sequence[str],
) -> Iterator[Line]:
    keys = (data, metric, table.measure)
    for line in result["summary"]:
        if (line["data"], line["metric"], line["measure"]) != keys:
            continue
        ours = Line(*keys, line["mean"], line["std"], line["n"])
        names = (same[data],) if data in same else tuple(other.get(data, ()))
        beside = [(name, figure) for name in names if (figure := table.get(name, metric)) is not None]
        if not beside:
            yield ours
        for name, figure in beside:
            known = data in same
            limit = known and metric in bounded and table.measure == "error"
            yield replace(ours, published=figure, published_data=name, same_data=known, bounded=limit)
