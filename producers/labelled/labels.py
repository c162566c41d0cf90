"""Labels of a whole file, by the rule of `kinstream.streams.records.foreign.names`.

Their type is determined once over all of them, not per block. CSV has no types, so there text that is a whole number,
1, 1.0 or 1.00e+00, or true or false, is one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinstream.producers.files.numbers import Where, is_text, refuse_missing
from kinstream.producers.files.text import strings
from kinstream.producers.labelled.batch import Labels, LabelType
from kinstream.streams.errors import SourceError
from kinstream.streams.records.checks import MAX_STRING_LENGTH

#: The form of whole numbers: text with leading zeros or a plus is a name, so 007 is not 7. Of those that floats or
#: booleans were written as: in CSV alone.
_WHOLE: Final = r"^(-?0|-?[1-9][0-9]{0,18})$"
_FLOAT: Final = r"^((-?0|-?[1-9][0-9]{0,15})\.0+|-?[0-9]\.[0-9]+[eE]\+[0-9]{1,2})$"
_FLAG: Final = r"^(?i:true|false)$"
_INT64: Final = range(-(2**63), 2**63)
_EXACT: Final = 2**53


class LabelScan:
    """Scans every label once.

    Parameters
    ----------
    text_is_typed : whether text is a real type (Parquet, NPZ) or the only type of the file (CSV).
    """

    def __init__(self, *, text_is_typed: bool) -> None:
        self._text_is_typed = text_is_typed
        self._seen: set[Any] = set()
        self._integer = self._flags = True
        self.rows = 0

    def add(self, column: pa.Array, where: Where) -> None:
        """Scan the next labels.

        Raises
        ------
        SourceError : one is missing, too long, or no whole number of 64 bits in a column of numbers.
        """
        column = _plain(column, where)
        text = is_text(column.type)
        fit = _fits_integer(column)
        if text:
            flags = pc.match_substring_regex(column, _FLAG)
            self._flags = self._flags and pc.all(flags).as_py()
        if pc.all(fit).as_py() is False:
            row = pc.index(fit, False).as_py()
            if not text:
                raise where.error(row, f"the label {column[row].as_py()!r} is not a whole number of 64 bits")
            self._integer = False
        if text:
            long = pc.greater(pc.utf8_length(column), MAX_STRING_LENGTH)
            if pc.any(long).as_py():
                row = pc.index(long, True).as_py()
                raise where.error(row, f"the label is longer than {MAX_STRING_LENGTH} characters")
            if self._text_is_typed:
                self._integer = self._flags = False
        self._seen.update(pc.unique(column).to_pylist())
        self.rows += len(column)

    @property
    def kind(self) -> LabelType:
        """The type of all labels."""
        return "integer" if self._integer or self._flags else "string"

    @property
    def classes(self) -> int:
        """The number of different labels."""
        written = self._seen
        # In CSV, 1 and 1.0 are one of them.
        return len(written if self.kind == "string" else {int(_number(one)) for one in written})


def labels(column: pa.Array, kind: LabelType, where: Where) -> Labels:
    """Scanned labels in the form of records."""
    column = _plain(column, where)
    if kind == "integer":
        if is_text(column.type) and not pc.all(pc.match_substring_regex(column, _WHOLE)).as_py():
            return np.array([int(_number(text)) for text in column.to_pylist()], np.int64)
        numbers: Labels = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return numbers
    if not is_text(column.type):
        column = column.cast(pa.int64())
    return strings(column.to_pylist())


def _number(written: Any) -> int | float:
    """A label that is a number, or true (1) or false (0), also as CSV has them."""
    if not isinstance(written, str):
        return int(written)
    if written[-1] in "eE":
        return int(written.lower() == "true")
    return float(written) if "e+" in written.lower() else int(written.partition(".")[0])


def _plain(column: pa.Array, where: Where) -> pa.Array:
    """Trimmed text, whole numbers or floats, with none missing."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_decimal(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            column = column.cast(pa.float64())
    if is_text(column.type):
        column = pc.utf8_trim_whitespace(column)
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise where.wrong(f"holds {column.type}; labels are whole numbers or text")
    refuse_missing(column, where)
    return column


def _fits_integer(column: pa.Array) -> pa.Array:
    """Which labels are whole numbers of 64 bits."""
    if is_text(column.type):
        fit = pc.or_(pc.match_substring_regex(column, _WHOLE), pc.match_substring_regex(column, _FLOAT))
        doubtful = pc.or_(
            pc.greater_equal(pc.utf8_length(column), 19), pc.match_substring(column, "e+", ignore_case=True)
        )
        if pc.any(pc.and_(fit, doubtful)).as_py():
            fit = pa.array(
                [
                    f and _is_whole(_number(text))
                    for f, text in zip(fit.to_pylist(), column.to_pylist(), strict=True)
                ]
            )
        return fit
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
        return pa.array((np.abs(values) <= _EXACT) & (values == np.floor(values)))
    return pa.array(values <= np.iinfo(np.int64).max)


def _is_whole(number: float) -> bool:
    """Whether it is a whole number of 64 bits, which a float can tell from its neighbours."""
    return number in _INT64 if isinstance(number, int) else abs(number) <= _EXACT and number.is_integer()


def check_rows(scan: LabelScan, place: str) -> None:
    """Refuse a source without rows."""
    if not scan.rows:
        raise SourceError(f"{place}: there are no rows")
