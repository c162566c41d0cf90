"""A load of one or more sources, one after the other: a catalogue, result lists, relations, a simulation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from kinstream.producers.loads.blocks import (
    BEGINNING,
    BLOCK_ROWS,
    MAX_BLOCK_BYTES,
    Cut,
    Cutter,
    Position,
    Rows,
    RowSource,
    limit_of,
)
from kinstream.producers.loads.load_name import check_load_id, check_modalities, checked_space, digest_id
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Event, LoadPosition

#: Changes whenever the same rows and settings give other blocks.
VERSION: Final = 1


class EventRows(Rows, Protocol):
    """Rows that can encode their own record."""

    def record(self, space: str, load: LoadPosition, time_ms: int) -> Event:
        """The block of these rows. `time_ms` is the time of sending."""


E = TypeVar("E", bound=EventRows, covariant=True)


class EventSource(RowSource[E], Protocol):
    """A source of such rows."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts for the summary, by name."""

    def check_fits(self, room: int) -> None:
        """Refuse a row that takes more than `room` bytes, with SourceError."""


class PhasedLoad:
    """Blocks of sources for a space. A block never holds rows of two sources.

    Parameters
    ----------
    kind : kind of the rows; part of the identity.
    sources : must only be read through this object from now on, each completely before the next.
    block_rows : rows per block, by default 256; fewer if 512 KiB are reached.
    load_id : None for a digest of the rows, the space and the settings.

    Raises
    ------
    SettingsError : the space, the load id or `block_rows` is invalid.
    SourceError : a row does not fit into a block.
    """

    def __init__(
        self,
        kind: str,
        sources: Sequence[EventSource[Any]],
        space: str,
        block_rows: int | None = None,
        load_id: str | None = None,
    ) -> None:
        block_rows = BLOCK_ROWS if block_rows is None else block_rows
        if block_rows < 1:
            raise SettingsError(f"block_rows must be at least 1, not {block_rows}")
        check_load_id(load_id)
        self.space = checked_space(space)
        self.kind = kind
        self.block_rows = block_rows
        #: Whether the user has given the load its id.
        self.named = load_id is not None
        self.sources = tuple(sources)
        for source in sources:
            check_modalities(source.layout.modalities)
        self._given_id = load_id
        self.fit(MAX_BLOCK_BYTES)

    def fit(self, max_bytes: int) -> None:
        """Make no block larger than this, before the first is cut. Less than the usual limit makes another load.

        Raises
        ------
        SourceError : a row does not fit.
        """
        self._max_bytes = min(max_bytes, MAX_BLOCK_BYTES)
        self.load_id = self._given_id or digest_id(self.shaping())
        names = (self.space, self.load_id)
        self._cutters = [Cutter(source, self.block_rows, names, self._max_bytes) for source in self.sources]
        for source, cutter in zip(self.sources, self._cutters, strict=True):
            source.check_fits(cutter.room)

    @property
    def rows(self) -> int:
        """Rows of all sources."""
        return sum(source.layout.rows for source in self.sources)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the sources."""
        return {name: value for source in self.sources for name, value in source.facts.items()}

    def shaping(self) -> dict[str, Any]:
        """Everything that the content of a block with a given sequence depends on."""
        identities = " ".join([self.kind, *(source.identity for source in self.sources)])
        return {
            "version": VERSION,
            "rows": hashlib.sha256(identities.encode()).hexdigest(),
            "space": self.space,
            "block_rows": self.block_rows,
            **limit_of(self._max_bytes),
        }

    def cuts(self, start: Position = BEGINNING) -> Iterator[Cut[Any]]:
        """The rows of each block, from a position on. A turn of a position is the number of a source.

        Raises
        ------
        SourceError : the rows cannot be used.
        """
        while start.turn < len(self._cutters):
            yield from self._cutters[start.turn].turn(start)
            start = Position(start.turn + 1, 0, 0)

    def block(self, cut: Cut[Any], sequence: int, time_ms: int) -> Event:
        """The record of a cut."""
        record: Event = cut.rows.record(self.space, LoadPosition(self.load_id, sequence), time_ms)
        return record

    def blocks(self, time_ms: int = 0) -> Iterator[Event]:
        """The records of the whole load.

        Raises
        ------
        SourceError : the rows cannot be used.
        """
        for sequence, cut in enumerate(self.cuts()):
            yield self.block(cut, sequence, time_ms)
