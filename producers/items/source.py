"""A catalogue of CSV, Parquet or NPZ: names, features, categories, and rows that delete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinstream.producers.files.bookkeeping import bookkeeping
from kinstream.producers.files.cells import JOINT, flag
from kinstream.producers.files.columns import matching, no_features
from kinstream.producers.files.numbers import RowError, Where, numbers
from kinstream.producers.files.selection import CsvFormat
from kinstream.producers.files.tables import TableFile, file_digest, lines_of, open_table
from kinstream.producers.files.text import names, timely
from kinstream.producers.files.times import Times
from kinstream.producers.items.categories import Category, OneHot, category_values
from kinstream.producers.items.rows import ItemRows
from kinstream.producers.loads.record_rows import RecordLayout
from kinstream.streams.errors import SourceError
from kinstream.streams.records.checks import MAX_DIMENSION, MAX_STRING_LENGTH
from kinstream.streams.records.values import DEFAULT_MODALITY, Table

ID_NAMES: Final = ("id", "ids", "item", "item_id")


@dataclass(frozen=True, slots=True)
class ItemColumns:
    """The roles of the columns of a catalogue.

    Parameters
    ----------
    ids : columns of an item's name, joined by "/"; None for a column named id, ids, item or item_id.
    features : modality -> columns of numbers, which may hold * and ?; None for all remaining ones.
    categories : modality -> categories, whose features follow the numbers.
    deleted : column whose true rows are tombstones, or None.
    time : column of the time of a row, or None for the time of sending.
    times : form of the times, see `kinstream.producers.files.times`.
    """

    ids: tuple[str, ...] | None = None
    features: Mapping[str, Sequence[str]] | None = None
    categories: Mapping[str, Sequence[Category]] = field(default_factory=dict)
    deleted: str | None = None
    time: str | None = None
    times: str = "auto"


class ItemSource:
    """A catalogue as a source. Its constructor reads and checks the whole file once.

    This gives the vocabulary of one-hot categories: all values of the file.

    Raises
    ------
    SourceError : a row cannot be used, a column is missing, or an item has no features.
    """

    def __init__(self, file: TableFile, columns: ItemColumns) -> None:
        self._file = file
        self._place = str(file.path)
        self._columns = columns
        self._times = Times(columns.times)
        self._ids = columns.ids or (self._guessed_id(),)
        self._left_out: tuple[str, ...] = ()
        self._features, self._categories = self._modalities()
        named = [*self._ids, *filter(None, (columns.deleted, columns.time))]
        for name in named:
            matching(self._place, file.names, [name])
        numbers = [name for found in self._features.values() for name in found]
        listed = [category.column for found in self._categories.values() for category in found]
        self._read = list(dict.fromkeys([*named, *numbers, *listed]))
        self._widths: dict[str, int] = {}
        rows = deleted = 0
        self._longest = (0, 0)
        with lines_of(file):
            for part in file.parts(self._read, 0):
                found = self._rows(part, rows, learn=True)
                names = found.sizes()
                longest = int(names.argmax())
                self._longest = max(self._longest, (int(names[longest]), rows + longest))
                rows += len(found)
                deleted += int(found.deleted.sum())
        if not rows:
            raise SourceError(f"{self._place}: there are no rows")
        sizes = self._sizes() if deleted < rows else ()
        self.layout = RecordLayout(sizes, rows)
        self.facts: dict[str, Any] = {"items": rows - deleted, "tombstones": deleted} | (
            {"features": dict(sizes)} if sizes else {}
        )
        if self._left_out:
            self.facts["left_out"] = list(self._left_out)
        hot = [c for found in self._categories.values() for c in found if isinstance(c, OneHot)]
        if hot:
            self.facts["vocabulary"] = {category.column: category.vocabulary for category in hot}
        self.identity = self._digest(hot)
        self._row = 0
        self._parts: Iterator[pa.RecordBatch] | None = None

    def _guessed_id(self) -> str:
        likely = [name for name in self._file.names if name.strip().lower() in ID_NAMES]
        if len(likely) == 1:
            return likely[0]
        found = "no column is" if not likely else f"several columns are ({', '.join(likely)})"
        raise SourceError(
            f"{self._place}: {found} called one of {', '.join(ID_NAMES)}; choose the column with --ids for the "
            f"item name: {', '.join(self._file.names)}"
        )

    def _modalities(self) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[Category, ...]]]:
        """Columns of numbers and categories of each modality, in the order of the options."""
        wanted, place = self._columns, self._place
        categories = {name: tuple(found) for name, found in wanted.categories.items()}
        listed = {category.column for found in categories.values() for category in found}
        matching(place, self._file.names, sorted(listed))
        if wanted.features is not None:
            features = {m: matching(place, self._file.names, names) for m, names in wanted.features.items()}
        else:
            taken = {*self._ids, *listed, wanted.deleted, wanted.time}
            self._left_out = tuple(name for name in bookkeeping(self._file) if name not in taken)
            rest = tuple(name for name in self._file.usable if name not in {*taken, *self._left_out})
            features = {DEFAULT_MODALITY: rest} if rest else {}
        order = list(dict.fromkeys([*features, *categories]))
        if not order:
            raise no_features(place, self._file.names, self._left_out)
        return {m: features.get(m, ()) for m in order}, {m: categories.get(m, ()) for m in order}

    def _sizes(self) -> tuple[tuple[str, int], ...]:
        sizes = []
        for modality in self._features:
            width = self._widths.get(modality, 0) + sum(c.width for c in self._categories[modality])
            if not 1 <= width <= MAX_DIMENSION:
                raise SourceError(
                    f"{self._place}: {modality!r} has {width} features; possible are 1 to {MAX_DIMENSION}"
                )
            sizes.append((modality, width))
        return tuple(sizes)

    def _digest(self, hot: Sequence[OneHot]) -> str:
        wanted = self._columns
        described = {
            "reading": self._file.reading,
            "ids": self._ids,
            "features": self._features,
            "categories": {m: [c.described for c in found] for m, found in self._categories.items()},
            "vocabulary": [category.vocabulary for category in hot],
            "deleted": wanted.deleted,
            "time": [wanted.time, wanted.times],
        }
        text = f"{file_digest(self._file.path)} {json.dumps(described, sort_keys=True)}"
        return hashlib.sha256(text.encode()).hexdigest()

    def check_fits(self, room: int) -> None:
        """Refuse a catalogue with an item of more than `room` bytes."""
        size, row = self._longest
        needed = size + 4 * sum(width for _, width in self.layout.modalities)
        if needed > room:
            raise SourceError(
                f"{self._place}: row {row + 1}: an item of {needed} bytes does not fit into a block of {room}: "
                "leave out some features"
            )

    def snapshot(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        self._row = position
        self._parts = None

    def next_batch(self) -> ItemRows | None:
        if self._parts is None:
            self._parts = self._file.parts(self._read, self._row)
        part = next(self._parts, None)
        if part is None:
            return None
        rows = self._rows(part, self._row, learn=False)
        self._row += part.num_rows
        return rows

    def _rows(self, part: pa.RecordBatch, first: int, *, learn: bool) -> ItemRows:
        deleted = self._deleted(part, first)
        kept = np.flatnonzero(~deleted)
        tables: tuple[Table, ...] = ()
        if learn:
            self._learn(part, first, kept)
        else:
            tables = tuple(
                Table(name, self._vectors(part, first, name, width, kept))
                for name, width in self.layout.modalities
            )
        return ItemRows(self._names(part, first), tables, deleted, self._time(part, first))

    def _learn(self, part: pa.RecordBatch, first: int, kept: NDArray[np.intp]) -> None:
        if not len(kept):
            return
        for modality, columns in self._features.items():
            width = sum(vectors.shape[1] for vectors in self._numbers(part, first, columns, kept))
            wanted = self._widths.setdefault(modality, width)
            if width != wanted:
                fault = f": {modality!r} has {width} numbers, but others have {wanted}"
                raise RowError(self._place, first + int(kept[0]), fault)
            for category in self._categories[modality]:
                category.learn(
                    self._category(part, first, category.column, kept), self._where(category.column, first)
                )

    def _vectors(
        self, part: pa.RecordBatch, first: int, modality: str, width: int, kept: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        found = np.zeros((part.num_rows, width), np.float32)
        if len(kept):
            tables = self._numbers(part, first, self._features[modality], kept)
            tables += [
                category.vectors(self._category(part, first, category.column, kept))
                for category in self._categories[modality]
            ]
            np.concatenate(tables, axis=1, out=found)
        return found

    def _numbers(
        self, part: pa.RecordBatch, first: int, columns: Sequence[str], kept: NDArray[np.intp]
    ) -> list[NDArray[np.float32]]:
        """The numbers of all rows. A deleted row may hold anything; it gets the numbers of the next row that is not
        deleted."""
        if len(kept) == part.num_rows:
            return [numbers(part.column(name), self._where(name, first)) for name in columns]
        lent = kept[np.minimum(np.searchsorted(kept, np.arange(part.num_rows)), len(kept) - 1)]
        return [numbers(part.column(name).take(pa.array(lent)), self._where(name, first)) for name in columns]

    def _category(self, part: pa.RecordBatch, first: int, column: str, kept: NDArray[np.intp]) -> list[str]:
        values = category_values(
            part.column(column), self._where(column, first), typed=self._file.text_is_typed
        )
        is_kept = np.zeros(part.num_rows, np.bool_)
        is_kept[kept] = True
        return [value if keep else "" for value, keep in zip(values, is_kept, strict=True)]

    def _names(self, part: pa.RecordBatch, first: int) -> tuple[str, ...]:
        parts = [
            names(part.column(name), self._where(name, first), typed=self._file.text_is_typed)
            for name in self._ids
        ]
        if len(parts) == 1:
            return parts[0]
        found = tuple(JOINT.join(words) for words in zip(*parts, strict=True))
        for row, name in enumerate(found):
            if len(name) > MAX_STRING_LENGTH:
                raise self._where(self._ids[0], first).error(
                    row, f"the name is longer than {MAX_STRING_LENGTH} characters"
                )
        return found

    def _deleted(self, part: pa.RecordBatch, first: int) -> NDArray[np.bool_]:
        column = self._columns.deleted
        if column is None:
            return np.zeros(part.num_rows, np.bool_)
        where = self._where(column, first)
        values = part.column(column).to_pylist()
        return np.array(
            [value not in (None, "") and flag(value, where, row) for row, value in enumerate(values)],
            np.bool_,
        )

    def _time(self, part: pa.RecordBatch, first: int) -> NDArray[np.int64] | None:
        column = self._columns.time
        if column is None:
            return None
        where = self._where(column, first)
        values = timely(part.column(column)).to_pylist()
        return np.array(
            [self._times.milliseconds(value, where, row) for row, value in enumerate(values)], np.int64
        )

    def _where(self, column: str, first: int) -> Where:
        return Where(self._place, column, first)


def open_items(name: str, columns: ItemColumns, csv: CsvFormat | None = None) -> ItemSource:
    """Open a catalogue.

    Raises
    ------
    SourceError : the file cannot be used; names row and column.
    """
    return ItemSource(open_table(name, csv or CsvFormat()), columns)
