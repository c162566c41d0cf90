"""One result list a row: its items, their positions and its clicks are lists in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kinstream.producers.clicks.checks import check_list
from kinstream.producers.clicks.columns import ClickCells, ClickColumns
from kinstream.producers.clicks.rows import UNKNOWN_TIME
from kinstream.producers.files.cells import CellFile, sequence, whole
from kinstream.producers.files.numbers import Where
from kinstream.producers.files.text import name_of
from kinstream.producers.files.times import Times
from kinstream.streams.errors import SourceError
from kinstream.streams.records.values import Click, ItemClick

_COLUMN: Final = {"shown_at_ms": "shown_at"}


class ListRows:
    """Rows as lists. A list is a list column, JSON, or text with separators.

    A click is the name of an item, or an object {item, time_ms, dwell_ms}; `clicked_at` and `dwell_ms` may hold
    one value for each click. A click without a time has that of its list.
    """

    def __init__(self, file: CellFile, columns: ClickColumns) -> None:
        self._file = file
        self._columns = columns
        self._cells = ClickCells(file, columns)
        self._milliseconds = Times("milliseconds")

    def read(self, first: int) -> Iterator[tuple[Click, int]]:
        for row, cells in self._file.rows(self._cells.read, first):

            def fault(field: str, number: int | None, what: str, row: int = row) -> SourceError:
                return self._cells.where(_COLUMN.get(field, field)).error(row, what)

            yield check_list(self._list(cells, row), fault), row + 1

    def _list(self, cells: Sequence[Any], row: int) -> Click:
        read = self._cells
        shown_items = self._sequence(cells, "items", row)
        items = tuple(name_of(item, read.where("items"), row, typed=read.typed) for item in shown_items)
        shown = read.time(cells, "shown_at", row)
        return Click(
            "",
            read.name(cells, "list_id", row) or f"{self._columns.name}-{row + 1}",
            items,
            self._positions(cells, row, len(items)),
            tuple(self._clicks(cells, row, shown)),
            shown,
            read.name(cells, "session", row),
            read.name(cells, "user", row),
            read.name(cells, "query_item", row),
            read.query_vector(cells, row),
            address=read.name(cells, "address", row),
        )

    def _sequence(self, cells: Sequence[Any], field: str, row: int) -> list[Any]:
        return sequence(
            self._cells.value(cells, field), self._columns.separator, self._cells.where(field), row
        )

    def _positions(self, cells: Sequence[Any], row: int, items: int) -> tuple[int, ...]:
        if "positions" not in self._columns.found:
            return tuple(range(items))
        where = self._cells.where("positions")
        found = [whole(value, where, row) for value in self._sequence(cells, "positions", row)]
        if len(found) != items:
            raise where.error(row, f"{len(found)} positions for {items} items")
        return tuple(position - self._columns.first_position for position in found)

    def _clicks(self, cells: Sequence[Any], row: int, shown: int) -> Iterator[ItemClick]:
        clicks = self._sequence(cells, "clicks", row)
        times = self._beside(cells, "clicked_at", row, len(clicks))
        dwells = self._beside(cells, "dwell_ms", row, len(clicks))
        where = self._cells.where("clicks")
        for click, at, dwell in zip(clicks, times, dwells, strict=True):
            if isinstance(click, dict):
                yield self._object(click, row, shown, where)
                continue
            time = shown if at is None else self._cells.time_of(at, "clicked_at", row)
            stay = None if dwell is None else whole(dwell, self._cells.where("dwell_ms"), row)
            yield ItemClick(name_of(click, where, row, typed=self._cells.typed), time, stay)

    def _object(self, click: dict[str, Any], row: int, shown: int, where: Where) -> ItemClick:
        if not {"item"} <= click.keys() <= {"item", "time_ms", "dwell_ms"}:
            raise where.error(row, "a click is an item, or {item, time_ms, dwell_ms}")
        at, dwell = click.get("time_ms"), click.get("dwell_ms")
        if at is not None and shown == UNKNOWN_TIME:
            raise where.error(row, "a click has a time; leave out --shown-at now")
        time = shown if at is None else self._milliseconds.milliseconds(at, where, row)
        stay = None if dwell is None else whole(dwell, where, row)
        return ItemClick(name_of(click["item"], where, row, typed=self._cells.typed), time, stay)

    def _beside(self, cells: Sequence[Any], field: str, row: int, clicks: int) -> list[Any]:
        """One value for each click, or None for each if the row has none."""
        found = self._sequence(cells, field, row)
        if not found:
            return [None] * clicks
        if len(found) != clicks:
            raise self._cells.where(field).error(row, f"{len(found)} values for {clicks} clicks")
        return [None if value == "" else value for value in found]
