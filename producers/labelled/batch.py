"""Labelled vectors: batches of rows, facts about all rows, and the interface of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.loads.blocks import STRING_BYTES, RowSource
from kinstream.streams.records.values import Table

LabelType = Literal["integer", "string"]
Labels = NDArray[np.int64] | tuple[str, ...]

_LABEL_BYTES: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows.

    Parameters
    ----------
    tables : one per modality, (n, d) float32, finite.
    labels : (n,) int64, or n strings.
    ids : n strings, or None.
    """

    tables: tuple[Table, ...]
    labels: Labels
    ids: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice) -> Batch:
        """Consecutive rows."""
        tables = tuple(Table(t.name, t.vectors[rows]) for t in self.tables)
        return Batch(tables, self.labels[rows], None if self.ids is None else self.ids[rows])

    def then(self, following: Batch) -> Batch:
        """These rows and those that follow."""
        return concatenate([self, following])

    def sizes(self) -> NDArray[np.int64]:
        """(n,) upper bounds of the bytes that each row takes in a block."""
        sizes = np.full(len(self), sum(4 * t.vectors.shape[1] for t in self.tables) + _LABEL_BYTES, np.int64)
        for strings in (self.labels, self.ids):
            if isinstance(strings, tuple):
                sizes += np.array([len(text.encode()) + STRING_BYTES for text in strings], np.int64)
        return sizes

    def together(self) -> int:
        """All rows: a block may hold any samples."""
        return len(self)

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Rows by number, in that order."""
        tables = tuple(Table(t.name, t.vectors[rows]) for t in self.tables)
        numbers = rows.tolist()
        labels = (
            self.labels[rows]
            if isinstance(self.labels, np.ndarray)
            else tuple(self.labels[n] for n in numbers)
        )
        return Batch(tables, labels, None if self.ids is None else tuple(self.ids[n] for n in numbers))


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Batches of one source, one after the other. There is at least one."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    tables = tuple(
        Table(t.name, np.concatenate([b.tables[place].vectors for b in batches]))
        for place, t in enumerate(first.tables)
    )
    labels: Labels
    if isinstance(first.labels, np.ndarray):
        labels = np.concatenate([np.asarray(b.labels) for b in batches])
    else:
        labels = tuple(str(label) for b in batches for label in b.labels)
    return Batch(
        tables,
        labels,
        None if first.ids is None else tuple(chain.from_iterable(b.ids or () for b in batches)),
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """Facts about all rows, known before the first is sent.

    Parameters
    ----------
    modalities : name and dimension of each.
    labels : one type for the whole source.
    rows, classes : how many.
    features : names of the features of each modality, in the order of its vectors; empty if they have none.
    left_out : columns that are no features by default, because they only number rows.
    """

    modalities: tuple[tuple[str, int], ...]
    labels: LabelType
    rows: int
    classes: int
    features: tuple[tuple[str, ...], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def vector_bytes(self) -> int:
        """Bytes of one row's vectors."""
        return 4 * sum(dimension for _, dimension in self.modalities)


def entries(name: str, width: int) -> tuple[str, ...]:
    """Names of the features that a column holds: its own, or NAME[0], NAME[1], and so on if it holds several."""
    return (name,) if width == 1 else tuple(f"{name}[{at}]" for at in range(width))


class Source(RowSource[Batch], Protocol):
    """Labelled rows in an order that never changes.

    Every method raises `kinstream.streams.errors.SourceError` if rows cannot be used; it names file, row and column.
    """

    @property
    def layout(self) -> Layout:
        """Of all rows."""
