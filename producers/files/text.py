"""Columns in plain types, names, and checks that text is UTF-8; an error names the row and the column."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kinstream.producers.files.numbers import Where, is_list
from kinstream.streams.encodings import advice, not_utf8
from kinstream.streams.errors import SourceError
from kinstream.streams.records.foreign.names import fault_of_cell, name

#: Timestamps of each unit in a second, and the seconds since 1970 of the first and last time of Python.
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6}
_PYTHON_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
_NO_UTF8: Final = "is not valid UTF-8"


def fault_of(text: str) -> str | None:
    r"""Why a string cannot be encoded as UTF-8: half of a surrogate pair. None for valid text.

    Examples
    --------
    >>> fault_of("caf\u00e9") is None, fault_of("half \ud83d")
    (True, 'is not valid UTF-8: U+D83D, half of a surrogate pair, at character 5')
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"{_NO_UTF8}: U+{ord(text[error.start]):04X}, half of a surrogate pair, at character {error.start}"
    return None


def name_of(value: Any, where: Where, row: int, *, typed: bool) -> str:
    """A cell as a name, by the rule of `kinstream.streams.records.foreign.names`.

    Parameters
    ----------
    typed : whether the file has types. In CSV, 17.0 is how a number was written, and no text.

    Raises
    ------
    SourceError : it is missing, too long, not valid UTF-8, or of another type.
    """
    try:
        found = name(value)
    except ValueError as error:
        fault = str(error)
        what = "the value" if fault == "is missing" else "the name"
        raise where.error(row, f"{what} {fault}" if fault.startswith("is ") else fault) from None
    # A JSON list in a cell may hold any escape.
    if (wrong := fault_of(found)) is not None:
        raise where.error(row, f"the name {wrong}")
    if not typed and (wrong := fault_of_cell(found)) is not None:
        raise where.error(row, wrong)
    return found


def names(column: pa.Array, where: Where, *, typed: bool) -> tuple[str, ...]:
    """A column of names; `typed` as of `name_of`.

    Raises
    ------
    SourceError : as `name_of`.
    """
    if pa.types.is_integer(column.type) and not column.null_count:
        return strings(column.to_pylist())
    return tuple(name_of(v, where, row, typed=typed) for row, v in enumerate(timely(column).to_pylist()))


def strings(values: Iterable[Any]) -> tuple[str, ...]:
    """Values as text."""
    return tuple(str(value) for value in values)


def check_columns(part: pa.RecordBatch, place: str, first: int) -> pa.RecordBatch:
    """Columns in plain types, with their text, also inside lists, checked to be UTF-8: Parquet is read unchecked.

    Parameters
    ----------
    place, first : file, and the number of the first row of the part in it.

    Raises
    ------
    SourceError : names row and column.
    """
    columns = [plain(column) for column in part.columns]
    part = pa.RecordBatch.from_arrays(columns, names=part.schema.names)
    try:
        part.validate(full=True)
    except pa.ArrowInvalid as error:
        for name, column in zip(part.schema.names, columns, strict=True):
            for row, value in enumerate(column):
                try:
                    value.as_py()
                except UnicodeDecodeError as wrong:
                    raise Where(place, name, first).error(row, f"{_NO_UTF8}: {wrong.reason}") from error
        raise SourceError(f"{place}: {error}") from error
    return part


def plain(column: pa.Array) -> pa.Array:
    """A column in the plainest type of its values: text as strings, also from dictionaries, views and bytes (which
    must still be checked to be UTF-8), and UUIDs as text; lists likewise."""
    kind = column.type
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.UuidType):
            return pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.string())
        return plain(column.storage)
    if types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if types.is_string_view(kind):
        return column.cast(pa.string())
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        bytes_ = column.cast(pa.large_binary())
        return pc.cast(bytes_, options=pc.CastOptions(pa.large_string(), allow_invalid_utf8=True))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return lists_of(column, plain(column.flatten()))
    if is_list(kind) and not types.is_primitive(kind.value_type) and not types.is_string(kind.value_type):
        values = column.flatten()
        plainer = plain(values)
        return column if plainer is values else lists_of(column, plainer)
    return column


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
        found = numbers.cast(pa.timestamp(kind.unit)).cast(pa.timestamp("us"), safe=False)
        return found if kind.tz is None else found.cast(pa.timestamp("us", "UTC"))
    if is_list(kind) and (pa.types.is_timestamp(kind.value_type) or pa.types.is_date(kind.value_type)):
        return lists_of(column, timely(column.flatten()))
    return column


def lists_of(column: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of the lengths of those in a column, with other values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, mask=column.is_null())


def check_array(array: NDArray[Any], where: Where) -> NDArray[Any]:
    """An array with its text, if any, as strings; bytes are decoded as UTF-8.

    Raises
    ------
    SourceError : names row and column.
    """
    if array.dtype.kind == "S":
        return _decoded(array, where)
    if array.dtype.kind == "U" and array.dtype.itemsize and array.size:
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        codes = plain.reshape(len(plain) if plain.ndim else 1, -1).view(np.uint32)
        wrong = ((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)
        if wrong.any():
            row, at = (int(i) for i in np.argwhere(wrong)[0])
            raise where.error(row, f"{_NO_UTF8}: U+{int(codes[row, at]):04X} is not a character")
    return array


def _decoded(array: NDArray[Any], where: Where) -> NDArray[Any]:
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError:
        for row, value in enumerate(array.reshape(len(array), -1) if array.ndim else [array.reshape(1)]):
            try:
                for one in value.tolist():
                    one.decode()
            except UnicodeDecodeError as error:
                raise where.error(row, f"{_NO_UTF8}: {error.reason}") from error
        raise


def refuse_other_text(place: Path, head: bytes) -> None:
    """Refuse a file that begins as something else than text in UTF-8, with SourceError."""
    if (what := not_utf8(head)) is not None:
        raise SourceError(f"{place}: not text in UTF-8: {advice(what)}")
