"""The interface of every constraint builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from kinstream.streams.errors import BadRecord
from kinstream.streams.records.state import State as State
from kinstream.streams.records.values import ConstraintBlock, Event, Kind

#: Largest size of an encoded constraint block.
MAX_BLOCK_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of an event in its log.

    Parameters
    ----------
    offset : of the event; the identity of an event without a load.
    append_ms : append time of the log, milliseconds since the epoch.
    rows : the parts that a redrive applies, or None for an event's first arrival.
    refused : the parts of the same event that stay refused meanwhile.
    """

    offset: int
    append_ms: int = 0
    rows: tuple[int, ...] | None = None
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """The result of an event: constraint blocks, in order, and the parts that could not be used."""

    blocks: list[ConstraintBlock] = field(default_factory=list)
    refused: list[BadRecord] = field(default_factory=list)


class FromLists(StrEnum):
    """What constraints from ranked lists say, as far as it decides who may learn from them."""

    #: One item of a list over another one, as they were ranked: mostly, which of the two stood where.
    RANKED = "ranked"
    #: All that was read of a list, for learners that set it against the rest of the catalogue.
    WHOLE = "whole"


@runtime_checkable
class Builder(Protocol):
    """A deterministic state machine for one space.

    Same constructor arguments and same events give bit-identical state and the same blocks.
    """

    @property
    def algorithm(self) -> str:
        """Name and version, such as "one-pass/1"; the version changes whenever the same input gives other output."""

    @property
    def follows(self) -> tuple[type, ...]:
        """The kinds of events that `process` takes."""

    @property
    def emits(self) -> frozenset[Kind]:
        """The kinds of constraints that `process` makes."""

    def process(self, event: Event, origin: Origin) -> Made:
        """Apply the rows of an event in order and return their constraints, in order.

        Parameters
        ----------
        event : of a kind that is followed; not changed and not kept. Vectors of samples and items are finite.

        Returns
        -------
        Any number of blocks, each below the size limit; the caller sets their epoch. Refusals name rows
        of the event.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            The event as a whole does not fit the space; the state is untouched.
        """

    def counts(self) -> dict[str, int]:
        """Counters of this space so far, such as filtered cases by reason. They never decrease."""

    def state(self) -> State:
        """A copy of everything that later results depend on."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned on a builder with the same constructor arguments."""


@runtime_checkable
class Growing(Protocol):
    """A builder that holds vectors, as many as arrive."""

    def space_bytes(self, event: Event) -> int:
        """Bytes of the vectors that are held after an event, at most; 0 for an event that adds none.

        A function of the state and the event alone, and called before any memory is taken.
        """


@runtime_checkable
class Heir(Protocol):
    """A builder that takes over declared data of an older generation: its catalogue."""

    def inherit(self, state: State, load: Callable[[str], State]) -> None:
        """Take over from the state of a builder that may have had other settings; `load` reads its segments."""


@runtime_checkable
class Segmented(Protocol):
    """A builder whose state is too large to write whole: parts of it are in segments that never change.

    `state` leaves the segments out and `restore` is followed by `restore_segments`.
    """

    def segments(self) -> tuple[str, ...]:
        """Names of the segments that the state needs now. A name always stands for the same content."""

    def segment(self, name: str) -> State:
        """The content of a segment."""

    def restore_segments(self, load: Callable[[str], State]) -> None:
        """Load the segments that the restored state needs."""
