"""Rows of a file as Python values, and conversions of single values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from kinstream.producers.files.numbers import Where
from kinstream.producers.files.tables import TableFile
from kinstream.producers.files.text import name_of, timely

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_FLAGS: Final = {"true": True, "1": True, "+1": True, "false": False, "0": False, "-1": False}
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

    @property
    def text_is_typed(self) -> bool:
        """As that of a `TableFile`."""

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
        self.text_is_typed: Final = file.text_is_typed

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


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or value == ""


def joined(values: Sequence[Any], columns: Sequence[str], place: str, row: int, *, typed: bool) -> str:
    """A name from one column, or from several, joined by `JOINT`; `typed` as of `name_of`."""
    return JOINT.join(
        name_of(value, Where(place, column), row, typed=typed)
        for value, column in zip(values, columns, strict=True)
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
