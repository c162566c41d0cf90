"""Parquet files, streamed in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kinstream.producers.files.columns import refuse_twice
from kinstream.producers.files.numbers import is_list, is_number
from kinstream.producers.files.text import check_columns
from kinstream.streams.compute.memory import ask
from kinstream.streams.errors import SourceError

BATCH_ROWS: Final = 8192
#: Values of all columns that are read at once, if a row has fewer.
_BATCH_VALUES: Final = 2**24
#: Largest size of the columns read from one row group, by the file's metadata.
MAX_GROUP_BYTES: Final = 4 * 2**30


class ParquetFile:
    """A Parquet file. A feature is a column of numbers, or of lists of numbers of equal length.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    text_is_typed: Final = True

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        schema = self._file().schema_arrow
        self.names: Final[list[str]] = schema.names
        refuse_twice(path, self.names)
        self.usable: Final = [f.name for f in schema if is_number(f.type) or is_list(f.type)]
        self.indexes: Final = _indexes(schema)
        self.reading: Final[dict[str, Any]] = {"parquet": 1}

    def _file(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.path}: {error}") from error

    def line(self, row: int) -> int | None:
        return None

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        file = self._file()
        groups: list[int] = []
        skip = first
        wanted = frozenset(columns)
        for group in range(file.num_row_groups):
            self._check_size(file.metadata.row_group(group), wanted, group)
            rows = file.metadata.row_group(group).num_rows
            if not groups and skip >= rows:
                skip -= rows
            else:
                groups.append(group)
        row = first
        rows = max(1, min(BATCH_ROWS, _BATCH_VALUES // max(1, len(columns))))
        parts = file.iter_batches(batch_size=rows, row_groups=groups, columns=list(columns))
        while True:
            try:
                part = next(parts, None)
            except (pa.ArrowException, OSError) as error:
                raise SourceError(f"{self.path}: {error}") from error
            if part is None:
                return
            left = part.slice(skip)
            skip = max(0, skip - part.num_rows)
            if left.num_rows:
                yield check_columns(left.select(list(columns)), str(self.path), row)
                row += left.num_rows

    def _check_size(self, group: Any, columns: frozenset[str], number: int) -> None:
        size = 0
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema.split(".")[0] in columns:
                # Repeated values take almost no space in the file, but 8 bytes each in memory.
                size += max(column.total_uncompressed_size, 8 * column.num_values)
        if size > MAX_GROUP_BYTES:
            raise SourceError(
                f"{self.path}: row group {number} takes {size / 2**30:.1f} GiB in memory; the limit is "
                f"{MAX_GROUP_BYTES // 2**30} GiB. Write the file with smaller row groups"
            )
        try:
            ask(size)
        except MemoryError as error:
            raise SourceError(f"{self.path}: row group {number}: {error}") from error


def _indexes(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that pandas declares as the index of its frame."""
    try:
        declared = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
        return tuple(name for name in declared if isinstance(name, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
