"""Parquet files, streamed in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from producers.numbers import is_list, is_number
from streams.errors import SourceError

BATCH_ROWS: Final = 8192


class ParquetFile:
    """A Parquet file. A feature is a column of numbers, or of lists of numbers that are equally long.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    last: Final = None
    text_is_typed: Final = True

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        schema = self._file().schema_arrow
        self.names: Final[list[str]] = schema.names
        self.usable: Final = [f.name for f in schema if is_number(f.type) or is_list(f.type)]
        self.reading: Final[dict[str, Any]] = {"parquet": 1}

    def _file(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.path}: {error}") from error

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        file = self._file()
        groups: list[int] = []
        skip = first
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if not groups and skip >= rows:
                skip -= rows
            else:
                groups.append(group)
        parts = file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=list(columns))
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
                yield left.select(list(columns))
