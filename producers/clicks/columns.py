"""Shared by the two layouts of result lists in CSV and Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kinstream.producers.clicks.rows import UNKNOWN_TIME
from kinstream.producers.files.cells import CellFile, is_missing, joined
from kinstream.producers.files.fields import Field
from kinstream.producers.files.numbers import Where, as_float32
from kinstream.producers.files.times import Times
from kinstream.streams.records.values import Table

_SHARED: Final = (
    Field("shown_at", ("shown_at", "shown_at_ms", "timestamp", "time")),
    Field("clicked_at", ("clicked_at", "clicked_at_ms", "click_time")),
    Field("dwell_ms", ("dwell_ms",)),
    Field("list_id", ("list_id",), joins=True),
    Field("session", ("session", "session_id"), joins=True),
    Field("user", ("user", "user_id"), joins=True),
    # No column is taken for it by its name: it may hold real addresses.
    Field("address", (), joins=True),
    Field("query_item", ("query_item", "query"), joins=True),
)
#: One list a row.
LIST_FIELDS: Final = (
    Field("items", ("items",)),
    Field("positions", ("positions",)),
    Field("clicks", ("clicks",)),
    *_SHARED,
)
#: One impression a row.
IMPRESSION_FIELDS: Final = (
    Field("item", ("item", "item_id"), joins=True),
    Field("position", ("position", "rank")),
    Field("clicked", ("clicked", "click")),
    *_SHARED,
)


@dataclass(frozen=True, slots=True)
class ClickColumns:
    """The layout of lists in the rows of a file.

    Parameters
    ----------
    found : field -> its columns.
    query : modality -> columns of the query's vector; empty if it has none.
    times : form of the times, see `kinstream.producers.files.times`.
    now : lists have the time of sending.
    first_position : the number of the top rank in the file.
    separator : separator of a list written as text, not as JSON.
    name : name of lists without an id: this and their row.
    """

    found: Mapping[str, tuple[str, ...]]
    query: Mapping[str, tuple[str, ...]]
    times: str
    now: bool
    first_position: int
    separator: str
    name: str


class ClickCells:
    """The cells of one row by field. Holds the form of each column of times.

    Parameters
    ----------
    file, columns : the file, and its layout.
    """

    def __init__(self, file: CellFile, columns: ClickColumns) -> None:
        self.place: Final = str(file.path)
        self.typed: Final = file.text_is_typed
        self.columns: Final = columns
        self.read: Final = [
            n for named in (columns.found, columns.query) for ns in named.values() for n in ns
        ]
        self._at: dict[str, slice] = {}
        for field, names in [*columns.found.items(), *((f"query {m}", n) for m, n in columns.query.items())]:
            begin = max((s.stop for s in self._at.values()), default=0)
            self._at[field] = slice(begin, begin + len(names))
        self._times = {field: Times(columns.times) for field in ("shown_at", "clicked_at")}

    def value(self, cells: Sequence[Any], field: str) -> Any:
        """The value of a field in one column; None if the file has none."""
        return cells[self._at[field].start] if field in self._at else None

    def values(self, cells: Sequence[Any], field: str) -> Sequence[Any]:
        """The values of a field, one for each of its columns."""
        return cells[self._at[field]]

    def name(self, cells: Sequence[Any], field: str, row: int) -> str | None:
        """The name in a field; None if it is empty."""
        if field not in self._at:
            return None
        values = cells[self._at[field]]
        if all(map(is_missing, values)):
            return None
        return joined(values, self.columns.found[field], self.place, row, typed=self.typed)

    def time(self, cells: Sequence[Any], field: str, row: int) -> int:
        """A time, or `UNKNOWN_TIME` if it is that of sending."""
        if self.columns.now:
            return UNKNOWN_TIME
        return self.time_of(self.value(cells, field), field, row)

    def time_of(self, value: Any, field: str, row: int) -> int:
        """A value as the time of a field."""
        return self._times[field].milliseconds(value, self.where(field), row)

    def query_key(self, cells: Sequence[Any]) -> tuple[Any, ...]:
        """The query's vector in the file."""
        return tuple(cells[self._at[f"query {modality}"]] for modality in self.columns.query)

    def query_vector(self, cells: Sequence[Any], row: int) -> tuple[Table, ...]:
        """One table of one row for each modality.

        Raises
        ------
        SourceError : a value is missing, not a number, or not finite.
        """
        tables = []
        for modality, names in self.columns.query.items():
            found = []
            for name, value in zip(names, cells[self._at[f"query {modality}"]], strict=True):
                where = Where(self.place, name)
                values = value if isinstance(value, list) else [value]
                numbers = np.array([_number(v, where, row) for v in values], np.float64)
                found.append(as_float32(numbers, Where(self.place, name, row), max(len(values), 1)))
            tables.append(Table(modality, np.concatenate(found)[np.newaxis]))
        return tuple(tables)

    def where(self, field: str) -> Where:
        """The column of a field."""
        return Where(self.place, self.columns.found.get(field, (field,))[0])


def _number(value: Any, where: Where, row: int) -> float:
    if is_missing(value):
        raise where.error(row, "the value is missing")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise where.error(row, f"{value!r} is not a number") from None
