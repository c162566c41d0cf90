"""Parquet files, streamed in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from producers.columns import choose
from producers.numbers import is_list, is_number
from producers.sources import Selection
from producers.table_source import TableSource
from streams.errors import SourceError

BATCH_ROWS: Final = 8192


class ParquetSource(TableSource):
    """A Parquet file. A feature is a column of numbers, or of lists of numbers that are equally long.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    def __init__(self, path: Path, selection: Selection) -> None:
        self._path = path
        schema = self._file().schema_arrow
        usable = [f.name for f in schema if is_number(f.type) or is_list(f.type)]
        columns = choose(str(path), schema.names, selection, usable)
        super().__init__(path, columns, selection.label_type, text_is_typed=True, reading={"parquet": 1})

    def _file(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._path)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self._path}: {error}") from error

    def _open(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
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
                raise SourceError(f"{self._path}: {error}") from error
            if part is None:
                return
            left = part.slice(skip)
            skip = max(0, skip - part.num_rows)
            if left.num_rows:
                yield left.select(list(columns))
