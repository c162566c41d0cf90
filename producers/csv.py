"""CSV files, streamed in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from producers.columns import choose
from producers.sources import CsvFormat, Selection
from producers.table_source import TableSource
from streams.errors import SourceError

#: Bytes that are parsed at a time. A row has to fit.
BLOCK_BYTES: Final = 8 * 1024 * 1024


class CsvSource(TableSource):
    """A CSV file in UTF-8. Values are read as text first, so that an error can name its row and column.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    def __init__(self, path: Path, selection: Selection, form: CsvFormat) -> None:
        self._header = form.header
        self._delimiter = form.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
        self._path = path
        found = self._names()
        last = None if form.header else found[-1]
        columns = choose(str(path), found, selection, found, last)
        reading = {"csv": 1, "delimiter": self._delimiter, "header": form.header}
        super().__init__(path, columns, selection.label_type, text_is_typed=False, reading=reading)

    def _names(self) -> list[str]:
        """Names of all columns; without a header f0, f1, and so on."""
        reader = self._reader(csv.ConvertOptions(), 0)
        found: list[str] = reader.schema.names
        twice = sorted({name for name in found if found.count(name) > 1})
        if twice:
            raise SourceError(f"{self._path}: the header names {', '.join(map(repr, twice))} twice")
        return found

    def _open(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        text = csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=False,
        )
        bad: list[Any] = []
        reader = self._reader(text, first, bad)
        while True:
            try:
                part = reader.read_next_batch()
            except StopIteration:
                return
            except pa.ArrowInvalid as error:
                raise self._error(error, bad, first) from error
            if part.num_rows:
                yield part

    def _reader(self, convert: csv.ConvertOptions, first: int, bad: list[Any] | None = None) -> Any:
        found: list[Any] = [] if bad is None else bad

        def ragged(row: Any) -> str:
            found.append(row)
            return "error"

        try:
            return csv.open_csv(
                self._path,
                # Only the single-threaded reader knows the number of a bad row.
                read_options=csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    autogenerate_column_names=not self._header,
                    **({"skip_rows_after_names": first} if first else {}),
                ),
                parse_options=csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=ragged
                ),
                convert_options=convert,
            )
        except pa.ArrowInvalid as error:
            raise self._error(error, found, first) from error
        except OSError as error:
            raise SourceError(f"{self._path}: {error}") from error

    def _error(self, error: pa.ArrowInvalid, bad: list[Any], first: int) -> SourceError:
        if not bad:
            return SourceError(f"{self._path}: {error}")
        row = bad[0]
        # The parser counts the header too.
        at = "" if row.number is None else f"row {row.number - self._header}: "
        return SourceError(
            f"{self._path}: {at}{row.actual_columns} columns where others have {row.expected_columns}"
        )
