"""Times in a file: milliseconds, seconds, or ISO 8601."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kinstream.producers.files.numbers import Where
from kinstream.streams.errors import SettingsError, SourceError

FORMS: Final = ("auto", "milliseconds", "seconds", "iso")
#: Numbers from here on are milliseconds (1973) and not seconds (the year 5138).
LEAST_MILLISECONDS: Final = 10**11
#: Milliseconds far beyond any calendar.
END_OF_TIME: Final = 2**53
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Times:
    """Reads the times of one column, all in one form.

    Parameters
    ----------
    form : one of `FORMS`. "auto" uses the form of the first time for all: ISO 8601 if it is not a number, seconds below
        10^11, otherwise milliseconds.

    Raises
    ------
    SettingsError : there is no such form.
    """

    def __init__(self, form: str = "auto") -> None:
        if form not in FORMS:
            raise SettingsError(f"times are one of {', '.join(FORMS)}, not {form!r}")
        self._form = form

    def milliseconds(self, value: Any, where: Where, row: int) -> int:
        """Milliseconds since 1970. A time without a zone is UTC.

        Raises
        ------
        SourceError : it is missing, of another form, or before 1970.
        """
        if value is None or value == "":
            raise where.error(row, "the time is missing")
        if isinstance(value, datetime):
            return _in_range(_since_1970(value), value, where, row)
        number = _number(value)
        if self._form == "auto":
            self._form = _recognised(number)
        if self._form == "iso":
            return _in_range(_iso(value, where, row), value, where, row)
        if number is None:
            raise where.error(row, f"{value!r} is not a time in {self._form}; see --times")
        found = number * 1000 if self._form == "seconds" else number
        return _in_range(found if isinstance(found, int) else round(found), value, where, row)


def _recognised(number: float | None) -> str:
    if number is None:
        return "iso"
    return "seconds" if number < LEAST_MILLISECONDS else "milliseconds"


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        if text.lstrip("-").isdecimal() and text.isascii():
            return int(text)
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _iso(value: Any, where: Where, row: int) -> int:
    try:
        return _since_1970(datetime.fromisoformat(str(value).strip()))
    except ValueError:
        raise where.error(
            row, f"{value!r} is not an ISO 8601 time such as 2026-05-01T12:00:00Z; see --times"
        ) from None


def _since_1970(time: datetime) -> int:
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (zoned - _BEGINNING) // timedelta(milliseconds=1)


def _in_range(found: int, value: Any, where: Where, row: int) -> int:
    if not 0 <= found < END_OF_TIME:
        fault = "before 1970" if found < 0 else "beyond any calendar; see --times"
        raise _refused(where, row, value, fault)
    return found


def _refused(where: Where, row: int, value: Any, fault: str) -> SourceError:
    return where.error(row, f"the time {str(value)!r} is {fault}")
