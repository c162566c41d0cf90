"""What every constraint builder offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from kinstream.streams.errors import BadRecord
from kinstream.streams.records.state import State as State
from kinstream.streams.records.values import ConstraintBlock, Event, Kind

#: No constraint block is larger when it is encoded.
MAX_BLOCK_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an event stands in its log.

    Parameters
    ----------
    offset : of the event; the identity of one that stands in no load.
    append_ms : when the log took it, milliseconds since the epoch.
    rows : the parts that a redrive brings back, or None for an event that is seen for the first time.
    refused : the parts of the same event that stay refused while those are brought back.
    """

    offset: int
    append_ms: int = 0
    rows: tuple[int, ...] | None = None
    refused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """What came of an event: constraint blocks, in order, and the parts that could not be used."""

    blocks: list[ConstraintBlock] = field(default_factory=list)
    refused: list[BadRecord] = field(default_factory=list)


@runtime_checkable
class Builder(Protocol):
    """A deterministic state machine that serves one space.

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
        """Take in the rows of an event in order and return the constraints that they make, in order.

        Parameters
        ----------
        event : of a kind that is followed; not changed and not kept. Vectors of samples and items are finite.

        Returns
        -------
        No block, or as many as it takes to keep each small; their epoch is left to the caller. Refusals name rows
        of the event.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            The event as a whole does not fit the space; the state is untouched.
        """

    def counts(self) -> dict[str, int]:
        """How often what happened in this space so far: what was filtered, by reason. Grows, never shrinks."""

    def state(self) -> State:
        """A copy of everything that later results depend on."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned on a builder with the same constructor arguments."""


@runtime_checkable
class Heir(Protocol):
    """A builder that takes over what an older generation was told: its catalogue."""

    def inherit(self, state: State, load: Callable[[str], State]) -> None:
        """Take over from the state of a builder that may have had other settings; `load` reads its segments."""


@runtime_checkable
class Segmented(Protocol):
    """A builder whose state is too large to write whole: parts of it lie in segments that never change.

    `state` leaves the segments out and `restore` is followed by `restore_segments`.
    """

    def segments(self) -> tuple[str, ...]:
        """Names of the segments that the state needs now. A name always stands for the same content."""

    def segment(self, name: str) -> State:
        """The content of a segment."""

    def restore_segments(self, load: Callable[[str], State]) -> None:
        """Take in the segments that the restored state needs."""
