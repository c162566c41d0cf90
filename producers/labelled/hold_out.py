"""Rows that are held out of the stream, to measure models that learned from the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.labelled.batch import Batch, Layout, Source, concatenate
from kinstream.producers.loads.row_numbers import row_numbers
from kinstream.streams.errors import SettingsError, SourceError


def is_held_out(fraction: float, seed: int, start: int, stop: int) -> NDArray[np.bool_]:
    """Which of the rows start..stop-1 of a source are held out. Each row is held out with probability `fraction`."""
    return row_numbers("hold-out", seed, start, stop) < np.uint64(int(fraction * 2**64))


class Part:
    """The rows of a source that are held out, or the others, in their order.

    Parameters
    ----------
    source : must only be read through this object from now on.
    fraction : in [0, 1).
    held_out : which of the two.

    Raises
    ------
    SettingsError : the fraction is out of range.
    SourceError : the part is empty.
    """

    def __init__(self, source: Source, fraction: float, seed: int, *, held_out: bool) -> None:
        if not 0 <= fraction < 1:
            raise SettingsError(f"hold_out must be at least 0 and below 1, not {fraction!r}")
        self._source = source
        self._fraction = fraction
        self._seed = seed
        self._held_out = held_out
        rows = source.layout.rows
        kept = sum(int(self._mask(at, min(at + 2**20, rows)).sum()) for at in range(0, rows, 2**20))
        if not kept:
            raise SourceError(f"hold_out {fraction}: of {rows} rows, this part is empty")
        self.layout: Layout = replace(source.layout, rows=kept)
        self.identity = f"{source.identity} {fraction} {seed} {held_out}"

    def _mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        found = is_held_out(self._fraction, self._seed, start, stop)
        return found if self._held_out else ~found

    def snapshot(self) -> int:
        return self._source.snapshot()

    def seek(self, position: int) -> None:
        self._source.seek(position)

    def next_batch(self) -> Batch | None:
        start = self._source.snapshot()
        batch = self._source.next_batch()
        if batch is None:
            return None
        return batch.take(np.flatnonzero(self._mask(start, start + len(batch))))


def held_out_rows(source: Source, fraction: float, seed: int) -> Batch:
    """The rows that a load of this source with the same `hold_out` and `hold_out_seed` never sends."""
    return read_all(Part(source, fraction, seed, held_out=True))


def streamed_rows(source: Source, fraction: float, seed: int) -> Batch:
    """The rows that such a load sends, each once, in the order of the source."""
    return read_all(Part(source, fraction, seed, held_out=False))


def read_all(source: Source) -> Batch:
    """All rows of a source, which has at least one, from its beginning."""
    source.seek(0)
    batches = []
    while (batch := source.next_batch()) is not None:
        batches.append(batch)
    return concatenate(batches)
