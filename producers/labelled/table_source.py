"""Labelled rows of CSV and Parquet: columns that are checked once, and then read in batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kinstream.producers.files.columns import Columns
from kinstream.producers.files.numbers import RowError, Where, numbers
from kinstream.producers.files.tables import TableFile, file_digest, lines_of
from kinstream.producers.files.text import names
from kinstream.producers.labelled.batch import Batch, LabelType, Layout, entries
from kinstream.producers.labelled.labels import LabelScan, check_rows, labels
from kinstream.streams.errors import SourceError
from kinstream.streams.records.checks import MAX_DIMENSION
from kinstream.streams.records.values import Table


class TableSource:
    """A file of columns as labelled rows.

    The constructor reads and checks the whole file once, before a load has sent a part of it. This gives the number of
    rows, the type of the labels, and the digest.

    Parameters
    ----------
    file : the source of the columns.
    columns : the columns to read.

    Raises
    ------
    SourceError : a row cannot be used.
    """

    def __init__(self, file: TableFile, columns: Columns) -> None:
        path = self._path = file.path
        self._file = file
        self._columns = columns
        scan = LabelScan(text_is_typed=file.text_is_typed)
        self._sizes: tuple[tuple[str, int], ...] = ()
        self._features: tuple[tuple[str, ...], ...] = ()
        with lines_of(file):
            for part in file.parts(columns.all(), 0):
                self._tables(part, scan.rows)
                self._ids(part, scan.rows)
                scan.add(part.column(columns.label), Where(str(path), columns.label, scan.rows))
        check_rows(scan, str(path))
        self._labels: LabelType = scan.kind
        self.layout = Layout(
            self._sizes, scan.kind, scan.rows, scan.classes, self._features, columns.left_out
        )
        described = {
            "reading": file.reading,
            "columns": [columns.features, columns.label, columns.ids],
            "labels": scan.kind,
        }
        digest = file_digest(path)
        self.identity = hashlib.sha256(
            f"{digest} {json.dumps(described, sort_keys=True)}".encode()
        ).hexdigest()
        self._row = 0
        self._parts: Iterator[pa.RecordBatch] | None = None

    def snapshot(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        self._row = position
        self._parts = None

    def next_batch(self) -> Batch | None:
        if self._parts is None:
            self._parts = self._file.parts(self._columns.all(), self._row)
        part = next(self._parts, None)
        if part is None:
            return None
        first = self._row
        where = Where(str(self._path), self._columns.label, first)
        found = labels(part.column(self._columns.label), self._labels, where)
        self._row += part.num_rows
        return Batch(self._tables(part, first), found, self._ids(part, first))

    def _tables(self, part: pa.RecordBatch, first: int) -> tuple[Table, ...]:
        place = str(self._path)
        tables, features = [], []
        for modality, columns in self._columns.features:
            read = [numbers(part.column(name), Where(place, name, first)) for name in columns]
            features.append(
                tuple(f for name, one in zip(columns, read, strict=True) for f in entries(name, one.shape[1]))
            )
            tables.append(Table(modality, np.ascontiguousarray(np.concatenate(read, axis=1))))
        sizes = tuple((t.name, t.vectors.shape[1]) for t in tables)
        self._sizes, self._features = self._sizes or sizes, self._features or tuple(features)
        for (name, size), (_, wanted) in zip(sizes, self._sizes, strict=True):
            if size != wanted:
                raise RowError(place, first, f": {name!r} has {size} features, but others have {wanted}")
            if size > MAX_DIMENSION:
                raise SourceError(f"{place}: {name!r} has {size} features; the limit is {MAX_DIMENSION}")
        return tuple(tables)

    def _ids(self, part: pa.RecordBatch, first: int) -> tuple[str, ...] | None:
        name = self._columns.ids
        if name is None:
            return None
        where = Where(str(self._path), name, first)
        return names(part.column(name), where, typed=self._file.text_is_typed)
