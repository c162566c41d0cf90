"""Follows the items of spaces through `kinstream.events`, by the rules of builders.

The builders' own machine checks control records, loads, declarations, keys and non-finite rows, so that a catalogue
holds the same items as a builder of the same log. Refusals are counted by reason; builders write the dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from kinstream.processors.agent import BuilderMachine
from kinstream.processors.base.builder import Made, Origin, State
from kinstream.streams.agents.machine import Place, RecordsMissed
from kinstream.streams.agents.space import Status
from kinstream.streams.errors import BadRecord, KinstreamError, Reason
from kinstream.streams.records.checks import MAX_STRING_LENGTH
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Declaration, Event, ItemBlock, Kind, SampleBlock, Table

log = logging.getLogger("kinstream.search")

ITEMS: Final = "items"
SAMPLES: Final = "samples"
#: Sources of a space's items: item records, or labelled samples with ids.
SOURCES: Final = (ITEMS, SAMPLES)
#: The name of a consumer without redrives, unless the settings name a builder.
NOBODY: Final = "search"
#: No builder of one process has more spaces, and the reader only takes the spaces of the settings.
_MAX_SPACES: Final = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """Items that exist from now on, with these vectors."""

    names: tuple[str, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Items that were removed."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The space was reset and has no items."""

    epoch: int
    deleted: bool = False


Change = Begin | Put | Drop


@dataclass(frozen=True, slots=True)
class Changed:
    """The change of a space's catalogue by one record."""

    space: str
    offset: int
    changes: tuple[Change, ...]


class _Collector:
    """The core of one space: it passes on items, and knows the modalities."""

    algorithm: ClassVar[str] = "catalogue/1"
    emits: ClassVar[frozenset[Kind]] = frozenset()

    def __init__(self, source: str, found: list[Change]) -> None:
        self._source = source
        self._found = found
        self._sizes: dict[str, int] = {}

    @property
    def follows(self) -> tuple[type, ...]:
        return (ItemBlock,) if self._source == ITEMS else (ItemBlock, SampleBlock)

    def process(self, event: Event, origin: Origin) -> Made:
        """Note the items of a block, then its tombstones.

        Raises
        ------
        BadRecord : other modalities or dimensions than those of the first block; names that are too long.
        """
        if not isinstance(event, ItemBlock | SampleBlock):
            raise TypeError(f"a catalogue does not follow {type(event).__name__}")
        wanted = ItemBlock if self._source == ITEMS else SampleBlock
        names = (event.ids or ()) if isinstance(event, wanted) else ()
        tombstones = event.tombstones if isinstance(event, ItemBlock) else ()
        if names:
            self._check(names, event.tables)
            self._found.append(Put(names, event.tables))
        if tombstones:
            self._found.append(Drop(tombstones))
        return Made()

    def _check(self, names: tuple[str, ...], tables: tuple[Table, ...]) -> None:
        if any(len(name) > MAX_STRING_LENGTH for name in names):
            raise BadRecord(Reason.BAD_SHAPE, f"an id is longer than {MAX_STRING_LENGTH} characters")
        sizes = {table.name: table.vectors.shape[1] for table in tables}
        if self._sizes and sizes != self._sizes:
            raise BadRecord(Reason.WRONG_DIMENSION, f"{sizes} in a catalogue of {self._sizes}")
        self._sizes = sizes

    def counts(self) -> dict[str, int]:
        return {}

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Empty: a catalogue is read again from the log."""


class CatalogueReader:
    """One partition of `kinstream.events`: records in, changes of catalogues out. No clock and no IO.

    Parameters
    ----------
    sources : for each followed space, the source of its items, one of `SOURCES`. Other spaces are not decoded.
    redrives_of : a builder whose redriven records are taken as that builder takes them; None for no builder.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        partitions: int,
        sources: Mapping[str, str],
        *,
        redrives_of: str | None = None,
    ) -> None:
        self._sources = {space.encode(): space for space in sources}
        self._found: list[Change] = []
        self._cores: dict[str, object] = {}
        self._epochs: dict[str, int] = {}
        self.passed_over = 0
        self.failed = 0
        place = Place(redrives_of or NOBODY, 1, topic, partition, partitions, topic, partitions, topic)

        def make(space: str, declaration: Declaration | None) -> _Collector:
            # The machine calls a builder without a space to find out which events all of them follow.
            some = SAMPLES if SAMPLES in sources.values() else ITEMS
            return _Collector(sources.get(space, some), self._found)

        # Named spaces are followed even without a create record, which may be gone from the log.
        self._machine = BuilderMachine(place, make, auto_create=True, max_spaces=_MAX_SPACES)

    @property
    def next_offset(self) -> int:
        """The next offset to read."""
        return self._machine.next_offset

    def counts(self) -> dict[str, int]:
        """Counts of records of followed spaces so far, by fate: applied, duplicates, not_followed."""
        return {name: self._machine.counts[name] for name in ("applied", "duplicates", "not_followed")}

    def refused(self) -> dict[str, int]:
        """Refusals so far, by reason."""
        return dict(self._machine.dead)

    def begin(self, offset: int) -> None:
        """Continue at an offset, without the records that the log has lost before it."""
        self._machine.next_offset = offset

    def step(self, message: Message) -> Changed | None:
        """Apply one record; None if it changed no catalogue.

        A record on which the machine fails is left out, counted in `failed`, and logged.

        Raises
        ------
        kinstream.streams.agents.machine.RecordsMissed : the client dropped records before this one.
        """
        space = self._sources.get(message.key or b"")
        if space is None:
            if message.offset > self.next_offset and message.previous >= self.next_offset:
                self._machine.step(message)  # raises: a record was dropped on the way
            self._machine.next_offset = max(self.next_offset, message.offset + 1)
            self.passed_over += 1
            return None
        self._found.clear()
        try:
            self._machine.step(message)
        except (KinstreamError, RecordsMissed, MemoryError):
            raise
        # Faults of records are refused above. No other error may stop the agent for all spaces for good.
        except Exception:
            self.failed += 1
            log.exception(
                "%s partition %d offset %d: left out", message.topic, message.partition, message.offset
            )
            self._machine.next_offset = message.offset + 1
        changes = [*self._began(space), *self._found]
        return Changed(space, message.offset, tuple(changes)) if changes else None

    def _began(self, space: str) -> list[Change]:
        """A new epoch, where this record has begun one."""
        state = self._machine.find(space)
        if state is None or state.epoch < 0 or self._epochs.get(space) == state.epoch:
            return []
        self._epochs[space] = state.epoch
        return [Begin(state.epoch, state.status is Status.DELETED)]
