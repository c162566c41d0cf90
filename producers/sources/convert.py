"""Values of other systems as ours: names, times, numbers, flags, vectors. Each refuses what it cannot read."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import MAX_DIMENSION, MAX_STRING_LENGTH
from kinstream.streams.records.values import Vectors

#: Where one unit of whole numbers ends and the next begins: seconds, milliseconds, microseconds, nanoseconds. Each
#: covers the years 1973 to 5138.
_UNITS: Final = ((10**11, 1000, 1), (10**14, 1, 1), (10**17, 1, 1_000), (2**63, 1, 1_000_000))
#: Milliseconds far beyond any calendar.
END_OF_TIME: Final = 2**53
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN: Final = 60
_TRUE: Final = ("true", "1", "yes", "t", "y")
_FALSE: Final = ("false", "0", "no", "f", "n", "")


def refused(where: str, what: str, reason: Reason = Reason.BAD_SHAPE) -> BadRecord:
    """The refusal of a record: the field, with its path, and the fault."""
    return BadRecord(reason, f"{where}: {what}")


def shown(value: Any) -> str:
    """A value in a refusal, bounded."""
    if isinstance(value, list | dict):
        # Its text could be as deep, and as long, as the record.
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def name_of(value: Any, where: str) -> str:
    """A name: text, or a whole number or a UUID as text.

    Raises
    ------
    BadRecord : it is missing, empty, longer than names may be, or of another type.
    """
    if type(value) is str:
        if not value:
            raise refused(where, "is empty")
        if len(value) > MAX_STRING_LENGTH:
            raise refused(where, f"is longer than {MAX_STRING_LENGTH} characters")
        return value
    if type(value) is int or isinstance(value, UUID):
        return str(value)
    if value is None:
        raise refused(where, "is missing")
    raise refused(where, f"{shown(value)} is no name: it must be text or a whole number")


def names_of(values: list[Any], where: str) -> tuple[str, ...]:
    """`name_of` each value, in less time."""
    if set(map(type, values)) == {str} and all(values) and max(map(len, values)) <= MAX_STRING_LENGTH:
        return tuple(values)
    return tuple(name_of(value, where) for value in values)


def optional_name(value: Any, where: str) -> str | None:
    """A name, or None where there is none."""
    return None if value is None or value == "" else name_of(value, where)


def whole(value: Any, where: str) -> int:
    """A whole number, also as text.

    Raises
    ------
    BadRecord : it is another value.
    """
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and abs(value) < END_OF_TIME:
        return int(value)
    if type(value) is str and len(value) < 20 and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value)
    raise refused(where, "is missing" if value is None else f"{shown(value)} is not a whole number")


def wholes(values: list[Any], where: str) -> list[int]:
    """`whole` of each value, in less time."""
    if set(map(type, values)) == {int}:
        return values
    return [whole(value, where) for value in values]


def flag(value: Any, where: str) -> bool:
    """True or false, also as 1 and 0, or as text.

    Raises
    ------
    BadRecord : it is another value.
    """
    if type(value) is bool:
        return value
    text = str(value).strip().lower() if type(value) in (str, int) else None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise refused(where, "is missing" if value is None else f"{shown(value)} is neither true nor false")


def set_flag(value: Any, where: str) -> bool:
    """As `flag`, where nothing counts as false."""
    return value is not None and flag(value, where)


def time_ms(value: Any, where: str) -> int:
    """Milliseconds since 1970.

    A number is seconds below 10^11, milliseconds below 10^14, microseconds below 10^17, otherwise nanoseconds. Text is
    such a number or ISO 8601; without a zone it is UTC.

    Raises
    ------
    BadRecord : it is missing, none of these, or before 1970.
    """
    if type(value) is str:
        value = _from_text(value, where)
    if type(value) is int:
        if _UNITS[0][0] <= value < _UNITS[1][0]:
            return value
        for end, times, parts in _UNITS:
            if 0 <= value < end:
                return value * times // parts
    elif type(value) is float and math.isfinite(value) and 0 <= value < END_OF_TIME:
        return round(value * 1000) if value < _UNITS[0][0] else round(value)
    elif isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        if zoned >= _BEGINNING:
            return (zoned - _BEGINNING) // timedelta(milliseconds=1)
    elif isinstance(value, date):
        return time_ms(datetime(value.year, value.month, value.day, tzinfo=UTC), where)
    elif value is None:
        raise refused(where, "is missing")
    raise refused(
        where, f"{shown(value)} is no time from 1970 on: a number, or text such as 2026-05-01T12:00:00Z"
    )


def are_milliseconds(values: Sequence[int]) -> bool:
    """Whether `time_ms` returns each of these whole numbers as it is. There is at least one."""
    return min(values) >= _UNITS[0][0] and max(values) < _UNITS[1][0]


def _from_text(text: str, where: str) -> Any:
    # First: ISO 8601 has forms of digits alone, and a number of milliseconds may look like one of them.
    if text.isdecimal() and text.isascii() and len(text) < 20:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise refused(where, f"{shown(text)} is no time such as 2026-05-01T12:00:00Z") from None


def vector(value: Any, where: str) -> Vectors:
    """(d,) float32 from a list of numbers, little-endian float32 in base64 or as bytes, or text such as [0.1, 0.2].

    Raises
    ------
    BadRecord : it is none of these, empty, too long, or not finite.
    """
    if type(value) is list:
        made = _from_numbers(value, where)
    elif type(value) is str and value.lstrip()[:1] == "[":
        # As pgvector writes it.
        try:
            numbers = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise refused(where, f"{shown(value)} is no list of numbers") from None
        made = _from_numbers(numbers, where)
    elif type(value) is str or type(value) is bytes:
        made = _from_bytes(value, where)
    elif value is None:
        raise refused(where, "is missing")
    else:
        raise refused(where, f"{shown(value)} is no vector: a list of numbers, or float32 in base64")
    if not 1 <= len(made) <= MAX_DIMENSION:
        raise refused(where, f"a vector has 1 to {MAX_DIMENSION} numbers, not {len(made)}")
    if not np.isfinite(made).all():
        at = int(np.flatnonzero(~np.isfinite(made))[0])
        raise refused(where, f"number {at} is not finite as float32", Reason.NOT_FINITE)
    return made


def _from_numbers(numbers: list[Any], where: str) -> Vectors:
    kinds = set(map(type, numbers))
    if Decimal in kinds:
        numbers, kinds = [float(n) if type(n) is Decimal else n for n in numbers], kinds - {Decimal} | {float}
    if not kinds <= {int, float}:
        at = next(i for i, n in enumerate(numbers) if type(n) is not int and type(n) is not float)
        raise refused(where, f"number {at} is {shown(numbers[at])}")
    try:
        with np.errstate(over="ignore"):
            return np.array(numbers, np.float64).astype("<f4")
    except OverflowError:
        raise refused(where, "a number does not fit into float32", Reason.NOT_FINITE) from None


def _from_bytes(value: str | bytes, where: str) -> Vectors:
    data = value
    if isinstance(data, str):
        try:
            data = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise refused(where, f"{shown(value)} is neither base64 nor a list of numbers") from None
    if len(data) % 4:
        raise refused(where, f"{len(data)} bytes are no whole number of float32")
    return np.frombuffer(data, "<f4")
