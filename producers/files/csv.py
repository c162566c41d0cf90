"""CSV files, streamed in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from kinstream.producers.files.numbers import Where
from kinstream.producers.files.selection import CsvFormat
from kinstream.streams.errors import SourceError

#: Bytes that are parsed at a time. A row has to fit.
BLOCK_BYTES: Final = 8 * 1024 * 1024


class CsvFile:
    """A CSV file in UTF-8. Values are read as text, so that an error can name its row and column.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    text_is_typed: Final = False

    def __init__(self, path: Path, form: CsvFormat) -> None:
        self._header = form.header
        tabs = path.name.lower().endswith((".tsv", ".tsv.gz"))
        self._delimiter = form.delimiter or ("\t" if tabs else ",")
        self.path: Final = path
        self.names: Final = self._names()
        self.usable: Final = self.names
        self.last: Final = None if form.header else self.names[-1]
        self.reading: Final = {"csv": 1, "delimiter": self._delimiter, "header": form.header}

    def _names(self) -> list[str]:
        """Names of all columns; without a header f0, f1, and so on."""
        reader = self._reader(csv.ConvertOptions(), 0)
        try:
            found: list[str] = reader.schema.names
        except UnicodeDecodeError as error:
            raise SourceError(f"{self.path}: the header is not valid UTF-8: {error.reason}") from error
        twice = sorted({name for name in found if found.count(name) > 1})
        if twice:
            raise SourceError(f"{self.path}: the header names {', '.join(map(repr, twice))} twice")
        return found

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
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
                raise self._error(error, bad, columns) from error
            if part.num_rows:
                yield part

    def _reader(self, convert: csv.ConvertOptions, first: int, bad: list[Any] | None = None) -> Any:
        found: list[Any] = [] if bad is None else bad

        def ragged(row: Any) -> str:
            found.append(row)
            return "error"

        try:
            return csv.open_csv(
                self.path,
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
            raise self._error(error, found, convert.include_columns or ()) from error
        except OSError as error:
            raise SourceError(f"{self.path}: {error}") from error

    def _no_text(self, columns: Sequence[str]) -> SourceError | None:
        """The error of the first value that is not UTF-8; None if all are. Reads the file once more."""
        raw = csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(columns, pa.binary()))
        row = 0
        for part in self._reader(raw, 0):
            for name, column in zip(part.schema.names, part.columns, strict=True):
                values = column.to_pylist()
                for at, value in enumerate(values):
                    try:
                        value.decode()
                    except UnicodeDecodeError as error:
                        return Where(str(self.path), name, row).error(
                            at, f"is not valid UTF-8: {error.reason}"
                        )
            row += part.num_rows
        return None

    def _error(self, error: pa.ArrowInvalid, bad: list[Any], columns: Sequence[str]) -> SourceError:
        if not bad and "UTF8" in str(error):
            return self._no_text(columns) or SourceError(f"{self.path}: {error}")
        if not bad:
            return SourceError(f"{self.path}: {error}")
        row = bad[0]
        # The parser also counts the header.
        at = "" if row.number is None else f"row {row.number - self._header}: "
        return SourceError(
            f"{self.path}: {at}{row.actual_columns} columns, but others have {row.expected_columns}"
        )
