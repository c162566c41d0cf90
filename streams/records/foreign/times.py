"""Times as files and other systems give them: one rule for their units and for the years that are taken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from kinstream.streams.records.foreign.names import shown

#: The first and the last year that a time may lie in. In these years no number is a time in two units.
FIRST_YEAR: Final = 1990
LAST_YEAR: Final = 2099
_YEARS: Final = f"outside of the years {FIRST_YEAR} to {LAST_YEAR}"
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _since_1970(time: datetime) -> int:
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (zoned - _BEGINNING) // timedelta(milliseconds=1)


#: Milliseconds since 1970 of the first time that is taken, and of the first one after it that is not.
EARLIEST: Final = _since_1970(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC))
END: Final = _since_1970(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC))
#: Seconds, milliseconds, microseconds, nanoseconds: how many of them are so many milliseconds.
_UNITS: Final = ((1, 1000), (1, 1), (1_000, 1), (1_000_000, 1))
_DAYS: Final = (datetime(FIRST_YEAR, 1, 1) - datetime(1899, 12, 30)).days
_DAYS_END: Final = (datetime(LAST_YEAR + 1, 1, 1) - datetime(1899, 12, 30)).days


def milliseconds(value: Any) -> int:
    """Milliseconds since 1970.

    A number is in the unit (seconds, milliseconds, microseconds, nanoseconds) in which it lies in the years 1990 to
    2099, or a date of eight digits, 20260501. Text is such a number or ISO 8601. Without a zone, a time is UTC.

    Raises
    ------
    ValueError : it is missing, none of these, or outside of these years; the message is the fault.

    Examples
    --------
    >>> {milliseconds(time) for time in (1777593600, 1777593600000000, "2026-05-01", 20260501)}
    {1777593600000}
    """
    found = of_number(value) if type(value) in (int, float) else None
    if found is not None:
        return found
    if isinstance(value, datetime):
        return checked(_since_1970(value), value)
    if isinstance(value, date):
        return milliseconds(datetime(value.year, value.month, value.day))
    if isinstance(value, Decimal) and value.is_finite():
        return milliseconds(int(value) if value == int(value) else float(value))
    if value is None or value == "" or value != value:
        raise ValueError("is missing")
    if type(value) is str:
        number = number_in(value)
        if number is None:
            return iso(value)
        found = of_number(number)
        if found is None:
            raise ValueError(f"the time {shown(value)} is {_outside(number)}")
        return found
    if type(value) in (int, float):
        raise ValueError(f"the time {shown(value)} is {_outside(value)}")
    raise ValueError(f"{shown(value)} is no time: a number, or text such as 2026-05-01T12:00:00Z")


def of_number(value: float) -> int | None:
    """Milliseconds of a number in whatever unit it is; None if it is a time in none."""
    for of_these, make in _UNITS:
        if EARLIEST * of_these <= value * make < END * of_these:
            exact = value * make // of_these if isinstance(value, int) else round(value * make / of_these)
            return int(exact)
    return _of_digits(value) if isinstance(value, int) else None


def _of_digits(value: int) -> int | None:
    """Milliseconds of a date such as 20260501; None if it is none of the years taken."""
    year, rest = divmod(value, 10_000)
    if not FIRST_YEAR <= year <= LAST_YEAR:
        return None
    try:
        return _since_1970(datetime(year, *divmod(rest, 100)))
    except ValueError:
        return None


def number_in(text: str) -> float | None:
    """The number that a text is; None for another text. Digits with separators, as in Python's code, are none."""
    plain = text.strip()
    if not plain.isascii() or "_" in plain:
        return None
    if plain.removeprefix("-").isdecimal() and len(plain) < 20:
        return int(plain)
    try:
        return float(plain)
    except ValueError:
        return None


def iso(text: str) -> int:
    """Milliseconds of ISO 8601.

    Raises
    ------
    ValueError : it is not that, or outside of the years taken.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{shown(text)} is no time such as 2026-05-01T12:00:00Z") from None
    return checked(_since_1970(found), text)


def checked(found: int, value: Any) -> int:
    """Milliseconds that lie in the years taken.

    Raises
    ------
    ValueError : they do not; `value` is shown in the message.
    """
    if not EARLIEST <= found < END:
        raise ValueError(f"the time {shown(value) if type(value) is str else value} is {_YEARS}")
    return found


def _outside(value: float) -> str:
    """Why a number is no time."""
    if isinstance(value, float) and not isfinite(value):
        return "not finite"
    if _DAYS <= value < _DAYS_END:
        return f"{_YEARS}; it looks like a spreadsheet's number of a day: write ISO 8601, such as 2026-05-01"
    return f"{_YEARS} in every unit"


def are_milliseconds(values: Sequence[int]) -> bool:
    """Whether `milliseconds` returns each of these whole numbers as it is. There is at least one."""
    return min(values) >= EARLIEST and max(values) < END
