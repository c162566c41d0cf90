"""Rows cut into blocks. Where a block ends depends on the rows alone, never on time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import SourceError

#: Largest size of an encoded block.
MAX_BLOCK_BYTES: Final = 512 * 1024

#: Upper bound of what a record has beside its block: the batch that it is sent in, its key and its headers.
BESIDE_BLOCK_BYTES: Final = 2 * 1024

#: Rows per block, where nothing else is asked for: of small loads, and of the largest ones.
BLOCK_ROWS: Final = 256
MOST_ROWS: Final = 2_048
#: A load has at least as many blocks, unless it is a small one.
_BLOCKS: Final = 64

#: Upper bounds of the size of a block without its rows: fixed fields, and the fields of one table.
_FIXED_BYTES: Final = 256
_TABLE_BYTES: Final = 32
_CHARACTER_BYTES: Final = 4
#: A string is preceded by its length; the strings of a block are in an array.
STRING_BYTES: Final = 3


def default_rows(rows: int) -> int:
    """Rows per block for a number of rows.

    Beside the time of its rows, a block costs a worker a fixed time, so large loads have large blocks.

    Examples
    --------
    >>> [default_rows(rows) for rows in (150, 16_384, 60_000, 1_000_000)]
    [256, 256, 937, 2048]
    """
    return min(MOST_ROWS, max(BLOCK_ROWS, rows // _BLOCKS))


class Rows(Protocol):
    """Consecutive rows of a source, of any kind."""

    def __len__(self) -> int:
        """How many."""

    def __getitem__(self, rows: slice, /) -> Self:
        """A part of the rows."""

    def then(self, following: Self, /) -> Self:
        """These rows and those that follow."""

    def sizes(self) -> NDArray[np.int64]:
        """(n,) upper bounds of the bytes that each row takes in a block."""

    def together(self) -> int:
        """How many of the rows, from the first on, may stand in one block."""


R = TypeVar("R", bound=Rows)
R_co = TypeVar("R_co", bound=Rows, covariant=True)


class Shape(Protocol):
    """Facts about all rows that a cutter needs."""

    @property
    def modalities(self) -> tuple[tuple[str, int], ...]:
        """Name and dimension of each table of a block."""

    @property
    def rows(self) -> int:
        """How many."""


class RowSource(Protocol[R_co]):
    """Rows in an order that never changes. Methods raise SourceError if rows cannot be used."""

    @property
    def layout(self) -> Shape:
        """Of all rows."""

    @property
    def identity(self) -> str:
        """Digest of the rows and of the reading options: equal identities give equal rows."""

    def snapshot(self) -> int:
        """The position: the argument for `seek` to continue from here."""

    def seek(self, position: int) -> None:
        """Continue at a snapshot; 0 is the beginning."""

    def next_batch(self) -> R_co | None:
        """The rows that follow, some at a time; None at the end."""


class Position(NamedTuple):
    """Where a block begins: turn, snapshot of the source in that turn, and rows after the snapshot."""

    turn: int
    row: int
    skip: int


BEGINNING: Final = Position(0, 0, 0)


def limit_of(max_bytes: int) -> dict[str, int]:
    """The part of a load's shaping for a limit of its blocks: nothing for the usual one."""
    return {} if max_bytes >= MAX_BLOCK_BYTES else {"max_bytes": max_bytes}


class Cut(NamedTuple, Generic[R]):
    """A block's rows, and where the next block begins."""

    rows: R
    after: Position


class Cutter(Generic[R]):
    """Cuts the rows of a source.

    Parameters
    ----------
    block_rows : rows per block, unless its size ends it earlier.
    names : strings that every block holds (space, load id).
    max_bytes : no encoded block is larger.
    """

    def __init__(
        self, source: RowSource[R], block_rows: int, names: tuple[str, ...], max_bytes: int = MAX_BLOCK_BYTES
    ) -> None:
        self._source = source
        self._block_rows = block_rows
        modalities = source.layout.modalities
        words = sum(map(len, names)) + sum(len(name) for name, _ in modalities)
        #: Largest size of the rows of a block, in bytes.
        self.room: Final = (
            max_bytes - _FIXED_BYTES - _TABLE_BYTES * len(modalities) - _CHARACTER_BYTES * words
        )

    def turn(self, start: Position) -> Iterator[Cut[R]]:
        """The blocks of one pass over the source, from a position on. The last one may be short.

        Raises
        ------
        SourceError : the rows cannot be used, or one does not fit into a block.
        """
        number = start.turn
        self._source.seek(start.row)
        left: R | None = None
        skip = start.skip
        while True:
            base = self._source.snapshot()
            batch = self._source.next_batch()
            if batch is None:
                break
            fresh = batch[min(skip, len(batch)) :]
            used = len(batch) - len(fresh)
            skip -= used
            # Remaining rows do not fill a block, so a cut always ends in the batch read last.
            used -= 0 if left is None else len(left)
            left = fresh if left is None else left.then(fresh)
            at = 0
            while (end := self._end(left, at)) is not None:
                yield Cut(left[at:end], Position(number, base, used + end))
                at = end
            left = left[at:]
        if left is not None and len(left):
            yield Cut(left, Position(number + 1, 0, 0))

    def _end(self, rows: R, at: int) -> int | None:
        """Where the block that begins at row `at` ends; None if the remaining rows do not fill it."""
        rest = rows[at : at + self._block_rows]
        sizes = np.cumsum(rest.sizes())
        fit = min(int(np.searchsorted(sizes, self.room, side="right")), rest.together())
        if fit == 0 and len(rest):
            raise SourceError(
                f"a row of {int(sizes[0])} bytes does not fit into a block of {self.room}: leave out some features"
            )
        return at + fit if fit < len(rest) or fit == self._block_rows else None
