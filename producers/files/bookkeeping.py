"""Columns that a tool adds to number or name the rows of a table. They are no features unless the user says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kinstream.producers.files.numbers import is_number, is_text
from kinstream.streams.errors import SourceError

#: As pandas names its index, in Parquet, and in CSV that was read and written again.
_SURE: Final = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+(_level_[0-9]+)?(\.[0-9]+)*")
#: Names of indexes, of pandas, R, polars, DuckDB and others. They are bookkeeping if their values could number rows.
_LIKELY: Final = re.compile(
    r"|index|level_[0-9]|_?ids?|row|rownames|row_names|row_?(id|nr|number|num)|obs", re.IGNORECASE
)


class _Table(Protocol):
    @property
    def names(self) -> Sequence[str]: ...

    @property
    def usable(self) -> Sequence[str]: ...

    @property
    def indexes(self) -> Sequence[str]: ...

    def parts(self, columns: Sequence[str], first: int) -> Any: ...


def bookkeeping(file: _Table) -> tuple[str, ...]:
    """The default features that number or name rows.

    These are a first column without a name (pandas and R write one), those that pandas declares or names as an index,
    and those with another usual name, such as index or id, or with none, whose values are whole numbers that do not
    repeat.
    """
    return tuple(
        name
        for name in file.usable
        if name in file.indexes
        or _SURE.fullmatch(name)
        or (not name.strip() and name == file.names[0])
        or (_LIKELY.fullmatch(name.strip()) and _numbers_rows(file, name))
    )


def _numbers_rows(file: _Table, name: str) -> bool:
    """Whether the values are whole numbers from 0 on that do not repeat, as far as one read goes."""
    try:
        part = next(iter(file.parts([name], 0)), None)
    except SourceError:
        # Reading the rows will say what is wrong.
        return False
    if part is None or part.num_rows < 2:
        return False
    column = part.column(name)
    if not (is_text(column.type) or (is_number(column.type) and not pa.types.is_boolean(column.type))):
        return False
    try:
        numbers = column.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return False
    whole = pc.and_(pc.equal(numbers, pc.floor(numbers)), pc.greater_equal(numbers, 0))
    return not numbers.null_count and bool(pc.all(whole).as_py()) and len(pc.unique(numbers)) == len(numbers)
