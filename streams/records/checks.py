"""Checks that every decoder shares. Each raises `BadRecord` with the reason that metrics count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.foreign.names import MAX_NAME_LENGTH
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.scores import Scores, name_fault
from kinstream.streams.records.values import Table, Vectors
from kinstream.streams.signals import MOST_NAMES

#: A space names a model, a message key, a file and a metric label: printable, and short enough for all of them.
MAX_SPACE_LENGTH: Final = 200
MAX_STRING_LENGTH: Final = MAX_NAME_LENGTH
#: A builder remembers the ids of many loads, in every checkpoint of a space.
MAX_LOAD_ID_LENGTH: Final = 200
MAX_DIMENSION: Final = 100_000
#: Sequences are positions in a load.
MAX_SEQUENCE: Final = 2**63 - 1
#: The types of numbers that parsers make; true and false are of another.
_NUMBERS: Final = frozenset({int, float})
_OR_NONE: Final = frozenset({int, float, type(None)})
_LARGEST: Final = 1e308
#: Characters of a name in a message.
_SHOWN: Final = 40


def check_space(space: str) -> str:
    """Return `space` if it is a valid name of a model."""
    if not space or len(space) > MAX_SPACE_LENGTH or not space.isprintable():
        raise BadRecord(Reason.BAD_SHAPE, f"a space is 1 to {MAX_SPACE_LENGTH} printable characters")
    return space


def vectors(data: bytes, rows: int, columns: int, what: str) -> Vectors:
    """`data` as (rows, columns) float32: little-endian numbers of 4 bytes, or float16 where there are 2 for each."""
    numbers = rows * columns
    if rows < 0 or columns < 1 or columns > MAX_DIMENSION or len(data) not in (2 * numbers, 4 * numbers):
        raise BadRecord(
            Reason.BAD_SHAPE, f"{what}: {len(data)} bytes declared as {rows} x {columns} float32 or float16"
        )
    if len(data) == 4 * numbers:
        return np.frombuffer(data, dtype="<f4").reshape(rows, columns)
    return np.frombuffer(data, dtype="<f2").astype(np.float32).reshape(rows, columns)


def check_finite(tables: Iterable[Table], what: str) -> None:
    """Refuse NaN and infinity anywhere in the tables."""
    for table in tables:
        finite = np.isfinite(table.vectors)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise BadRecord(
                Reason.NOT_FINITE, f"{what}: row {row}, column {column} of {table.name!r} is not finite"
            )


def not_finite_rows(tables: Sequence[Table]) -> tuple[int, ...]:
    """Numbers of the rows that hold NaN or infinity in any modality."""
    bad: set[int] = set()
    for table in tables:
        finite = np.isfinite(table.vectors)
        if not finite.all():
            bad.update(np.flatnonzero(~finite.all(axis=1)).tolist())
    return tuple(sorted(bad))


def text(value: str, what: str, most: int = MAX_STRING_LENGTH) -> str:
    """A string of bounded length."""
    if len(value) > most:
        raise BadRecord(Reason.BAD_SHAPE, f"{what} is longer than {most} characters")
    return value


def optional_text(value: str | None, what: str) -> str | None:
    """The same for an optional string."""
    return None if value is None else text(value, what)


def strings(values: Sequence[str], rows: int, what: str) -> tuple[str, ...]:
    """`values` as a tuple of `rows` strings of bounded length."""
    if len(values) != rows:
        raise BadRecord(Reason.BAD_SHAPE, f"{len(values)} {what} for {rows} rows")
    if any(len(v) > MAX_STRING_LENGTH for v in values):
        raise BadRecord(Reason.BAD_SHAPE, f"one of the {what} is longer than {MAX_STRING_LENGTH} characters")
    return tuple(values)


def distinct_strings(values: Sequence[str], what: str) -> tuple[str, ...]:
    """`values` as a tuple of strings of bounded length, none of them twice."""
    found = strings(values, len(values), what)
    if len(set(found)) != len(found):
        raise BadRecord(Reason.BAD_SHAPE, f"one of the {what} appears twice")
    return found


def check_indices(values: NDArray[np.int32], least: int, end: int, what: str) -> None:
    """Refuse an index below `least`, or not below `end`."""
    if len(values) and (values.min() < least or values.max() >= end):
        raise BadRecord(Reason.BAD_SHAPE, f"an index of {what} lies outside {least} .. {end - 1}")


def sequence_number(value: int) -> int:
    """A position in a load."""
    if not 0 <= value <= MAX_SEQUENCE:
        raise BadRecord(Reason.BAD_SHAPE, f"load sequence {value}")
    return value


def finite_float(value: float, what: str) -> float:
    """A float that is a number."""
    if not math.isfinite(value):
        raise BadRecord(Reason.NOT_FINITE, f"{what} is {value}")
    return float(value)


def check_scores(scores: Scores, what: str = "scores") -> Scores:
    """Refuse names that are not sorted, distinct, valid and few, and infinity anywhere."""
    names = scores.names
    if not 1 <= len(names) <= MOST_NAMES:
        raise BadRecord(Reason.BAD_SHAPE, f"{what} have 1 to {MOST_NAMES} names, not {len(names)}")
    if fault := next(filter(None, map(name_fault, names)), None):
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: {fault}")
    if any(left >= right for left, right in pairwise(names)):
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: names are sorted, each once")
    infinite = np.isinf(scores.values)
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise BadRecord(
            Reason.NOT_FINITE, f"{what}: number {row} of {names[column]!r} is infinite in float32"
        )
    return scores


def scores_of(columns: Mapping[str, Sequence[Any]], rows: int, what: str = "scores") -> Scores | None:
    """Scores from a number, or None, for each of the rows by name; None without names.

    Raises
    ------
    BadRecord : a name that cannot be one, too many or too few numbers, or one that float32 does not hold.
    """
    if not columns:
        return None
    wide = np.full((rows, len(columns)), np.nan)
    names = tuple(sorted(columns))
    for column, name in enumerate(names):
        values = columns[name]
        if len(values) != rows:
            raise BadRecord(
                Reason.BAD_SHAPE, f"{what}: {len(values)} numbers of {name[:_SHOWN]!r} for {rows} items"
            )
        if not _NUMBERS.issuperset(map(type, values)):
            bad = next((row for row, value in enumerate(values) if type(value) not in _OR_NONE), None)
            if bad is not None:
                kind = type(values[bad]).__name__
                raise BadRecord(Reason.BAD_SHAPE, f"{what}: number {bad} of {name[:_SHOWN]!r} is a {kind}")
            values = [math.nan if value is None else value for value in values]
        try:
            wide[:, column] = values
        except OverflowError:
            # A whole number may be too large for any float.
            wide[:, column] = [math.inf if abs(value) > _LARGEST else value for value in values]
    if (loss := lost(wide)) is not None:
        raise BadRecord(Reason.BAD_SHAPE, f"{what}: {names[loss[0]][:_SHOWN]!r}: {loss[1]}")
    return check_scores(Scores(names, narrowed(wide)), what)
