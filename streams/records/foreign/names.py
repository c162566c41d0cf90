"""Names and labels as files and other systems give them: one rule for all of them, so that a thing has one spelling.

A name is text, or a whole number, which becomes its digits. A label is a whole number or text. What could be spelled in
two ways is refused where it is a name: 17 and 17.0 would be two of them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

#: The longest name.
MAX_NAME_LENGTH: Final = 4096
_INT64: Final = range(-(2**63), 2**63)
#: Whole numbers that a float64 can tell from their neighbours.
_EXACT: Final = 2**53
_SHOWN: Final = 60
#: Whole numbers as pandas and spreadsheets write them from floats: 17.0, 4.006381333931e+12.
_FLOAT: Final = re.compile(r"-?[0-9]+\.0|-?[0-9]\.[0-9]+[eE]\+[0-9]+")


def name(value: Any) -> str:
    """A name: text, or a whole number or a UUID as text.

    Raises
    ------
    ValueError : it is missing, too long, or of another type; the message is the fault.

    Examples
    --------
    >>> name("sku-1"), name(4006381333931)
    ('sku-1', '4006381333931')
    """
    # A decimal without digits after the point is how databases write whole numbers.
    if type(value) is int or (isinstance(value, Decimal) and value.as_tuple().exponent == 0):
        value = str(int(value))
    if type(value) is str:
        if not value:
            raise ValueError("is missing")
        if len(value) > MAX_NAME_LENGTH:
            raise ValueError(f"is longer than {MAX_NAME_LENGTH} characters")
        return value
    if isinstance(value, UUID):
        return str(value)
    if value is None or value != value:
        raise ValueError("is missing")
    if isinstance(value, float | Decimal):
        raise ValueError(fault_of_float(value))
    raise ValueError(f"{shown(value)} is no name: it must be text or a whole number")


def fault_of_float(value: Any) -> str:
    """Why a number with a point is no name."""
    return (
        f"{shown(value)} is no name: it must be text or a whole number. Numbers with a point have several spellings; "
        "pandas makes them of whole numbers where one is missing (write those as Int64 or as text)"
    )


def fault_of_cell(text: str) -> str | None:
    """Why text of a file without types is no name: a program wrote a number with a point. None for other text.

    Examples
    --------
    >>> fault_of_cell("17"), fault_of_cell("1.5"), fault_of_cell("17.0") is None
    (None, None, False)
    """
    return fault_of_float(text) if _FLOAT.fullmatch(text) else None


def label(value: Any) -> int | str:
    """A label: a whole number of 64 bits, also as a float or as true (1) or false (0), or trimmed text as of a name.

    Raises
    ------
    ValueError : it is missing, too long, or of another type; the message is the fault.

    Examples
    --------
    >>> label(3), label(3.0), label(True), label("cat"), label("3")
    (3, 3, 1, 'cat', '3')
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float | Decimal) and value == value:
        if not -_EXACT <= value <= _EXACT or value != int(value):
            raise ValueError(f"the label {shown(value)} is not a whole number")
        return int(value)
    if type(value) is int:
        if value not in _INT64:
            raise ValueError(f"the label {shown(value)} is not a whole number of 64 bits")
        return value
    return name(value.strip() if type(value) is str else value)


def shown(value: Any) -> str:
    """A value in a message, bounded."""
    if isinstance(value, list | dict):
        # Its text could be as deep, and as long, as the record.
        return "a list" if isinstance(value, list) else "an object"
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
