"""Result lists of JSON lines, each with the fields of the JSON event (docs/json-events.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kinstream.producers.clicks.checks import check_list
from kinstream.producers.clicks.rows import UNKNOWN_TIME
from kinstream.producers.files.json_lines import JsonLines
from kinstream.producers.files.numbers import Where
from kinstream.streams.errors import BadRecord, SourceError
from kinstream.streams.records.codec.json_events import read_json
from kinstream.streams.records.foreign.times import FIRST_YEAR, LAST_YEAR, are_milliseconds
from kinstream.streams.records.values import Click

_NAMES: Final = frozenset({"items", "clicks", "list_id", "session", "user", "address", "query_item"})


class JsonLists:
    """Lines as lists. `kind`, `space` and `list_id` may be left out, and the time of a click.

    Parameters
    ----------
    space : of the load; another one in a line is refused.
    name : name of lists without an id: this and their line.
    now : lists have the time of sending.
    """

    def __init__(self, file: JsonLines, space: str, name: str, *, now: bool) -> None:
        self._file = file
        self._place = str(file.path)
        self._space = space
        self._name = name
        self._now = now

    def read(self, first: int) -> Iterator[tuple[Click, int]]:
        for row, body in self._file.objects(first):

            def fault(field: str, number: int | None, what: str, row: int = row) -> SourceError:
                return Where(self._place, field).error(row, what)

            yield check_list(self._list(body, row), fault), row + 1

    def _list(self, body: dict[str, Any], row: int) -> Click:
        whole = {"kind": "click", "space": self._space, "list_id": f"{self._name}-{row + 1}", **body}
        place = f"{self._place}: row {row + 1}"
        if "load" in body:
            raise SourceError(f"{place}: has a load position, which the load assigns itself")
        if whole["space"] != self._space:
            raise SourceError(f"{place}: space {whole['space']!r}, and the load is for {self._space!r}")
        self._timed(whole, place)
        for field in _NAMES & whole.keys():
            whole[field] = _text(whole[field])
        try:
            found = read_json(json.dumps(whole).encode())
        except BadRecord as error:
            raise SourceError(f"{place}: {error.detail}") from error
        if not isinstance(found, Click):
            raise SourceError(f"{place}: kind {body['kind']!r}, not a click")
        for time in (found.shown_at_ms, *(click.time_ms for click in found.clicks)):
            if time != UNKNOWN_TIME and not are_milliseconds((time,)):
                fault = f"the time {time} is outside of the years {FIRST_YEAR} to {LAST_YEAR} in milliseconds"
                raise SourceError(f"{place}: {fault}")
        return found

    def _timed(self, body: dict[str, Any], place: str) -> None:
        clicks = body.get("clicks")
        dated = [c for c in clicks if isinstance(c, dict)] if isinstance(clicks, list) else []
        if self._now:
            if "shown_at_ms" in body or any("time_ms" in click for click in dated):
                raise SourceError(f"{place}: the list has times; leave out --shown-at now")
            body["shown_at_ms"] = UNKNOWN_TIME
        elif "shown_at_ms" not in body:
            raise SourceError(f"{place}: shown_at_ms is missing; --shown-at now takes the time of sending")
        elif body["shown_at_ms"] == UNKNOWN_TIME or any(c.get("time_ms") == UNKNOWN_TIME for c in dated):
            raise SourceError(f"{place}: a time is negative")
        if isinstance(clicks, list):
            at = {"time_ms": body["shown_at_ms"]}
            body["clicks"] = [at | click if isinstance(click, dict) else click for click in clicks]


def _text(value: Any) -> Any:
    """Whole numbers as names, also in lists and in clicks; other values as they are."""
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, dict):
        return {**value, "item": _text(value["item"])} if "item" in value else value
    return str(value) if type(value) is int else value
