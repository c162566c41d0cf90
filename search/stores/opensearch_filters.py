"""Filters of requests for OpenSearch: its own query language, without what runs scripts or reads other indexes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kinstream.search.stores.base import BadFilter

#: Queries that look at fields of an item alone.
_LEAVES: Final = frozenset(
    {"term", "terms", "range", "exists", "ids", "prefix", "match", "match_phrase", "match_all"}
    | {"geo_distance", "geo_bounding_box"}
)
#: Clauses of `bool` that hold queries.
_CLAUSES: Final = ("must", "should", "must_not", "filter")
#: Of queries within each other.
_DEEPEST: Final = 20


def filter_of(where: Any) -> Any:
    """A filter as the server gets it; None without one.

    Raises
    ------
    BadFilter : it is not a query, or of a kind that is not taken.
    """
    if where is not None:
        _check(where, _DEEPEST)
    return where


def _check(query: Any, deep: int) -> None:
    if not isinstance(query, dict) or len(query) != 1 or not deep:
        raise BadFilter('a filter is one query of OpenSearch, such as {"term": {"lang": "en"}}')
    ((kind, body),) = query.items()
    if not isinstance(body, dict):
        raise BadFilter(f"{kind} holds an object")
    if kind == "bool":
        for one in _parts(body):
            _check(one, deep - 1)
    elif kind == "nested":
        _check(body.get("query"), deep - 1)
    elif kind not in _LEAVES:
        known = ", ".join(sorted({"bool", "nested", *_LEAVES}))
        raise BadFilter(f"a filter cannot have {kind!r}; there are {known}")
    elif kind == "terms" and any(isinstance(one, dict) for one in body.values()):
        raise BadFilter("terms: values are a list, and not of another item")


def _parts(body: dict[str, Any]) -> Iterable[Any]:
    for clause in _CLAUSES:
        given = body.get(clause, [])
        yield from given if isinstance(given, list) else [given]
