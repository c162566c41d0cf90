"""CSV files, streamed in batches."""

from __future__ import annotations

import csv as text_csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from kinstream.producers.files.columns import refuse_twice
from kinstream.producers.files.csv_rows import CsvRows
from kinstream.producers.files.numbers import RowError, Where
from kinstream.producers.files.text import refuse_other_text
from kinstream.streams.encodings import HEAD
from kinstream.streams.errors import SourceError

#: Bytes that are parsed at a time. A row has to fit.
BLOCK_BYTES: Final = 8 * 1024 * 1024
#: Columns of a file; the parser takes half a minute for 20,000.
MAX_COLUMNS: Final = 30_000


_QUOTED: Final = re.compile(rb'"[^"]*"')
#: The parser's words on a row whose text it cannot show.
_RAGGED: Final = re.compile(r"Row #([0-9]+): Expected ([0-9]+) columns, got ([0-9]+)")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the parser tells Python's hook off the screen: that it cannot show a bad row, before it fails."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


class CsvFile:
    """A CSV file in UTF-8. Values are read as text, so that an error can name its row and column.

    Blank lines, and lines of spaces, are no rows.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    text_is_typed: Final = False

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._delimiter = self._found_delimiter()
        self.names: Final = self._names()
        self.usable: Final = self.names
        self.indexes: Final = ()
        self.reading: Final = {"csv": 1, "delimiter": self._delimiter, "header": True}

    def _found_delimiter(self) -> str:
        """A tab for .tsv; else a comma, or another one if the first line has that and no comma outside of quotes."""
        try:
            with self._opened() as stream:
                head = stream.read(HEAD)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self.path}: {error}") from error
        refuse_other_text(self.path, head)
        if self.path.name.lower().endswith((".tsv", ".tsv.gz")):
            return "\t"
        first = _QUOTED.sub(b"", head).strip().partition(b"\n")[0]
        return next((one for one in ",;\t|" if one.encode() in first), ",")

    def _names(self) -> list[str]:
        """Names of all columns."""
        self._check_width()
        rows = self._rows()
        try:
            # A bad row is named once the rows are read.
            found: list[str] = self._reader(rows, csv.ConvertOptions(), None).schema.names
        except SourceError as error:
            if rows.fault is None:
                raise
            raise SourceError(f"{self.path}: the first row{rows.fault}") from error
        except UnicodeDecodeError as error:
            raise SourceError(f"{self.path}: the header is not valid UTF-8: {error.reason}") from error
        refuse_twice(self.path, found)
        return found

    def _check_width(self) -> None:
        """Refuse what the parser would take minutes or for ever to read: its time grows with the square of the columns.

        Raises
        ------
        SourceError : there are too many columns.
        """
        width = 0
        with suppress(OSError, EOFError, zlib.error, text_csv.Error), self._opened() as stream:
            start = io.StringIO(stream.read(BLOCK_BYTES).decode("utf-8-sig", "replace"), newline="")
            width = len(next(text_csv.reader(start, delimiter=self._delimiter), ()))
        if width > MAX_COLUMNS:
            raise SourceError(
                f"{self.path}: {width} columns; a CSV file may have {MAX_COLUMNS}. Write it as Parquet or .npz, with "
                "the vectors in one column"
            )

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        text = csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=False,
        )
        bad: list[RowError] = []
        rows = self._rows()
        reader = self._reader(rows, text, bad)
        # The rows before `first` are read as well: only what is read has the numbers that it was sent with.
        read = 0
        while True:
            try:
                with _quiet():
                    part = reader.read_next_batch()
            except StopIteration:
                if rows.fault is not None:
                    raise RowError(str(self.path), read, rows.fault) from None
                return
            except pa.ArrowInvalid as error:
                raise self._error(error, bad, columns) from error
            except (OSError, EOFError, zlib.error) as error:
                raise SourceError(f"{self.path}: {error}") from error
            left = part.slice(max(0, first - read))
            read += part.num_rows
            if left.num_rows:
                yield left

    def line(self, row: int) -> int | None:
        try:
            line = self._rows().line(row + 1, len(self.names), BLOCK_BYTES)
        except (OSError, EOFError, zlib.error):
            # The row's number is still right.
            return None
        return None if line == row + 2 else line

    def _rows(self) -> CsvRows:
        """The bytes of its rows.

        Raises
        ------
        SourceError : it cannot be opened.
        """
        try:
            return CsvRows(self._opened(), self._delimiter)
        except OSError as error:
            raise SourceError(f"{self.path}: {error}") from error

    def _opened(self) -> Any:
        return gzip.open(self.path) if self.path.name.lower().endswith(".gz") else self.path.open("rb")

    def _reader(self, rows: CsvRows, convert: csv.ConvertOptions, bad: list[RowError] | None) -> Any:
        """The parser. A row with too few or too many columns ends it, and is put into `bad`, unless that is None."""
        spaces = 0

        def ragged(row: Any) -> str:
            nonlocal spaces
            if bad is None or not row.text.strip():
                spaces += 1
                return "skip"
            # The parser counts the header and lines of spaces, and no blank ones.
            number = row.number - spaces - 2
            fault = f": {row.actual_columns} columns, but others have {row.expected_columns}"
            bad.append(RowError(str(self.path), number, fault))
            return "error"

        try:
            with _quiet():
                return csv.open_csv(
                    pa.PythonFile(rows, "r"),
                    # Only the single-threaded reader knows the number of a bad row.
                    read_options=csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                    parse_options=csv.ParseOptions(
                        delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=ragged
                    ),
                    convert_options=convert,
                )
        except pa.ArrowInvalid as error:
            raise self._error(error, bad or [], convert.include_columns or ()) from error
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self.path}: {error}") from error

    def _no_text(self, columns: Sequence[str]) -> SourceError | None:
        """The error of the first value that is not UTF-8; None if all are. Reads the file once more."""
        raw = csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(columns, pa.binary()))
        row = 0
        for part in self._reader(self._rows(), raw, None):
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

    def _error(self, error: pa.ArrowInvalid, bad: list[RowError], columns: Sequence[str]) -> SourceError:
        if not bad and "UTF8" in str(error):
            return self._no_text(columns) or SourceError(f"{self.path}: {error}")
        if bad:
            return bad[0]
        if (found := _RAGGED.search(str(error))) is not None:
            number, expected, actual = map(int, found.groups())
            fault = f": {actual} columns, but others have {expected}; it is not valid UTF-8"
            return RowError(str(self.path), number - 2, fault)
        return SourceError(f"{self.path}: {error}")
