"""A load of labelled rows: the rows of a source as a fixed sequence of blocks, the same at every start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from kinstream.producers.labelled.batch import Batch, Layout, Source
from kinstream.producers.labelled.hold_out import Part
from kinstream.producers.labelled.shuffle import Shuffled
from kinstream.producers.loads.blocks import (
    BEGINNING,
    MAX_BLOCK_BYTES,
    Cut,
    Cutter,
    Position,
    default_rows,
    limit_of,
)
from kinstream.producers.loads.load_name import check_load_id, check_modalities, checked_space, digest_id
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import LoadPosition, SampleBlock

#: Changes whenever the same rows and settings give other blocks.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """Everything that the blocks of a source depend on.

    Parameters
    ----------
    block_rows : rows per block; fewer if they would not fit into 512 KiB, and at the end of each pass. None: 256, and
        up to 2,048 where a pass has more than 16,384 rows, see `kinstream.producers.loads.blocks.default_rows`.
    shuffle_seed : None keeps the order of the source; otherwise all rows are held in memory.
    repeat : passes over the rows; a shuffle gives each its own order.
    hold_out, hold_out_seed : probability with which a row is never sent, and the seed for choosing them.

    Raises
    ------
    SettingsError : a value is out of range.
    """

    block_rows: int | None = None
    shuffle_seed: int | None = None
    repeat: int = 1
    hold_out: float = 0.0
    hold_out_seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("block_rows", self.block_rows), ("repeat", self.repeat)):
            if value is not None and value < 1:
                raise SettingsError(f"{name} must be at least 1, not {value}")
        if not 0 <= self.hold_out < 1:
            raise SettingsError(f"hold_out must be at least 0 and below 1, not {self.hold_out!r}")


class LabelledLoad:
    """Blocks of a source for a space.

    Parameters
    ----------
    source : must only be read through this object from now on.
    load_id : None for a digest of the rows, the space, and the settings.

    Raises
    ------
    SettingsError : the space or the load id is invalid.
    SourceError : the rows cannot be used.
    """

    def __init__(
        self, source: Source, space: str, settings: BlockSettings, load_id: str | None = None
    ) -> None:
        self.space = checked_space(space)
        check_load_id(load_id)
        #: Whether the user has given the load its id.
        self.named = load_id is not None
        self._source_identity = source.identity
        self._held_out = 0
        if settings.hold_out:
            whole = source.layout.rows
            source = Part(source, settings.hold_out, settings.hold_out_seed, held_out=False)
            self._held_out = whole - source.layout.rows
        self.layout: Layout = source.layout
        block_rows = settings.block_rows or default_rows(source.layout.rows)
        self.settings = replace(settings, block_rows=block_rows)
        check_modalities(self.layout.modalities)
        self._given_id = load_id
        self._shuffled: Shuffled | None = None
        if settings.shuffle_seed is not None:
            source = self._shuffled = Shuffled(source, settings.shuffle_seed)
        self._source: Source = source
        self.fit(MAX_BLOCK_BYTES)

    def fit(self, max_bytes: int) -> None:
        """Make no block larger than this, before the first is cut. Less than the usual limit makes another load."""
        self._max_bytes = min(max_bytes, MAX_BLOCK_BYTES)
        self.load_id = self._given_id or digest_id(self.shaping())
        names = (self.space, self.load_id)
        self._cutter = Cutter(self._source, self.settings.block_rows or 1, names, self._max_bytes)

    @property
    def rows(self) -> int:
        """Rows of the whole load, over all passes."""
        return self.layout.rows * self.settings.repeat

    @property
    def held_out(self) -> int:
        """Rows of the source that are never sent."""
        return self._held_out

    @property
    def facts(self) -> dict[str, Any]:
        """The number of different labels in the source, including held-out rows, and of rows that are never sent; and
        the columns that are no features, if there are some."""
        left = {"left_out": list(self.layout.left_out)} if self.layout.left_out else {}
        return {"classes": self.layout.classes, "held_out": self.held_out} | left

    def shaping(self) -> dict[str, Any]:
        """Everything that the content of a block with a given sequence depends on."""
        return {
            "version": VERSION,
            "rows": self._source_identity,
            "space": self.space,
            **asdict(self.settings),
            **limit_of(self._max_bytes),
        }

    def cuts(self, start: Position = BEGINNING) -> Iterator[Cut[Batch]]:
        """The rows of each block, from a position on.

        Raises
        ------
        SourceError : the rows cannot be used.
        """
        while start.turn < self.settings.repeat:
            if self._shuffled is not None:
                self._shuffled.turn(start.turn)
            yield from self._cutter.turn(start)
            start = Position(start.turn + 1, 0, 0)

    def block(self, cut: Cut[Batch], sequence: int, time_ms: int) -> SampleBlock:
        """The record of a cut."""
        place = LoadPosition(self.load_id, sequence)
        return SampleBlock(self.space, cut.rows.tables, cut.rows.labels, time_ms, cut.rows.ids, place)

    def blocks(self, time_ms: int = 0) -> Iterator[SampleBlock]:
        """The records of the whole load, for a replay.

        Raises
        ------
        SourceError : the rows cannot be used.
        """
        for sequence, cut in enumerate(self.cuts()):
            yield self.block(cut, sequence, time_ms)
