"""What a sink writes, in the order of the log, and what a store has to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kinstream.streams.errors import GenerationMismatch, KinstreamError
from kinstream.streams.records.vectors import ItemMap, VectorBlock


class StoreBehind(GenerationMismatch):
    """The store has not got what this sink has written before: it was restored, or is another one."""


class StoreFault(KinstreamError):
    """The store holds something else than the sink has written."""


class VersionName(NamedTuple):
    """The order of the versions of a space: the greater one is newer."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}_{self.number}"


@dataclass(frozen=True, slots=True)
class EpochBegins:
    """The space was reset or deleted: versions of earlier epochs have no items any more."""

    epoch: int


Change = ItemMap | VectorBlock | EpochBegins


def version_of(change: ItemMap | VectorBlock) -> VersionName:
    """The version that a record belongs to."""
    return VersionName(change.epoch, change.version)


class Lane(NamedTuple):
    """Whose position in the log it is. A new generation of a sink has one of its own."""

    sink: str
    generation: int
    partition: int


class Writer(Protocol):
    """A store that takes changes. One thread calls it.

    A version is shown to readers when it is complete, and not before; a change of a version that is neither shown nor
    begun is left out: it belongs to one that is over, or whose beginning the log has lost.
    """

    def write(self, lane: Lane, first: int, changes: Sequence[tuple[int, Change]], end: int) -> None:
        """Apply the changes of the offsets from `first` up to `end`, each with its offset.

        Those below the position that the store holds were applied before, and are left out.

        Raises
        ------
        StoreBehind : the position of the store is below `first`.
        StoreFault : a version has another number of items than it should.
        kinstream.search.stores.base.StoreAway : the store does not answer, or refuses; nothing is lost by another try.
        """

    def check(self) -> None:
        """Ask the store whether a sink may begin; nothing is changed.

        Raises
        ------
        kinstream.search.stores.base.StoreAway : it does not answer, or would refuse what a sink creates.
        """

    def close(self) -> None:
        """End connections."""
