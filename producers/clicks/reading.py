"""Result lists and their clicks, of JSON lines, CSV and Parquet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kinstream.producers.clicks.checks import ClickTally
from kinstream.producers.clicks.columns import IMPRESSION_FIELDS, LIST_FIELDS, ClickColumns
from kinstream.producers.clicks.impressions import ImpressionRows
from kinstream.producers.clicks.json_lists import JsonLists
from kinstream.producers.clicks.list_rows import ListRows
from kinstream.producers.clicks.rows import ClickRows, click_bytes
from kinstream.producers.files.cells import CellFile
from kinstream.producers.files.columns import matching
from kinstream.producers.files.fields import find_columns, require
from kinstream.producers.files.json_lines import JsonLines, open_cells
from kinstream.producers.files.selection import CsvFormat
from kinstream.producers.files.tables import file_digest, lines_of
from kinstream.producers.loads.record_rows import RecordSource
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Click

NAME_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class ClickReading:
    """Options for reading a file as result lists.

    Parameters
    ----------
    columns : field -> its columns. "items" makes each row a list, "item" each row an impression; without either,
        a column called items does the first.
    query_features : modality -> columns of the query's vector, which may hold * and ?.
    times : form of the times, see `kinstream.producers.files.times`.
    now : lists have the time of sending.
    first_position : the number of the top rank in the file.
    separator : separator of a list written as text, not as JSON.
    """

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    query_features: Mapping[str, Sequence[str]] = field(default_factory=dict)
    times: str = "auto"
    now: bool = False
    first_position: int = 0
    separator: str = "|"


class _Reader(Protocol):
    def read(self, first: int) -> Iterator[tuple[Click, int]]: ...


def open_clicks(
    name: str, space: str, reading: ClickReading = ClickReading(), csv: CsvFormat | None = None
) -> RecordSource[Click, ClickRows]:
    """Open a file of result lists.

    Parameters
    ----------
    space : of the load. A JSON line that names another is refused.

    Raises
    ------
    SettingsError : options cannot be combined.
    SourceError : the file cannot be used; names row and column.
    """
    path = Path(name)
    file = open_cells(path, csv)
    digest = file_digest(path)
    reader: _Reader
    if isinstance(file, JsonLines):
        if reading.columns or reading.query_features or reading.first_position:
            raise SettingsError(
                "JSON lines have the fields of docs/json-events.md; leave --column, --query-features and "
                "--first-position out"
            )
        described: dict[str, object] = {"space": space}
        reader = JsonLists(file, space, digest[:NAME_LENGTH], now=reading.now)
    else:
        columns = _columns(file, reading, digest[:NAME_LENGTH])
        described = {"columns": columns.found, "query": columns.query, "times": columns.times}
        described |= {"first": columns.first_position, "separator": columns.separator}
        in_lists = "items" in columns.found
        reader = ListRows(file, columns) if in_lists else ImpressionRows(file, columns)
    described |= {"reading": file.reading, "now": reading.now}
    identity = hashlib.sha256(f"{digest} {json.dumps(described, sort_keys=True)}".encode()).hexdigest()
    with lines_of(file):
        return RecordSource(name, identity, reader.read, click_bytes, ClickRows, ClickTally(name))


def _columns(file: CellFile, reading: ClickReading, name: str) -> ClickColumns:
    place, given = str(file.path), dict(reading.columns)
    in_lists = "items" in given or ("item" not in given and "items" in map(str.lower, file.names))
    if reading.now and (timed := [f for f in ("shown_at", "clicked_at") if f in given]):
        raise SettingsError(f"--shown-at now: the lists have no column {timed[0]}")
    fields = LIST_FIELDS if in_lists else IMPRESSION_FIELDS
    found = find_columns(place, file.names, fields, given)
    if reading.now:
        found = {
            field: columns for field, columns in found.items() if field not in ("shown_at", "clicked_at")
        }
    needed = ("items", "clicks") if in_lists else ("item", "clicked")
    require(place, found, file.names, *needed)
    if not reading.now and "shown_at" not in found:
        raise SettingsError(
            f"{place}: which column is the time? Use --column shown_at=COLUMN, or --shown-at now for the time of "
            f"sending; there are: {', '.join(file.names)}"
        )
    query = {m: matching(place, file.names, names) for m, names in reading.query_features.items()}
    return ClickColumns(
        found, query, reading.times, reading.now, reading.first_position, reading.separator, name
    )
