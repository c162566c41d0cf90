"""Checks that text of files is UTF-8; an error names the row and the column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinstream.producers.files.numbers import Where, is_text, refuse_missing
from kinstream.streams.errors import SourceError
from kinstream.streams.records.checks import MAX_STRING_LENGTH

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


def names(column: pa.Array, where: Where) -> tuple[str, ...]:
    """A column of item names.

    Raises
    ------
    SourceError : one is missing or too long.
    """
    if not is_text(column.type):
        column = column.cast(pa.string())
    refuse_missing(column, where)
    found = strings(column.to_pylist())
    for row, name in enumerate(found):
        if len(name) > MAX_STRING_LENGTH:
            raise where.error(row, f"the id is longer than {MAX_STRING_LENGTH} characters")
    return found


def strings(values: Iterable[Any]) -> tuple[str, ...]:
    """Values as text."""
    return tuple(str(value) for value in values)


def check_columns(part: pa.RecordBatch, place: str, first: int) -> pa.RecordBatch:
    """Refuse text in columns, also inside lists, that is not UTF-8: Parquet is read unchecked.

    Parameters
    ----------
    place, first : file, and the number of the first row of the part in it.

    Raises
    ------
    SourceError : names row and column.
    """
    try:
        part.validate(full=True)
    except pa.ArrowInvalid as error:
        for name in part.schema.names:
            for row, value in enumerate(part.column(name)):
                try:
                    value.as_py()
                except UnicodeDecodeError as wrong:
                    raise Where(place, name, first).error(row, f"{_NO_UTF8}: {wrong.reason}") from error
        raise SourceError(f"{place}: {error}") from error
    return part


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
