"""Filters of requests for stores that speak SQL: a small language over columns that the settings name.

`{"lang": "en", "year": {"gte": 2020}, "shop": [1, 2]}`: a value is equal, of a list one is, and bounds hold; all
conditions together. Values are parameters of the query, never text in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kinstream.search.stores.base import BadFilter

#: Bounds, as SQL writes them.
BOUNDS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
#: Most values in a list.
MOST: Final = 1_000


class Condition(NamedTuple):
    """A column, an operator of SQL, and its operand; of "= any" the operand is a list."""

    column: str
    operator: str
    value: Any


def conditions(where: Any, columns: Sequence[str]) -> list[Condition]:
    """The conditions of a filter.

    Raises
    ------
    BadFilter : it is not a filter, or names another column.
    """
    if where is None:
        return []
    if not isinstance(where, Mapping):
        raise BadFilter("a filter is an object of columns and values")
    found = []
    for column, wanted in where.items():
        if column not in columns:
            known = ", ".join(columns) or "none"
            raise BadFilter(f"{column!r} is not a column that the settings name; there are {known}")
        found += _of(column, wanted)
    return found


def _of(column: str, wanted: Any) -> list[Condition]:
    if isinstance(wanted, list):
        if not wanted or len(wanted) > MOST or len({type(one) for one in wanted}) > 1:
            raise BadFilter(f"{column}: a list has 1 to {MOST} values of one type")
        return [Condition(column, "= any", [_scalar(column, one) for one in wanted])]
    if isinstance(wanted, Mapping):
        if not wanted or not set(wanted) <= set(BOUNDS):
            raise BadFilter(f"{column}: bounds are {', '.join(BOUNDS)}")
        return [Condition(column, BOUNDS[name], _scalar(column, value)) for name, value in wanted.items()]
    return [Condition(column, "=", _scalar(column, wanted))]


def _scalar(column: str, value: Any) -> Any:
    if isinstance(value, str) and "\x00" in value:
        raise BadFilter(f"{column}: a text with a zero character")
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        raise BadFilter(f"{column}: a number beyond 64 bits")
    if not isinstance(value, str | int | float | bool):
        raise BadFilter(f"{column}: a value is a text, a number, true or false")
    return value
