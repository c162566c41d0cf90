"""Events of the rows of a file, by the mapping of a source: a row is a record, or consecutive rows of one list are."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from kinstream.producers.files.cells import JOINT, CellFile, sequence
from kinstream.producers.files.json_lines import open_cells
from kinstream.producers.files.numbers import RowError
from kinstream.producers.files.tables import file_digest, lines_of
from kinstream.producers.loads.click_rows import ClickRows, click_bytes
from kinstream.producers.loads.list_checks import ClickTally
from kinstream.producers.loads.record_rows import RecordSource
from kinstream.producers.loads.relation_rows import RelationRows, RelationTally, relation_bytes
from kinstream.producers.sources.file_fields import IMPRESSIONS, FileFields, by_columns, by_source
from kinstream.producers.sources.mapping import mapper
from kinstream.producers.sources.values.convert import name_of, refused
from kinstream.producers.sources.values.formats import Parsed
from kinstream.producers.sources.values.paths import compile_path
from kinstream.producers.sources.values.placeholder import Unchanged
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.foreign.names import fault_of_cell, shown
from kinstream.streams.records.foreign.times import number_in
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Loaded

_NAME_LENGTH: Final = 8
_KEYS: Final = ("list_id", "session", "query_item")

Record = dict[str, Any]


class Mapped(NamedTuple):
    """What became of rows of the file.

    Parameters
    ----------
    row, end : the first of them, and the one after the last.
    events : what they cause; None if the mapping leaves them out.
    fault : why they are refused; then `row` is the one that is wrong.
    """

    row: int
    end: int
    events: Sequence[Loaded] | None
    fault: BadRecord | None = None


class FileEvents:
    """The rows of a file through a mapping.

    Parameters
    ----------
    space : of the load; None takes all spaces.
    digest : of the file: lists without an id are named after it and their row.

    Raises
    ------
    SettingsError : the fields do not fit together.
    """

    def __init__(self, file: CellFile, fields: FileFields, space: str | None, digest: str) -> None:
        self.file: Final = file
        self.fields: Final = fields
        self.digest: Final = digest
        self._space = space
        self._name = digest[:_NAME_LENGTH]
        self._parsed = Parsed()
        # Of an empty value every field is compared with the placeholder of the settings.
        self._value = b"{}" if fields.found else b""
        self._mapper = mapper(fields.settings, self._parsed, sending=not fields.settings.preset)
        given: Mapping[str, Any] = fields.settings.fields
        keys = [given[name] for name in _KEYS if name in given]
        vectors = given.get("query_vector", {})
        keys += [vectors] if isinstance(vectors, str) else list(vectors.values())
        self._keys = [compile_path(path).get for path in keys]
        steps = compile_path(given["list_id"]).steps if "list_id" in given else ()
        #: Field of a record that holds the name of its list.
        self._list_id = str(steps[0]) if fields.settings.kind == "clicks" and len(steps) == 1 else None

    def each(self, first: int) -> Iterator[Mapped]:
        """What becomes of the rows from `first` on, where a record begins.

        Raises
        ------
        SourceError : a row cannot be read at all.
        """
        return self._groups(first) if self.fields.grouped else self._rows(first)

    def held_back(self) -> Sequence[Loaded]:
        """Events that later rows would have completed."""
        return self._mapper.held_back()

    def _rows(self, first: int) -> Iterator[Mapped]:
        for row, cells in self.file.rows(self.fields.read, first):
            try:
                yield Mapped(row, row + 1, self._mapped(self._record(cells, row), row))
            except BadRecord as error:
                yield Mapped(row, row + 1, None, error)

    def _groups(self, first: int) -> Iterator[Mapped]:
        """Consecutive rows of the same list, session and query are one list, whose other fields are the first row's."""
        ended: set[bytes] = set()
        group: list[Record] = []
        begin, key = first, None
        for row, cells in self.file.rows(self.fields.read, first):
            try:
                record = self._record(cells, row)
            except BadRecord as error:
                if group:
                    yield self._group(group, begin, ended)
                yield Mapped(row, row + 1, None, error)
                group = []
                continue
            found = [get(record) for get in self._keys]
            if group and (found != key or all(one is None for one in found)):
                yield self._group(group, begin, ended)
                group = []
            if not group:
                begin, key = row, found
            group.append(record)
        if group:
            yield self._group(group, begin, ended)

    def _group(self, group: list[Record], begin: int, ended: set[bytes]) -> Mapped:
        def mapped(rows: int) -> Sequence[Loaded] | None:
            return self._mapped({**group[0], IMPRESSIONS: group[:rows]}, begin)

        def fails(rows: int) -> bool:
            try:
                mapped(rows)
            except BadRecord:
                return True
            return False

        try:
            self._check_new(group[0], ended)
            return Mapped(begin, begin + len(group), mapped(len(group)))
        except BadRecord as error:
            fault = error
        # The row that is wrong is the last one of the shortest beginning that is refused, if one is.
        last = bisect_left(range(1, len(group)), True, key=fails)
        try:
            mapped(last + 1)
            last = 0
        except BadRecord as error:
            fault = error
        return Mapped(begin + last, begin + len(group), None, fault)

    def _check_new(self, head: Record, ended: set[bytes]) -> None:
        """Refuse a list whose rows have ended before."""
        name = head.get(self._list_id or "")
        where = self.fields.named.get(self._list_id or "")
        if where is None or name is None:
            return
        digest = blake2b(str(name).encode(), digest_size=8).digest()
        if digest in ended:
            raise refused(
                where,
                f"list {name!r} continues after other rows, or with another session or query: sort the file by list",
            )
        ended.add(digest)

    def _mapped(self, record: Record, row: int) -> Sequence[Loaded] | None:
        if self._list_id is not None:
            record.setdefault(self._list_id, f"{self._name}-{row + 1}")
        self._parsed.value = record
        try:
            found = self._mapper.events(Message(self._name, 0, row, -1, None, self._value, (), row - 1))
        except Unchanged:
            return None
        for event in found or ():
            if self._space is not None:
                self._check_space(event.space)
        return found

    def _check_space(self, space: Any) -> None:
        if space != self._space:
            raise refused("space", f"{shown(space)}, and the load is for {self._space!r}")

    def _record(self, cells: Sequence[Any], row: int) -> Record:
        """The record of a row, without empty cells.

        Raises
        ------
        BadRecord : a cell is no list or no name, or the row names another space.
        """
        fields = self.fields
        record = {name: v for name, v in zip(fields.read, cells, strict=True) if v is not None and v != ""}
        if fields.spaced and "space" in record:
            self._check_space(record["space"])
        for name in fields.lists & record.keys():
            record[name] = _list(record[name], name)
        if not self.file.text_is_typed:
            for name in fields.named.keys() & record.keys():
                _check_cells(record[name], fields.named[name])
        for name, columns in fields.joined.items():
            if any(column in record for column in columns):
                where = fields.named[name]
                words = [name_of(record.get(column), where) for column in columns]
                if not self.file.text_is_typed:
                    _check_cells(words, where)
                record[name] = JOINT.join(words)
        for name, columns in fields.gathered.items():
            if any(column in record for column in columns):
                record[name] = _numbers([record.get(column) for column in columns])
        return record


