"""Which of the announced models of one space and learner is to serve. No files, no clock, no brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from search.model import UNLEARNED, Model, Name, name_of
from streams.records import ModelVersion

#: Announced versions that are kept for the case that those above them cannot be loaded.
KEPT: Final = 4
#: What orders announcements: those of one step repeat, and the furthest checkpoint is the one that is kept longest.
Rank = tuple[Name, int]


def rank_of(version: ModelVersion) -> Rank:
    """Where a version stands among those of its space and learner."""
    return name_of(version), version.offset


@dataclass(slots=True)
class Choice:
    """The newest versions of one space and learner that are above the one that serves.

    Whatever the order and number in which versions arrive, the highest (generation, epoch, step) comes to serve, or the
    highest of those that can be loaded; and what serves is never followed by a lower one.
    """

    _serving: Rank | None = None
    _above: list[ModelVersion] = field(default_factory=list)
    _announced: Name = UNLEARNED

    @property
    def announced(self) -> Name:
        """The highest name that was ever announced."""
        return self._announced

    def take(self, version: ModelVersion) -> bool:
        """An announcement; returns whether there is now something new to load."""
        if version.epoch < 0:
            return False  # only a refused block has named that space
        rank = rank_of(version)
        self._announced = max(self._announced, rank[0])
        if self._serving is not None and rank <= self._serving:
            return False
        if any(rank_of(other) == rank for other in self._above):
            return False
        self._above = sorted([*self._above, version], key=rank_of, reverse=True)[:KEPT]
        return version in self._above

    def wanted(self) -> tuple[ModelVersion, ...]:
        """What to load, the best first."""
        return tuple(self._above)

    def serves(self, model: Model) -> None:
        """A version was loaded and serves from now on."""
        assert model.version is not None
        self._serving = rank_of(model.version)
        self._above = [version for version in self._above if rank_of(version) > self._serving]
