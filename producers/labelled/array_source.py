"""Rows in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinstream.producers.files.numbers import Where, as_float32
from kinstream.producers.files.text import check_array
from kinstream.producers.labelled.batch import Batch, Layout, entries
from kinstream.producers.labelled.labels import LabelScan, check_rows, labels
from kinstream.streams.errors import SourceError
from kinstream.streams.records.checks import MAX_DIMENSION
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.values import Table, Vectors

BATCH_ROWS: Final = 8192


class ArraySource:
    """Arrays as a source.

    Parameters
    ----------
    batch : all rows.
    layout, identity : see `kinstream.producers.labelled.batch.Source`.
    """

    def __init__(self, batch: Batch, layout: Layout, identity: str) -> None:
        self._batch = batch
        self.layout = layout
        self.identity = identity
        self._row = 0

    def snapshot(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        self._row = position

    def next_batch(self) -> Batch | None:
        if self._row >= len(self._batch):
            return None
        batch = self._batch[self._row : self._row + BATCH_ROWS]
        self._row += len(batch)
        return batch


def from_arrays(
    features: Mapping[str, NDArray[Any]],
    y: NDArray[Any],
    *,
    identity: str,
    ids: tuple[str, ...] | None = None,
    place: str = "arrays",
    label: str = "y",
    names: Mapping[str, Sequence[str]] | None = None,
) -> ArraySource:
    """A source of arrays.

    Parameters
    ----------
    features : modality -> (n, ...) numbers; the axes after the first become one vector.
    y : (n,) whole numbers or text.
    place, label : for messages.
    names : modality -> the names of its features; by default its name with the place in the vector.

    Raises
    ------
    SourceError : shapes do not match, or a value cannot be used.
    """
    if y.ndim != 1:
        raise SourceError(f"{place}: array {label!r} has shape {y.shape}; labels have one dimension")
    if y.dtype.kind not in "biufU":
        raise SourceError(f"{place}: array {label!r} holds {y.dtype}; labels are whole numbers or text")
    scan = LabelScan(text_is_typed=True)
    column = pa.array(check_array(y, Where(place, label)))
    scan.add(column, Where(place, label))
    check_rows(scan, place)
    tables = tuple(Table(name, _vectors(array, len(y), place, name)) for name, array in features.items())
    if ids is not None and len(ids) != len(y):
        raise SourceError(f"{place}: {len(ids)} ids for {len(y)} labels")
    sizes = tuple((t.name, t.vectors.shape[1]) for t in tables)
    given = names or {}
    named = tuple(tuple(given.get(name, entries(name, size))) for name, size in sizes)
    layout = Layout(sizes, scan.kind, scan.rows, scan.classes, named)
    return ArraySource(Batch(tables, labels(column, scan.kind, Where(place, label)), ids), layout, identity)


def _vectors(array: NDArray[Any], rows: int, place: str, name: str) -> Vectors:
    if array.dtype.kind not in "biuf":
        raise SourceError(f"{place}: array {name!r} holds {array.dtype}, not numbers")
    if array.ndim < 1 or len(array) != rows:
        raise SourceError(f"{place}: array {name!r} has shape {array.shape}, and there are {rows} labels")
    flat = array.reshape(rows, -1)
    width = flat.shape[1]
    if not 1 <= width <= MAX_DIMENSION:
        raise SourceError(f"{place}: array {name!r} has {width} features; possible are 1 to {MAX_DIMENSION}")
    small = narrowed(flat)
    finite = np.isfinite(small)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        as_float32(flat[row, column : column + 1], Where(place, f"{name}[{column}]", row))
    if (loss := lost(flat)) is not None:
        raise SourceError(f"{place}: {name}[{loss[0]}]: {loss[1]}")
    return np.ascontiguousarray(small)
