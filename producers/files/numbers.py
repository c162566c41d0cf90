"""Columns of a table as float32 vectors, or the row and column that cannot be one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason, SourceError
from kinstream.streams.records.foreign.narrowing import lost, narrowed


class RowError(SourceError):
    """A row of a file cannot be used.

    Parameters
    ----------
    row : its number, from 0.
    fault : what follows the place: "column ...: ..." or a sentence.
    """

    def __init__(self, place: str, row: int, fault: str, line: int | None = None) -> None:
        at = "" if line is None else f" (line {line})"
        super().__init__(f"{place}: row {row + 1}{at}{fault}")
        self.place = place
        self.row = row
        self.fault = fault

    def as_record(self) -> BadRecord:
        """The refusal of the row, as of a record of a source."""
        return BadRecord(Reason.BAD_SHAPE, self.fault.removeprefix(", ").removeprefix(": "))


@dataclass(frozen=True, slots=True)
class Where:
    """A column in a file, from some row on. Rows are counted from 1 in messages, without the header."""

    place: str
    column: str
    first: int = 0

    def error(self, row: int, fault: str) -> RowError:
        """The error for row `row` of this part."""
        return RowError(self.place, self.first + row, f", column {self.column!r}: {fault}")

    def wrong(self, fault: str) -> SourceError:
        """The error for the whole column."""
        return SourceError(f"{self.place}: column {self.column!r}: {fault}")


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are vectors."""
    types = pa.types
    of_offsets = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(of_offsets or types.is_list_view(kind) or types.is_large_list_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type are numbers."""
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    )


def refuse_missing(column: pa.Array, where: Where) -> None:
    """Refuse a null, and in text an empty value."""
    missing = pc.is_null(column)
    if is_text(column.type):
        missing = pc.or_(missing, pc.equal(pc.fill_null(column, ""), ""))
    if pc.any(missing).as_py():
        raise where.error(pc.index(missing, True).as_py(), "the value is missing")


def numbers(column: pa.Array, where: Where) -> NDArray[np.float32]:
    """A column of numbers, of text that parses as numbers, or of lists of numbers.

    Returns
    -------
    (n, 1) float32, or (n, d) for lists of d numbers.

    Raises
    ------
    SourceError : a value is missing, not a finite number or too large for float32, or lists differ in length.
    """
    if is_list(column.type):
        return _vectors(column, where)
    refuse_missing(column, where)
    if is_text(column.type):
        values = _parsed(column, where)
    elif is_number(column.type):
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        raise where.wrong(f"holds {column.type}, not numbers")
    return as_float32(values, where)[:, np.newaxis]


def as_float32(values: NDArray[Any], where: Where, width: int = 1) -> NDArray[np.float32]:
    """Numbers, `width` per row, as float32.

    Raises
    ------
    SourceError : one is not finite, too large, or large and would lose what tells it from others.
    """
    small = narrowed(values)
    finite = np.isfinite(small)
    if not finite.all():
        at = int(np.flatnonzero(~finite)[0])
        value = float(values[at])
        fault = (
            f"{value} does not fit into float32" if np.isfinite(value) else f"{value} is not a finite number"
        )
        raise where.error(at // width, fault)
    if (found := lost(values.reshape(-1, width))) is not None:
        raise where.wrong(found[1] if width == 1 else f"number {found[0]} of a list: {found[1]}")
    return small


def _parsed(column: pa.Array, where: Where) -> NDArray[np.float64]:
    try:
        parsed = column.cast(pa.float64())
    except pa.ArrowInvalid:
        parsed = _parsed_with_spaces(column, where)
    values: NDArray[np.float64] = parsed.to_numpy(zero_copy_only=False)
    return values


def _parsed_with_spaces(column: pa.Array, where: Where) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(column)
    refuse_missing(trimmed, where)
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        for row, text in enumerate(trimmed.to_pylist()):
            try:
                pa.scalar(text).cast(pa.float64())
            except pa.ArrowInvalid:
                raise where.error(row, f"{text[:40]!r} is not a number") from None
        raise


def _vectors(column: pa.Array, where: Where) -> NDArray[np.float32]:
    refuse_missing(column, where)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if len(lengths) else 0
    if not width:
        raise where.error(0, "the list is empty")
    other = np.flatnonzero(lengths != width)
    if other.size:
        row = int(other[0])
        raise where.error(row, f"a list of {lengths[row]} numbers, but others have {width}")
    flat = column.flatten()
    if not is_number(flat.type):
        raise where.wrong(f"holds {column.type}, not numbers")
    if flat.null_count:
        raise where.error(
            pc.index(pc.is_null(flat), True).as_py() // width, "a number in the list is missing"
        )
    values = flat.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return as_float32(values, where, width).reshape(-1, width)
