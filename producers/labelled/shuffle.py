"""The rows of a source in a seeded random order."""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.producers.labelled.batch import Batch, Source
from kinstream.producers.labelled.hold_out import read_all
from kinstream.producers.loads.row_numbers import row_numbers
from kinstream.streams.errors import SourceError

#: Largest size of the vectors that a shuffle holds in memory, in bytes.
MAX_BYTES: Final = 4 * 1024**3
BATCH_ROWS: Final = 8192


class Shuffled:
    """A source whose rows are read into memory and returned in random order, another order for each turn.

    Parameters
    ----------
    source : read completely, once.
    seed : equal seeds and turns give equal orders.

    Raises
    ------
    SourceError : the vectors take more than `MAX_BYTES`.
    """

    def __init__(self, source: Source, seed: int) -> None:
        size = source.layout.rows * source.layout.vector_bytes
        if size > MAX_BYTES:
            raise SourceError(
                f"a shuffle holds all rows in memory; these take {size / 1024**3:.1f} GiB and the limit is "
                f"{MAX_BYTES / 1024**3:.0f}: shuffle the file beforehand, and load it without --shuffle-seed"
            )
        self.layout = source.layout
        self.identity = f"{source.identity} {seed}"
        self._rows = read_all(source)
        self._seed = seed
        self._row = 0
        self.turn(0)

    def turn(self, number: int) -> None:
        """Begin another pass, in its own order."""
        keys = row_numbers(f"shuffle {number}", self._seed, 0, len(self._rows))
        self._order = np.argsort(keys, kind="stable")
        self._row = 0

    def snapshot(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        self._row = position

    def next_batch(self) -> Batch | None:
        if self._row >= len(self._rows):
            return None
        batch = self._rows.take(self._order[self._row : self._row + BATCH_ROWS])
        self._row += len(batch)
        return batch
