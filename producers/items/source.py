"""A catalogue of CSV, Parquet or NPZ: names, features, categories, and rows that delete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinstream.producers.files.bookkeeping import bookkeeping
from kinstream.producers.files.cells import JOINT
from kinstream.producers.files.columns import matching, no_features
from kinstream.producers.files.numbers import RowError, Where, numbers
from kinstream.producers.files.tables import TableFile, file_digest, lines_of, open_table
from kinstream.producers.files.text import names, timely
from kinstream.producers.items.categories import Category, OneHot, category_values
from kinstream.producers.loads.item_rows import ItemRows
from kinstream.producers.loads.record_rows import RecordLayout
from kinstream.producers.sources.file_fields import check_fields, columns_of, needed
from kinstream.producers.sources.values.convert import set_flag, time_ms
from kinstream.streams.errors import BadRecord, SettingsError, SourceError
from kinstream.streams.records.checks import MAX_DIMENSION, MAX_STRING_LENGTH
from kinstream.streams.records.values import DEFAULT_MODALITY, Table


class ItemSource:
    """A catalogue as a source. Its constructor reads and checks the whole file once.

    This gives the vocabulary of one-hot categories: all values of the file.

    Parameters
    ----------
    given : the fields of items -> their columns, COL,COL: `id`, whose columns are joined by "/"; `vector`, or
        `vector.MODALITY`, columns of numbers, which may hold * and ?, by default all remaining ones; `deleted`, whose
        true rows are tombstones; `time`, by default that of sending.
    categories : modality -> categories, whose features follow the numbers.
    faults : takes the errors of rows that cannot be used, which are left out; None raises the first.

    Raises
    ------
    SettingsError : a field is not known, or takes one column only.
    SourceError : a row cannot be used, a column is missing, or an item has no features.
    """

    def __init__(
        self,
        file: TableFile,
        given: Mapping[str, str] | None = None,
        categories: Mapping[str, Sequence[Category]] | None = None,
        faults: list[RowError] | None = None,
    ) -> None:
        self._file = file
        self._place = str(file.path)
        self._given = given or {}
        self._faults = faults
        check_fields("items", self._given)
        self._ids = self._columns("id") or (needed(self._place, file.names, "items", "id"),)
        self._deleted_by, self._timed_by = self._column("deleted"), self._column("time")
        self._left_out: tuple[str, ...] = ()
        self._features, self._categories = self._modalities(categories or {})
        named = [*self._ids, *filter(None, (self._deleted_by, self._timed_by))]
        numbers = [name for found in self._features.values() for name in found]
        listed = [category.column for found in self._categories.values() for category in found]
        self._read = list(dict.fromkeys([*named, *numbers, *listed]))
        self._widths: dict[str, int] = {}
        rows = deleted = 0
        self._longest = (0, 0)
        with lines_of(file):
            for part in file.parts(self._read, 0):
                for begin, found in self._good(part, rows):
                    names = found.sizes()
                    longest = int(names.argmax())
                    self._longest = max(self._longest, (int(names[longest]), begin + longest))
                    deleted += int(found.deleted.sum())
                rows += part.num_rows
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

    def _columns(self, name: str) -> tuple[str, ...]:
        """The columns that the user gives to a field."""
        if name not in self._given:
            return ()
        return columns_of(self._place, self._file.names, self._given[name])

    def _column(self, name: str) -> str | None:
        """The one column that the user gives to a field."""
        found = self._columns(name)
        if len(found) > 1:
            raise SettingsError(f"--field: {name} takes one column, not {', '.join(found)}")
        return found[0] if found else None

    def _modalities(
        self, wanted: Mapping[str, Sequence[Category]]
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[Category, ...]]]:
        """Columns of numbers and categories of each modality, in the order of the options."""
        place = self._place
        categories = {name: tuple(found) for name, found in wanted.items()}
        listed = {category.column for found in categories.values() for category in found}
        matching(place, self._file.names, sorted(listed))
        features = {
            name.partition(".")[2] or DEFAULT_MODALITY: columns_of(place, self._file.names, text)
            for name, text in self._given.items()
            if name.partition(".")[0] == "vector"
        }
        if not features:
            taken = {*self._ids, *listed, self._deleted_by, self._timed_by}
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
        described = {
            "reading": self._file.reading,
            "ids": self._ids,
            "features": self._features,
            "categories": {m: [c.described for c in found] for m, found in self._categories.items()},
            "vocabulary": [category.vocabulary for category in hot],
            "deleted": self._deleted_by,
            "time": self._timed_by,
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
        rows = self._rows(self._without_faults(part, self._row), self._row, learn=False)
        self._row += part.num_rows
        return rows

    def _good(self, part: pa.RecordBatch, first: int) -> Iterator[tuple[int, ItemRows]]:
        """The rows of a part, and the number of the first; without those that are wrong, if these are taken."""
        try:
            yield first, self._rows(part, first, learn=True)
        except RowError as error:
            if self._faults is None:
                raise
            wrong = error.row - first
            if wrong:
                yield from self._good(part.slice(0, wrong), first)
            self._faults.append(error)
            if wrong + 1 < part.num_rows:
                yield from self._good(part.slice(wrong + 1), error.row + 1)

    def _without_faults(self, part: pa.RecordBatch, first: int) -> pa.RecordBatch:
        wrong = {error.row - first for error in self._faults or ()}
        if not wrong:
            return part
        return part.filter(pa.array([row not in wrong for row in range(part.num_rows)]))

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
        if self._deleted_by is None:
            return np.zeros(part.num_rows, np.bool_)
        return np.array(self._values(part, first, "deleted", self._deleted_by, set_flag), np.bool_)

    def _time(self, part: pa.RecordBatch, first: int) -> NDArray[np.int64] | None:
        if self._timed_by is None:
            return None
        return np.array(self._values(part, first, "time", self._timed_by, time_ms), np.int64)

    def _values(
        self, part: pa.RecordBatch, first: int, name: str, column: str, read: Callable[[Any, str], Any]
    ) -> list[Any]:
        """The values of a field, as sources read them."""
        found = []
        for row, value in enumerate(timely(part.column(column)).to_pylist()):
            try:
                found.append(read(None if value == "" else value, f"{name} ({column})"))
            except BadRecord as error:
                raise RowError(self._place, first + row, f": {error.detail}") from None
        return found

    def _where(self, column: str, first: int) -> Where:
        return Where(self._place, column, first)


def open_items(
    name: str,
    given: Mapping[str, str] | None = None,
    categories: Mapping[str, Sequence[Category]] | None = None,
    faults: list[RowError] | None = None,
) -> ItemSource:
    """Open a catalogue. The parameters are those of `ItemSource`.

    Raises
    ------
    SettingsError : a field is not known, or takes one column only.
    SourceError : the file cannot be used; names row and column.
    """
    return ItemSource(open_table(name), given, categories, faults)
