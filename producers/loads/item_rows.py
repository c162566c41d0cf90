"""Catalogue entries and tombstones as rows of a load."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.files.text import fault_of
from kinstream.producers.loads.blocks import STRING_BYTES
from kinstream.producers.loads.record_rows import RecordLayout
from kinstream.streams.errors import SourceError
from kinstream.streams.records.checks import MAX_STRING_LENGTH
from kinstream.streams.records.values import ItemBlock, LoadPosition, Table


@dataclass(frozen=True, slots=True, eq=False)
class ItemRows:
    """Consecutive items.

    Parameters
    ----------
    ids : n names.
    tables : one per modality, (n, d) float32; the vectors of deleted items are ignored. None if all are deleted.
    deleted : (n,) bool, which rows are tombstones.
    time_ms : (n,) int64, or None for the time of sending.
    """

    ids: tuple[str, ...]
    tables: tuple[Table, ...]
    deleted: NDArray[np.bool_]
    time_ms: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice) -> ItemRows:
        times = None if self.time_ms is None else self.time_ms[rows]
        tables = tuple(Table(t.name, t.vectors[rows]) for t in self.tables)
        return ItemRows(self.ids[rows], tables, self.deleted[rows], times)

    def then(self, following: ItemRows) -> ItemRows:
        """These rows and those that follow."""
        tables = tuple(
            Table(t.name, np.concatenate([t.vectors, f.vectors]))
            for t, f in zip(self.tables, following.tables, strict=True)
        )
        times = None
        if self.time_ms is not None and following.time_ms is not None:
            times = np.concatenate([self.time_ms, following.time_ms])
        deleted = np.concatenate([self.deleted, following.deleted])
        return ItemRows(self.ids + following.ids, tables, deleted, times)

    def sizes(self) -> NDArray[np.int64]:
        """(n,) upper bounds of the bytes that each row takes in a block."""
        vectors = sum(4 * t.vectors.shape[1] for t in self.tables)
        names = np.array([len(name.encode()) + STRING_BYTES for name in self.ids], np.int64)
        return np.where(self.deleted, names, names + vectors)

    def together(self) -> int:
        """The rows up to the first repeated item: a block has one entry for each item."""
        seen: set[str] = set()
        for row, name in enumerate(self.ids):
            if name in seen:
                return row
            seen.add(name)
        return len(self)

    def record(self, space: str, load: LoadPosition | None, time_ms: int) -> ItemBlock:
        """Their block. Its time is the newest of its rows."""
        kept = ~self.deleted
        tables = tuple(
            Table(t.name, np.ascontiguousarray(t.vectors[kept])) for t in self.tables if kept.any()
        )
        ids = tuple(name for name, gone in zip(self.ids, self.deleted, strict=True) if not gone)
        tombstones = tuple(name for name, gone in zip(self.ids, self.deleted, strict=True) if gone)
        time = time_ms if self.time_ms is None else int(self.time_ms.max())
        return ItemBlock(space, ids, tables, time, tombstones, load)


class ItemsInMemory:
    """Items in memory, as a source.

    Parameters
    ----------
    identity : digest of them.
    facts : for the summary.
    """

    def __init__(self, rows: ItemRows, identity: str, facts: dict[str, Any]) -> None:
        self._rows = rows
        self.identity = identity
        self.facts = facts
        sizes = tuple((t.name, t.vectors.shape[1]) for t in rows.tables)
        self.layout = RecordLayout(sizes, len(rows))
        self._row = 0

    def check_fits(self, room: int) -> None:
        """Refuse an item that takes more than `room` bytes."""
        sizes = self._rows.sizes()
        if sizes.max() > room:
            raise SourceError(f"item {int(sizes.argmax()) + 1}: it does not fit into a block of {room} bytes")

    def snapshot(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        self._row = position

    def next_batch(self) -> ItemRows | None:
        if self._row >= len(self._rows):
            return None
        rows = self._rows[self._row :]
        self._row = len(self._rows)
        return rows


def tombstones(ids: Sequence[str], began_ms: int) -> ItemsInMemory:
    """Deletes named by the user.

    Parameters
    ----------
    began_ms : the time of the deletes: the same deletes at another time are another load, and count again.

    Raises
    ------
    SourceError : there are none, or one has no name, or a name that is not valid UTF-8.
    """
    if not ids or not all(ids):
        raise SourceError("there is no item to delete, or one without a name")
    names = tuple(dict.fromkeys(ids))
    for name in names:
        if (fault := fault_of(name)) is not None:
            raise SourceError(f"the item {name!r} {fault}")
        if len(name) > MAX_STRING_LENGTH:
            raise SourceError(f"the item {name[:40]!r}... is longer than {MAX_STRING_LENGTH} characters")
    identity = hashlib.sha256(f"{began_ms} {names!r}".encode()).hexdigest()
    rows = ItemRows(names, (), np.ones(len(names), np.bool_))
    return ItemsInMemory(rows, identity, {"items": 0, "tombstones": len(names)})
