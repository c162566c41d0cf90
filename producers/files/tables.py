"""Files of columns, opened by name: CSV, Parquet and NPZ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from kinstream.producers.files.numbers import RowError
from kinstream.streams.errors import SourceError

CSV_ENDINGS: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ENDINGS: Final = (*CSV_ENDINGS, ".parquet", ".npz")


class TableFile(Protocol):
    """Columns of equal length that are read in batches, from any row on."""

    @property
    def path(self) -> Path:
        """Its path."""

    @property
    def names(self) -> Sequence[str]:
        """All columns."""

    @property
    def usable(self) -> Sequence[str]:
        """The default features."""

    @property
    def indexes(self) -> Sequence[str]:
        """The columns that the file declares as an index."""

    @property
    def text_is_typed(self) -> bool:
        """Whether text is a real type in such a file, or the only type that it can hold."""

    @property
    def reading(self) -> dict[str, Any]:
        """Everything besides the bytes that the rows depend on, for an identity."""

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        """Those columns from row `first` on, raising SourceError."""

    def line(self, row: int) -> int | None:
        """The line of the file at which a row begins; None if the row's number says it, or there are no lines."""


class _Lines(Protocol):
    def line(self, row: int) -> int | None: ...


@contextmanager
def lines_of(file: _Lines) -> Iterator[None]:
    """Add the line of the file to the error of a row, where its number does not say it."""
    try:
        yield
    except RowError as error:
        line = file.line(error.row)
        if line is None:
            raise
        raise RowError(error.place, error.row, error.fault, line) from error


def open_table(name: str, *others: str) -> TableFile:
    """Open a .csv, .tsv (each also with .gz), .parquet or .npz file.

    Parameters
    ----------
    others : other possible forms, for the message.

    Raises
    ------
    SourceError : it does not exist, has an unknown kind, or cannot be read.
    """
    path = Path(name)
    kind = ending(path, ENDINGS)
    if kind is None:
        more = f" nor one of {', '.join(others)}" if others else ""
        neither = "neither " if others else "not "
        raise SourceError(f"{name}: {neither}a file that ends in {either(ENDINGS)}{more}")
    existing(path)
    if kind == ".npz":
        from kinstream.producers.files.npz import NpzFile

        return NpzFile(path)
    if kind == ".parquet":
        from kinstream.producers.files.parquet import ParquetFile

        return ParquetFile(path)
    from kinstream.producers.files.csv import CsvFile

    return CsvFile(path)


def ending(path: Path, endings: Sequence[str]) -> str | None:
    """The ending of the file's name, among these."""
    name = path.name.lower()
    return next((known for known in sorted(endings, key=len, reverse=True) if name.endswith(known)), None)


def existing(path: Path) -> Path:
    """The path of an existing file.

    Raises
    ------
    SourceError : there is no such file.
    """
    if not path.is_file():
        raise SourceError(f"{path}: there is no such file")
    return path


def file_digest(path: Path) -> str:
    """The sha256 of a file.

    Raises
    ------
    SourceError : it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error


def either(words: Sequence[str]) -> str:
    """Words joined with commas and "or"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"
