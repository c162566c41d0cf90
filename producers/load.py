"""A load: the rows of a source as a fixed sequence of blocks, the same one whenever it is begun again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from producers.blocks import BEGINNING, Cut, Cutter, Position
from producers.hold_out import Part
from producers.shuffled import Shuffled
from producers.sources import Layout, Source
from streams.errors import BadRecord, SettingsError
from streams.records import LoadPosition, SampleBlock
from streams.validate import check_space

#: Changes whenever the same rows and settings give other blocks.
VERSION: Final = 1
_LOAD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """All that decides which blocks a source becomes.

    Parameters
    ----------
    block_rows : rows of a block; fewer where they would not fit into 512 KiB, and at the end of each pass.
    shuffle_seed : None keeps the order of the source; else all rows are held in memory.
    repeat : passes over the rows; a shuffle gives each its own order.
    hold_out, hold_out_seed : probability with which a row is never sent, and the seed that says which.

    Raises
    ------
    SettingsError : a value is out of range.
    """

    block_rows: int = 256
    shuffle_seed: int | None = None
    repeat: int = 1
    hold_out: float = 0.0
    hold_out_seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (("block_rows", self.block_rows, 1), ("repeat", self.repeat, 1)):
            if value < least:
                raise SettingsError(f"{name} must be at least {least}, not {value}")
        if not 0 <= self.hold_out < 1:
            raise SettingsError(f"hold_out must be at least 0 and below 1, not {self.hold_out!r}")


class Load:
    """Blocks of a source for a space.

    Parameters
    ----------
    source : read through this object from now on.
    load_id : None for a digest of the rows, the space, and the settings.

    Raises
    ------
    SettingsError : the space or the load id cannot be one.
    SourceError : the rows cannot be used.
    """

    def __init__(
        self, source: Source, space: str, settings: BlockSettings, load_id: str | None = None
    ) -> None:
        try:
            self.space = check_space(space)
        except BadRecord as error:
            raise SettingsError(error.detail) from error
        if load_id is not None and not _LOAD_ID.fullmatch(load_id):
            raise SettingsError(f"a load id is up to 100 letters, digits, dots and dashes, not {load_id!r}")
        self.settings = settings
        #: Whether a person has given the load its id.
        self.named = load_id is not None
        self._source_identity = source.identity
        self._held_out = 0
        if settings.hold_out:
            whole = source.layout.rows
            source = Part(source, settings.hold_out, settings.hold_out_seed, held_out=False)
            self._held_out = whole - source.layout.rows
        self.layout: Layout = source.layout
        self.load_id = load_id or self._digest()
        self._shuffled: Shuffled | None = None
        if settings.shuffle_seed is not None:
            source = self._shuffled = Shuffled(source, settings.shuffle_seed)
        self._cutter = Cutter(source, settings.block_rows, (space, self.load_id))

    @property
    def rows(self) -> int:
        """Rows of the whole load, all passes together."""
        return self.layout.rows * self.settings.repeat

    @property
    def held_out(self) -> int:
        """Rows of the source that are never sent."""
        return self._held_out

    def shaping(self) -> dict[str, Any]:
        """All that decides what stands in a block of a given sequence."""
        return {
            "version": VERSION,
            "rows": self._source_identity,
            "space": self.space,
            **asdict(self.settings),
        }

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.shaping(), sort_keys=True).encode()).hexdigest()[:32]

    def cuts(self, start: Position = BEGINNING) -> Iterator[Cut]:
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

    def block(self, cut: Cut, sequence: int, time_ms: int) -> SampleBlock:
        """The record of a cut."""
        place = LoadPosition(self.load_id, sequence)
        return SampleBlock(self.space, cut.rows.tables, cut.rows.labels, time_ms, cut.rows.ids, place)

    def blocks(self, time_ms: int = 0) -> Iterator[SampleBlock]:
        """The records of the whole load, as a replay reads them.

        Raises
        ------
        SourceError : the rows cannot be used.
        """
        for sequence, cut in enumerate(self.cuts()):
            yield self.block(cut, sequence, time_ms)
