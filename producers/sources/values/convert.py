"""Values of other systems as ours: names, times, numbers, flags, vectors. Each refuses what it cannot read."""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal
from typing import Any, Final

import numpy as np
import orjson

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import MAX_DIMENSION, MAX_STRING_LENGTH
from kinstream.streams.records.foreign.names import label, name, shown
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.foreign.times import are_milliseconds as are_milliseconds
from kinstream.streams.records.foreign.times import milliseconds, number_in
from kinstream.streams.records.values import Vectors

#: Milliseconds far beyond any calendar; and floats from here on are no longer whole numbers one by one.
END_OF_TIME: Final = 2**53
_FLOATS: Final = frozenset({int, float})
_TRUE: Final = ("true", "1", "+1", "yes", "t", "y")
_FALSE: Final = ("false", "0", "-1", "no", "f", "n", "")


def refused(where: str, what: str, reason: Reason = Reason.BAD_SHAPE) -> BadRecord:
    """The refusal of a record: the field, with its path, and the fault."""
    return BadRecord(reason, f"{where}: {what}")


def name_of(value: Any, where: str) -> str:
    """A name, by the rule of `kinstream.streams.records.foreign.names`.

    Raises
    ------
    BadRecord : it is missing, empty, longer than names may be, or of another type.
    """
    try:
        return name(value)
    except ValueError as error:
        raise refused(where, str(error)) from None


def label_of(value: Any, where: str) -> int | str:
    """A label, by the same rule.

    Raises
    ------
    BadRecord : it is none.
    """
    try:
        return label(value)
    except ValueError as error:
        raise refused(where, str(error)) from None


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
    text = value.strip() if type(value) is str and value.isascii() else ""
    if text.removeprefix("-").isdecimal() and len(text) < 20:
        return int(text)
    raise refused(where, "is missing" if value is None else f"{shown(value)} is not a whole number")


def wholes(values: list[Any], where: str) -> list[int]:
    """`whole` of each value, in less time."""
    if set(map(type, values)) == {int}:
        return values
    return [whole(value, where) for value in values]


def flag(value: Any, where: str) -> bool:
    """True or false, also as 1 and 0, as +1 and -1, or as text.

    Raises
    ------
    BadRecord : it is another value.
    """
    if type(value) is bool:
        return value
    if type(value) is float and value.is_integer():
        value = int(value)
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
    """Milliseconds since 1970, by the rule of `kinstream.streams.records.foreign.times`.

    Raises
    ------
    BadRecord : it is missing, no time, or outside of the years that are taken.
    """
    try:
        return milliseconds(value)
    except ValueError as error:
        raise refused(where, str(error)) from None


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


def numbers_or_nothing(value: Any, count: int, where: str) -> list[int | float | None]:
    """A number, or None for a missing one, for each of so many items; true and false are 1 and 0.

    Raises
    ------
    BadRecord : it is no list of that length, or one of it is no number.
    """
    if value is None:
        return [None] * count
    if type(value) is not list:
        raise refused(where, "is no list")
    if len(value) != count:
        raise refused(where, f"{len(value)} values for {count}")
    return value if _FLOATS.issuperset(map(type, value)) else [_number(one, where) for one in value]


def _number(value: Any, where: str) -> int | float | None:
    if value is None or value == "":
        return None
    if type(value) in (bool, Decimal):
        return float(value)
    found = number_in(value) if type(value) is str else value
    if type(found) not in (int, float):
        raise refused(where, f"{shown(value)} is no number")
    return found


def _from_numbers(numbers: list[Any], where: str) -> Vectors:
    kinds = set(map(type, numbers))
    if Decimal in kinds:
        numbers, kinds = [float(n) if type(n) is Decimal else n for n in numbers], kinds - {Decimal} | {float}
    if not kinds <= {int, float}:
        at = next(i for i, n in enumerate(numbers) if type(n) is not int and type(n) is not float)
        raise refused(where, f"number {at} is {shown(numbers[at])}")
    try:
        wide = np.array(numbers, np.float64)
    except OverflowError:
        raise refused(where, "a number does not fit into float32", Reason.NOT_FINITE) from None
    if (found := lost(wide)) is not None:
        raise refused(where, f"number {found[0]}: {found[1]}")
    return narrowed(wide).astype("<f4")


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
