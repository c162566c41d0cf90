"""Records with vectors or names in rows: samples, items, relations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from kinstream.producers.loads.blocks import MAX_BLOCK_BYTES
from kinstream.producers.sources.values.convert import (
    flag,
    label_of,
    name_of,
    optional_name,
    refused,
    set_flag,
    vector,
)
from kinstream.producers.sources.values.fields import Fields, MappedField
from kinstream.producers.sources.values.foreign_record import Incoming
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.foreign.names import shown
from kinstream.streams.records.values import ItemBlock, Loaded, Relation, SampleBlock, Table, Vectors

#: Bytes of an event beside its vectors, for each row.
_BESIDE: Final = 4_200


class Maker(Protocol):
    """Makes the events of one record, all of one space."""

    def __call__(self, record: Incoming) -> list[Loaded]:
        """Raises BadRecord if the record does not fit the fields, and Unchanged if a vector is not in it."""


class _Rows:
    """The rows of a record: one, or one for each element where a path has `[*]`.

    A path with `[*]` gives a value for each row; another one the same value for all.
    """

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        named = [
            f
            for name in ("id", "label", "left", "right", "similar", "source", "deleted")
            if (f := fields.find(name))
        ]
        self._many = [f for f in (*named, *(f for fs in fields.vectors.values() for f in fs)) if f.path.many]

    def number(self, record: Incoming) -> int:
        """How many rows.

        Raises
        ------
        BadRecord : a list is missing, or two lists differ in length.
        """
        count = None
        for field in self._many:
            found = record.at(field.path)
            if found is None:
                raise refused(field.where, "is missing, or no list")
            if count is not None and len(found) != count:
                raise refused(field.where, f"{len(found)} values, and {self._many[0].where} has {count}")
            count = len(found)
        if count == 0:
            raise BadRecord(Reason.EMPTY, f"{self._many[0].where}: the list is empty")
        return 1 if count is None else count

    def values(
        self, record: Incoming, field: MappedField, rows: int, read: Callable[[Any, str], Any]
    ) -> list[Any]:
        """The value of a field for each row."""
        found = record.at(field.path)
        if not field.path.many:
            return [read(found, field.where)] * rows
        where = field.where
        return [read(one, f"{where} [{row}]" if rows > 1 else where) for row, one in enumerate(found)]

    def _vector(self, value: Any, where: str) -> Vectors:
        return vector(self.fields.changed(value), where)

    def tables(self, record: Incoming, rows: int) -> tuple[Table, ...]:
        """One table for each modality."""
        made = []
        for field in self.fields.vectors["vector"]:
            vectors = self.values(record, field, rows, self._vector)
            sizes = sorted({len(one) for one in vectors})
            if len(sizes) > 1:
                raise refused(field.where, f"vectors of {sizes[0]} and of {sizes[-1]} numbers in one record")
            made.append(Table(field.name, np.stack(vectors)))
        return tuple(made)


def _cut(tables: tuple[Table, ...], rows: int) -> list[slice]:
    """Parts of the rows whose events stay below the limit of a block."""
    width = _BESIDE + sum(4 * int(table.vectors.shape[1]) for table in tables)
    size = max(1, MAX_BLOCK_BYTES // width)
    return [slice(at, at + size) for at in range(0, rows, size)]


class Samples:
    """Labelled vectors. Labels are whole numbers or text, within a record all of one type."""

    def __init__(self, fields: Fields) -> None:
        self._rows = _Rows(fields)
        self._fields = fields

    def __call__(self, record: Incoming) -> list[Loaded]:
        rows, fields = self._rows, self._fields
        count = rows.number(record)
        space, time = fields.space(record), fields.time(record)
        tables = rows.tables(record, count)
        raw = rows.values(record, fields["label"], count, label_of)
        labels: Any = tuple(raw)
        if all(type(label) is int for label in raw):
            labels = np.array(raw, np.int64)
        elif any(type(label) is int for label in raw):
            raise refused(fields["label"].where, "whole numbers and text in one record")
        ids = tuple(rows.values(record, fields["id"], count, name_of)) if "id" in fields else None
        return [
            SampleBlock(
                space,
                tuple(Table(t.name, t.vectors[part]) for t in tables),
                labels[part],
                time,
                None if ids is None else ids[part],
            )
            for part in _cut(tables, count)
        ]


class Items:
    """Catalogue entries. A row whose `deleted` is set, and a record without a value, remove the item.

    The id of a record without a value comes from its key: such a record is refused where `id` leads elsewhere.
    """

    def __init__(self, fields: Fields) -> None:
        self._rows = _Rows(fields)
        self._fields = fields

    def __call__(self, record: Incoming) -> list[Loaded]:
        rows, fields = self._rows, self._fields
        if record.value is None:
            return [self._without_value(record)]
        count = rows.number(record)
        space, time = fields.space(record), fields.time(record)
        ids = tuple(rows.values(record, fields["id"], count, name_of))
        if len(set(ids)) < count:
            raise refused(fields["id"].where, "an item appears twice in one record")
        deleted = fields.find("deleted")
        gone = [False] * count if deleted is None else rows.values(record, deleted, count, set_flag)
        if not any(gone):
            tables = rows.tables(record, count)
            return [
                ItemBlock(space, ids[part], tuple(Table(t.name, t.vectors[part]) for t in tables), time)
                for part in _cut(tables, count)
            ]
        if not all(gone):
            raise refused(
                deleted.where if deleted else "", "some rows of one record are deleted and others are not"
            )
        return [ItemBlock(space, (), (), time, tombstones=ids)]

    def _without_value(self, record: Incoming) -> ItemBlock:
        field = self._fields["id"]
        if not field.path.root:
            raise BadRecord(
                Reason.UNDECODABLE, "a record without a value, and fields.id does not lead into the key"
            )
        name = name_of(record.at(field.path), field.where)
        time = max(0, record.message.timestamp_ms)
        return ItemBlock(self._fields.space(record), (), (), time, tombstones=(name,))


class Relations:
    """Statements that two items are similar; without `similar`, all of them are."""

    def __init__(self, fields: Fields) -> None:
        self._rows = _Rows(fields)
        self._fields = fields

    def __call__(self, record: Incoming) -> list[Loaded]:
        rows, fields = self._rows, self._fields
        count = rows.number(record)
        space, time = fields.space(record), fields.time(record)
        left = rows.values(record, fields["left"], count, name_of)
        right = rows.values(record, fields["right"], count, name_of)
        similar = (
            rows.values(record, fields["similar"], count, flag) if "similar" in fields else [True] * count
        )
        for one, other in zip(left, right, strict=True):
            if one == other:
                raise refused(fields["right"].where, f"{shown(one)} is related to itself")
        none = [None] * count
        source = rows.values(record, fields["source"], count, optional_name) if "source" in fields else none
        return [
            Relation(space, a, b, same, time, origin)
            for a, b, same, origin in zip(left, right, similar, source, strict=True)
        ]
