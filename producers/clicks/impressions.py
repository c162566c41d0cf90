"""One impression a row: consecutive rows of the same list, session and query are one result list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from kinstream.producers.clicks.checks import check_list
from kinstream.producers.clicks.columns import ClickCells, ClickColumns
from kinstream.producers.files.cells import CellFile, flag, is_missing, joined, whole
from kinstream.streams.errors import SourceError
from kinstream.streams.records.values import Click, ItemClick

_COLUMN: Final = {
    "items": "item",
    "positions": "position",
    "clicks": "clicked",
    "shown_at_ms": "shown_at",
}


class ImpressionRows:
    """Rows that are grouped into lists. A row without list id, session and query is a list of its own.

    The list's time, user and query vector are those of its first row.
    """

    def __init__(self, file: CellFile, columns: ClickColumns) -> None:
        self._file = file
        self._columns = columns
        self._cells = ClickCells(file, columns)

    def read(self, first: int) -> Iterator[tuple[Click, int]]:
        """Lists, starting from a row where one begins.

        Raises
        ------
        SourceError : a row cannot be used, or a list id comes back after other lists.
        """
        ended: set[bytes] = set()
        group: list[Sequence[Any]] = []
        begin, key = first, None
        for row, cells in self._file.rows(self._cells.read, first):
            found = self._key(cells, row)
            if group and (found is None or found != key):
                yield self._list(group, begin, ended), row
                group = []
            if not group:
                begin, key = row, found
            group.append(cells)
        if group:
            yield self._list(group, begin, ended), begin + len(group)

    def _key(self, cells: Sequence[Any], row: int) -> tuple[Any, ...] | None:
        names = [self._cells.name(cells, field, row) for field in ("list_id", "session", "query_item")]
        vectors = self._cells.query_key(cells)
        return (*names, vectors) if any(name is not None for name in names) or vectors else None

    def _list(self, group: list[Sequence[Any]], begin: int, ended: set[bytes]) -> Click:
        def fault(field: str, number: int | None, what: str) -> SourceError:
            return self._cells.where(_COLUMN.get(field, field)).error(begin + (number or 0), what)

        read, head = self._cells, group[0]
        shown = read.time(head, "shown_at", begin)
        items = [
            joined(read.values(cells, "item"), self._columns.found["item"], read.place, row, typed=read.typed)
            for row, cells in enumerate(group, begin)
        ]
        list_id = read.name(head, "list_id", begin)
        if list_id is not None:
            digest = blake2b(list_id.encode(), digest_size=8).digest()
            if digest in ended:
                raise read.where("list_id").error(
                    begin,
                    f"list {list_id!r} continues after other rows, or with another session or query: sort the "
                    "file by list",
                )
            ended.add(digest)
        clicks = [
            self._click(cells, item, row, shown)
            for row, (cells, item) in enumerate(zip(group, items, strict=True), begin)
            if flag(read.value(cells, "clicked"), read.where("clicked"), row)
        ]
        click = Click(
            "",
            list_id or f"{self._columns.name}-{begin + 1}",
            tuple(items),
            tuple(self._position(cells, number, begin + number) for number, cells in enumerate(group)),
            tuple(clicks),
            shown,
            read.name(head, "session", begin),
            read.name(head, "user", begin),
            read.name(head, "query_item", begin),
            read.query_vector(head, begin),
            address=read.name(head, "address", begin),
        )
        return check_list(click, fault)

    def _position(self, cells: Sequence[Any], number: int, row: int) -> int:
        if "position" not in self._columns.found:
            return number
        found = whole(self._cells.value(cells, "position"), self._cells.where("position"), row)
        return found - self._columns.first_position

    def _click(self, cells: Sequence[Any], item: str, row: int, shown: int) -> ItemClick:
        read = self._cells
        at, dwell = read.value(cells, "clicked_at"), read.value(cells, "dwell_ms")
        time = shown if is_missing(at) else read.time_of(at, "clicked_at", row)
        return ItemClick(item, time, None if is_missing(dwell) else whole(dwell, read.where("dwell_ms"), row))
