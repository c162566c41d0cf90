"""Times in a file, by the rule of `kinstream.streams.records.foreign.times`, or in the one form that the user names."""

from __future__ import annotations

from datetime import date
from math import isfinite
from typing import Any, Final

from kinstream.producers.files.numbers import Where
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.foreign.times import checked, iso, milliseconds, number_in

FORMS: Final = ("auto", "milliseconds", "seconds", "iso")


class Times:
    """Reads the times of a column.

    Parameters
    ----------
    form : one of `FORMS`. "auto" recognises the form of each time. A typed time needs none.

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
        SourceError : it is missing, of another form, or outside of the years that are taken.
        """
        if value is None or value == "" or value != value:
            raise where.error(row, "the time is missing")
        try:
            if self._form == "auto" or isinstance(value, date):
                return milliseconds(value)
            if self._form == "iso":
                return iso(str(value))
            return self._of_unit(value)
        except ValueError as error:
            raise where.error(row, f"{error}; see --times") from None

    def _of_unit(self, value: Any) -> int:
        number = number_in(value) if isinstance(value, str) else value
        if type(number) is not int and not (isinstance(number, float) and isfinite(number)):
            raise ValueError(f"{value!r} is not a time in {self._form}")
        return checked(round(number * 1000 if self._form == "seconds" else number), value)
