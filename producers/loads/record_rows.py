"""Rows of single records: result lists, relations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import SourceError

BATCH_ROWS: Final = 1024
#: Means the time of sending, for a file without times.
UNKNOWN_TIME: Final = -1

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class RecordRows(Generic[T]):
    """Consecutive records of a source.

    Parameters
    ----------
    entries : n records.
    bytes : of each, an upper bound of what it takes in a block.
    """

    entries: tuple[T, ...]
    bytes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, rows: slice) -> Self:
        return replace(self, entries=self.entries[rows], bytes=self.bytes[rows])

    def then(self, following: Self) -> Self:
        """These rows and those that follow."""
        return replace(self, entries=self.entries + following.entries, bytes=self.bytes + following.bytes)

    def sizes(self) -> NDArray[np.int64]:
        """(n,) upper bounds of the bytes that each row takes in a block."""
        return np.array(self.bytes, np.int64)

    def together(self) -> int:
        """All of them."""
        return len(self)


R = TypeVar("R", bound=RecordRows[Any])


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Facts about all rows, known before the first is sent. `modalities` are those of query vectors."""

    modalities: tuple[tuple[str, int], ...]
    rows: int


class Tally(Protocol[T_contra]):
    """Scans every record once, before any is sent."""

    def add(self, record: T_contra, row: int) -> None:
        """Check the record that begins at row `row`, raising SourceError if it does not fit the others."""

    @property
    def modalities(self) -> tuple[tuple[str, int], ...]:
        """Modalities of the query vectors seen."""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for the summary of a load."""


class RecordSource(Generic[T, R]):
    """The records of a file. A position is the row of the file at which the next record begins.

    The constructor reads and checks the whole file once, before a load has sent a part of it.

    Parameters
    ----------
    read : yields the records of each row, or of some, from a row on, with the row after them.
    size : upper bound of the bytes that a record takes in a block.
    rows : creates a batch from records and their sizes.

    Raises
    ------
    SourceError : a row cannot be used.
    """

    def __init__(
        self,
        place: str,
        identity: str,
        read: Callable[[int], Iterator[tuple[Sequence[T], int]]],
        size: Callable[[T], int],
        rows: Callable[[tuple[T, ...], tuple[int, ...]], R],
        tally: Tally[T],
    ) -> None:
        self._place = place
        self._read = read
        self._size = size
        self._rows = rows
        self.identity = identity
        self._largest = (0, 0)
        count = begin = 0
        for records, end in read(0):
            for record in records:
                count += 1
                tally.add(record, begin)
                if (found := size(record)) > self._largest[0]:
                    self._largest = (found, begin)
            begin = end
        if not count:
            raise SourceError(f"{place}: there are no rows")
        self.layout = RecordLayout(tally.modalities, count)
        self.facts = tally.facts
        self._row = 0
        self._open: Iterator[tuple[Sequence[T], int]] | None = None

    def check_fits(self, room: int) -> None:
        """Refuse a record that takes more than `room` bytes."""
        size, row = self._largest
        if size > room:
            raise SourceError(f"{self._place}: row {row + 1}: {size} bytes do not fit into a block of {room}")

    def snapshot(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        self._row = position
        self._open = None

    def next_batch(self) -> R | None:
        if self._open is None:
            self._open = self._read(self._row)
        found = list(islice(self._open, BATCH_ROWS))
        if not found:
            return None
        self._row = found[-1][1]
        entries = tuple(record for records, _ in found for record in records)
        return self._rows(entries, tuple(map(self._size, entries)))