def _list(value: Any, column: str) -> list[Any]:
    try:
        found = sequence(value)
    except ValueError as error:
        raise refused(f"column {column!r}", str(error)) from None
    return found if isinstance(found, list) else [found]


def _check_cells(value: Any, where: str) -> None:
    """Refuse text that a program has written for a number, in a file without types."""
    for one in value if type(value) is list else (value,):
        if type(one) is str and (fault := fault_of_cell(one)) is not None:
            raise refused(where, fault)


def _numbers(cells: Sequence[Any]) -> Any:
    """The numbers in cells, each a number, text that is one, or a list. Another text alone may be a whole vector."""
    found: list[Any] = []
    for cell in cells:
        if isinstance(cell, list):
            found += cell
            continue
        number = number_in(cell) if isinstance(cell, str) else cell
        if number is None and len(cells) == 1:
            return cell
        found.append(cell if number is None else number)
    return found


def open_events(
    name: str,
    kind: str,
    space: str,
    given: Mapping[str, str] | None = None,
    *,
    source: SourceSettings | None = None,
    first_position: int = 0,
) -> RecordSource[Any, Any]:
    """Open a file of result lists or relations.

    Parameters
    ----------
    kind : clicks or relations.
    given, source : as of `file_mapping`.

    Raises
    ------
    SettingsError : the fields do not fit together, or a preset is asked for: it joins the records of a topic.
    SourceError : the file or a row of it cannot be used.
    """
    if source is not None and source.preset:
        raise SettingsError(
            f"preset = {source.preset!r} joins the records of a topic; files of it can only be tried"
        )
    events = file_mapping(name, kind, space, given, source=source, first_position=first_position)
    file = events.file

    def read(first: int) -> Iterator[tuple[Sequence[Any], int]]:
        for found in events.each(first):
            if found.fault is not None:
                raise RowError(name, found.row, f": {found.fault.detail}") from found.fault
            yield found.events or (), found.end

    described = json.dumps({"reading": file.reading, **events.fields.shaping()}, sort_keys=True)
    identity = hashlib.sha256(f"{events.digest} {described}".encode()).hexdigest()
    with lines_of(file):
        if kind == "clicks":
            return RecordSource(name, identity, read, click_bytes, ClickRows, ClickTally(name))
        return RecordSource(name, identity, read, relation_bytes, RelationRows, RelationTally())


def file_mapping(
    name: str,
    kind: str,
    space: str | None,
    given: Mapping[str, str] | None = None,
    *,
    source: SourceSettings | None = None,
    first_position: int = 0,
) -> FileEvents:
    """The rows of a file and their mapping.

    Parameters
    ----------
    space : of the load; None takes the records of all spaces.
    given : field -> column, of which others are completed by their names; see `by_columns`.
    source : a section of the settings, whose fields are taken as they are.
    first_position : the number of the top rank in the file.

    Raises
    ------
    SettingsError : the fields do not fit together, or the source makes events of another kind.
    SourceError : the file cannot be opened, or a column is missing.
    """
    path = Path(name)
    file = open_cells(path)
    if source is None:
        fields = by_columns(file, kind, given or {}, space or "", first_position)
    elif (makes := source.kind or "clicks") == kind:
        fields = by_source(file, source)
    else:
        raise SettingsError(f"the source makes {makes}, not {kind}")
    return FileEvents(file, fields, space, file_digest(path))
