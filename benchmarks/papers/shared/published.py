"""The papers' figures as data: a mean, its deviation if there is one, and the mark beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: "0.234±0.056 •": a number, its deviation, and a mark, of which only the number is always there.
_CELL: Final = re.compile(r"(?P<mean>\d*\.?\d+)(?:±(?P<std>\d*\.?\d+))?\s*(?P<mark>[•◦]?)")
#: The placeholder for a missing figure.
NOTHING: Final = "-"
BETTER, WORSE = "•", "◦"


@dataclass(frozen=True, slots=True)
class Reported:
    """One printed figure.

    Parameters
    ----------
    mean : as printed.
    std : standard deviation over the paper's runs; None if it prints none.
    mark : "•" if the paper's own method is significantly better than this, "◦" if it is significantly worse, ""
        otherwise.
    """

    mean: float
    std: float | None = None
    mark: str = ""

    @property
    def limit(self) -> float:
        """Mean and two deviations: an error above it contradicts the paper."""
        return self.mean + 2.0 * (self.std or 0.0)

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.3f}"
        return f"{self.mean:.3f}{spread}"


@dataclass(frozen=True, slots=True)
class Printed:
    """One measure of a table.

    Parameters
    ----------
    source : paper and number of the table.
    measure : "error", "macro_f1", "utilisation" or "map", as in results.
    rows : figures by data set, and by metric within it; both by the paper's names.
    """

    source: str
    measure: str
    rows: Mapping[str, Mapping[str, Reported]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Of all rows, in the order of the columns."""
        return tuple(dict.fromkeys(metric for row in self.rows.values() for metric in row))

    def get(self, data: str, metric: str) -> Reported | None:
        """The figure, or None if the paper has none."""
        return self.rows.get(data, {}).get(metric)


def table(source: str, measure: str, metrics: Sequence[str], text: str) -> Printed:
    """A table from its text: a line for each data set, its name first, cells between "|".

    Raises
    ------
    ValueError : a line does not have a cell for each metric, or a cell is not a figure.
    """
    rows: dict[str, dict[str, Reported]] = {}
    for line in text.strip().splitlines():
        name, *cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
        if len(cells) != len(metrics):
            raise ValueError(f"{source}, {name}: {len(cells)} cells for {len(metrics)} metrics")
        rows[name] = {
            metric: _cell(source, cell)
            for metric, cell in zip(metrics, cells, strict=True)
            if cell != NOTHING
        }
    return Printed(source, measure, rows)


def turned(printed: Printed) -> Printed:
    """The same table from a text with a line for each metric and a column for each data set."""
    columns: dict[str, dict[str, Reported]] = {}
    for metric, row in printed.rows.items():
        for data, figure in row.items():
            columns.setdefault(data, {})[metric] = figure
    return Printed(printed.source, printed.measure, columns)


def _cell(source: str, text: str) -> Reported:
    found = _CELL.fullmatch(text)
    if found is None:
        raise ValueError(f"{source}: {text!r} is not a figure")
    std = found["std"]
    return Reported(float(found["mean"]), None if std is None else float(std), found["mark"])
