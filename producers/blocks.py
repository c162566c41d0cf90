"""Rows cut into blocks. Where a block ends depends on the rows alone, never on time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from producers.sources import Batch, Source, concatenate
from streams.errors import SourceError

#: No sample block is larger when it is encoded.
MAX_BLOCK_BYTES: Final = 512 * 1024

#: Upper bounds of what a block takes beside its rows: fixed fields, and the fields of one table.
_FIXED_BYTES: Final = 256
_TABLE_BYTES: Final = 32
#: A string is preceded by its length; those of a block stand in an array.
_STRING_BYTES: Final = 3
_LABEL_BYTES: Final = 8
_CHARACTER_BYTES: Final = 4


class Position(NamedTuple):
    """Where a block begins: turn, snapshot of the source in that turn, and rows after the snapshot."""

    turn: int
    row: int
    skip: int


BEGINNING: Final = Position(0, 0, 0)


class Cut(NamedTuple):
    """A block's rows, and where the next block begins."""

    rows: Batch
    after: Position


class Cutter:
    """Cuts the rows of a source.

    Parameters
    ----------
    block_rows : rows of a block, unless its bytes end it before.
    names : strings that every block holds (space, load id).
    max_bytes : no encoded block is larger.
    """

    def __init__(
        self, source: Source, block_rows: int, names: tuple[str, ...], max_bytes: int = MAX_BLOCK_BYTES
    ) -> None:
        self._source = source
        self._block_rows = block_rows
        modalities = source.layout.modalities
        words = sum(map(len, names)) + sum(len(name) for name, _ in modalities)
        self._room = max_bytes - _FIXED_BYTES - _TABLE_BYTES * len(modalities) - _CHARACTER_BYTES * words

    def turn(self, start: Position) -> Iterator[Cut]:
        """The blocks of one pass over the source, from a position on. The last one may be short.

        Raises
        ------
        SourceError : the rows cannot be used, or one does not fit into a block.
        """
        number = start.turn
        self._source.seek(start.row)
        left: Batch | None = None
        skip = start.skip
        while True:
            base = self._source.snapshot()
            batch = self._source.next_batch()
            if batch is None:
                break
            fresh = batch[min(skip, len(batch)) :]
            used = len(batch) - len(fresh)
            skip -= used
            # Rows that were left over do not fill a block, so a cut always ends in the batch read last.
            used -= 0 if left is None else len(left)
            left = fresh if left is None else concatenate([left, fresh])
            at = 0
            while (end := self._end(left, at)) is not None:
                yield Cut(left[at:end], Position(number, base, used + end))
                at = end
            left = left[at:]
        if left is not None and len(left):
            yield Cut(left, Position(number + 1, 0, 0))

    def _end(self, rows: Batch, at: int) -> int | None:
        """Where the block that begins at row `at` ends; None if the rows that are left do not fill it."""
        rest = rows[at : at + self._block_rows]
        sizes = np.cumsum(_row_bytes(rest))
        fit = int(np.searchsorted(sizes, self._room, side="right"))
        if fit == 0 and len(rest):
            raise SourceError(
                f"a row of {int(sizes[0])} bytes does not fit into a block of {self._room}: "
                "leave features out"
            )
        return at + fit if fit < len(rest) or fit == self._block_rows else None


def _row_bytes(rows: Batch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Upper bounds of the bytes that each row takes in a block."""
    sizes = np.full(len(rows), sum(4 * t.vectors.shape[1] for t in rows.tables) + _LABEL_BYTES, np.int64)
    for strings in (rows.labels, rows.ids):
        if isinstance(strings, tuple):
            sizes += np.array([len(text.encode()) + _STRING_BYTES for text in strings], np.int64)
    return sizes
