"""Rows of a file as Python values, and conversions of single values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinstream.producers.files.numbers import Where, is_list
from kinstream.producers.files.tables import TableFile
from kinstream.producers.files.text import fault_of
from kinstream.streams.records.checks import MAX_STRING_LENGTH

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_FLAGS: Final = {"true": True, "1": True, "+1": True, "false": False, "0": False, "-1": False}
#: Timestamps of each unit in a second, and the seconds since 1970 of the first and last time of Python.
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6}
_PYTHON_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
#: Separator of a name from several columns.
JOINT: Final = "/"


class CellFile(Protocol):
    """Columns whose values are read as Python objects, one tuple for each row."""

    @property
    def path(self) -> Path:
        """Its path."""

    @property
    def names(self) -> Sequence[str]:
        """All columns."""

    @property
    def reading(self) -> dict[str, Any]:
        """Everything besides the bytes that the rows depend on, for an identity."""

    def rows(self, columns: Sequence[str], first: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The number of each row from `first` on, and its values in those columns, raising SourceError."""

    def line(self, row: int) -> int | None:
        """As that of a `TableFile`."""


class TableCells:
    """A CSV or Parquet file as such rows. A text cell of a CSV file that is empty is missing."""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self.path: Final = file.path
        self.names: Final = file.names
        self.reading: Final = file.reading

    def line(self, row: int) -> int | None:
        return self._file.line(row)

    def rows(self, columns: Sequence[str], first: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        number = first
        read = list(dict.fromkeys(columns))
        for part in self._file.parts(read, first):
            values = {name: timely(part.column(name)).to_pylist() for name in read}
            for cells in zip(*(values[name] for name in columns), strict=True):
                yield number, cells
                number += 1


def timely(column: pa.Array) -> pa.Array:
    """A column whose dates and timestamps, if it holds any, also in lists, are such as Python can hold, in UTC.

    Those before the year 1 or after 9999 become the first or the last of Python.
    """
    kind = column.type
    if pa.types.is_date(kind):
        return timely(column.cast(pa.timestamp("s" if pa.types.is_date32(kind) else "ms")))
    if pa.types.is_timestamp(kind):
        numbers = column.cast(pa.int64())
        if kind.unit != "ns":
            first, last = (bound * _PER_SECOND[kind.unit] for bound in _PYTHON_SECONDS)
            numbers = pc.min_element_wise(numbers, last, skip_nulls=False)
            numbers = pc.max_element_wise(numbers, first, skip_nulls=False)
        plain = numbers.cast(pa.timestamp(kind.unit)).cast(pa.timestamp("us"), safe=False)
        return plain if kind.tz is None else plain.cast(pa.timestamp("us", "UTC"))
    if is_list(kind) and (pa.types.is_timestamp(kind.value_type) or pa.types.is_date(kind.value_type)):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, timely(column.flatten()), mask=column.is_null())
    return column


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or value == ""


def name_of(value: Any, where: Where, row: int) -> str:
    """A cell as a name: text, or a whole number.

    Raises
    ------
    SourceError : it is missing, too long, not valid UTF-8, or of another type.
    """
    if is_missing(value):
        raise where.error(row, "the value is missing")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise where.error(row, f"{value!r} is neither text nor a whole number")
    found = str(value)
    if len(found) > MAX_STRING_LENGTH:
        raise where.error(row, f"the name is longer than {MAX_STRING_LENGTH} characters")
    # A JSON list in a cell may hold any escape.
    if (fault := fault_of(found)) is not None:
        raise where.error(row, f"the name {fault}")
    return found


def joined(values: Sequence[Any], columns: Sequence[str], place: str, row: int) -> str:
    """A name from one column, or from several, joined by `JOINT`."""
    return JOINT.join(
        name_of(value, Where(place, column), row) for value, column in zip(values, columns, strict=True)
    )


def whole(value: Any, where: Where, row: int) -> int:
    """A cell as a whole number.

    Raises
    ------
    SourceError : it is not one.
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_missing(value):
        raise where.error(row, "the value is missing")
    if isinstance(value, bool) or not isinstance(value, int):
        raise where.error(row, f"{value!r} is not a whole number")
    return value


def flag(value: Any, where: Where, row: int) -> bool:
    """A cell as true (true, 1, +1) or false (false, 0, -1).

    Raises
    ------
    SourceError : it is neither.
    """
    if is_missing(value):
        raise where.error(row, "the value is missing")
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip().lower()
    if text not in _FLAGS:
        raise where.error(row, f"{value!r} is neither true (1, +1) nor false (0, -1)")
    return _FLAGS[text]


def sequence(value: Any, separator: str, where: Where, row: int) -> list[Any]:
    """A cell as a list: a list column, JSON, or text with separators. An empty cell is an empty list.

    Raises
    ------
    SourceError : it is not one.
    """
    if is_missing(value):
        return []
    if isinstance(value, (list, tuple)):
        return list(value)
    if not isinstance(value, str):
        return [value]
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(separator)]
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise where.error(row, f"not a JSON list: {error}") from error
    return list(found)
