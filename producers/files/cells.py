"""Rows of a file as Python values, and conversions of single values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from kinstream.producers.files.tables import TableFile
from kinstream.producers.files.text import timely

#: Separator of a name from several columns.
JOINT: Final = "/"
#: Separator of the parts of a list that is written as text.
SEPARATOR: Final = "|"


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


def sequence(value: Any) -> Any:
    """Text of a cell as a list: JSON, or its parts between `SEPARATOR`, None for empty ones. Other values as they are.

    Raises
    ------
    ValueError : it begins as JSON and is none.

    Examples
    --------
    >>> sequence("a|b"), sequence('["a"]'), sequence("3|"), sequence(None)
    (['a', 'b'], ['a'], ['3', None], None)
    """
    if type(value) is not str:
        return value
    if not value.lstrip().startswith("["):
        return [part.strip() or None for part in value.split(SEPARATOR)]
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not a JSON list: {error.msg} at character {error.pos}") from None
