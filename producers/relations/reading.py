"""Relations of CSV, Parquet and JSON lines: statements that two items are similar or dissimilar."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kinstream.producers.files.cells import CellFile, flag, is_missing, joined
from kinstream.producers.files.fields import Field, find_columns, require
from kinstream.producers.files.json_lines import open_cells
from kinstream.producers.files.numbers import Where
from kinstream.producers.files.selection import CsvFormat
from kinstream.producers.files.tables import file_digest, lines_of
from kinstream.producers.files.times import Times
from kinstream.producers.loads.record_rows import RecordSource
from kinstream.producers.relations.rows import UNKNOWN_TIME, RelationRows, relation_bytes
from kinstream.streams.records.values import Relation

FIELDS: Final = (
    Field("left", ("left",), joins=True),
    Field("right", ("right",), joins=True),
    Field("similar", ("similar", "sign")),
    Field("time", ("time", "time_ms", "timestamp")),
    Field("source", ("source",)),
)


def open_relations(
    name: str,
    columns: Mapping[str, Sequence[str]] | None = None,
    *,
    times: str = "auto",
    csv: CsvFormat | None = None,
) -> RecordSource[Relation, RelationRows]:
    """Open a file of relations: left, right, similar (true, 1, +1, or false, 0, -1), time and source.

    Parameters
    ----------
    columns : field of `FIELDS` -> its column; left and right may have several.
    times : form of the times, see `kinstream.producers.files.times`. Without a column it is the time of sending.

    Raises
    ------
    SettingsError : a field is not known.
    SourceError : the file cannot be used; names row and column.
    """
    path = Path(name)
    file = open_cells(path, csv)
    found = find_columns(name, file.names, FIELDS, columns or {})
    require(name, found, file.names, "left", "right", "similar")
    described = json.dumps({"reading": file.reading, "columns": found, "times": times}, sort_keys=True)
    identity = hashlib.sha256(f"{file_digest(path)} {described}".encode()).hexdigest()
    reader = _Reader(file, found, times)
    with lines_of(file):
        return RecordSource(name, identity, reader.read, relation_bytes, RelationRows, _Tally())


class _Reader:
    """Rows of a file as relations. Their space is that of the load."""

    def __init__(self, file: CellFile, found: Mapping[str, tuple[str, ...]], times: str) -> None:
        self._file = file
        self._place = str(file.path)
        self._found = found
        self._times = Times(times)

    def read(self, first: int) -> Iterator[tuple[Relation, int]]:
        found = self._found
        left, right = found["left"], found["right"]
        others = [found[name][0] for name in ("similar", "time", "source") if name in found]
        place = {name: number for number, name in enumerate(others, len(left) + len(right))}
        for row, cells in self._file.rows([*left, *right, *others], first):
            named = {n: cells[place[c[0]]] for n, c in found.items() if n not in ("left", "right")}
            names = cells[: len(left)], cells[len(left) : len(left) + len(right)]
            yield self._relation(row, *names, named), row + 1

    def _relation(
        self, row: int, left: Sequence[Any], right: Sequence[Any], named: Mapping[str, Any]
    ) -> Relation:
        columns = self._found
        one = self._name(left, "left", row)
        other = self._name(right, "right", row)
        if one == other:
            raise self._where("right").error(row, f"{one!r} is related to itself")
        time, source = UNKNOWN_TIME, named.get("source")
        if "time" in columns:
            time = self._times.milliseconds(named["time"], self._where("time"), row)
        stated_by = None if is_missing(source) else self._name([source], "source", row)
        similar = flag(named["similar"], self._where("similar"), row)
        return Relation("", one, other, similar, time, stated_by)

    def _name(self, values: Sequence[Any], field: str, row: int) -> str:
        return joined(values, self._found[field], self._place, row, typed=self._file.text_is_typed)

    def _where(self, field: str) -> Where:
        return Where(self._place, self._found[field][0])


class _Tally:
    modalities: Final = ()

    def __init__(self) -> None:
        self.facts = {"similar": 0, "dissimilar": 0}

    def add(self, record: Relation, row: int) -> None:
        self.facts["similar" if record.similar else "dissimilar"] += 1
