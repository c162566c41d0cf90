"""Chooses the model to serve from the announced models of one space and learner. No files, no clock, no brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kinstream.search.models.model import UNLEARNED, Model, Name, name_of
from kinstream.search.models.staleness import Failure
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.records.withheld import Withheld

#: Announced versions that are kept in case those above them cannot be loaded: of a followed space, and of one that may
#: be followed later.
KEPT: Final = 64
KEPT_UNFOLLOWED: Final = 8
#: The order of announcements: those of one step repeat, and the furthest checkpoint is kept longest.
Rank = tuple[Name, int]


class Announcement(NamedTuple):
    """A version, and where it was announced: topic, partition and offset of the record, or the checkpoint.

    `withheld` is the note that its learner withholds a newer one.
    """

    version: ModelVersion
    where: str
    withheld: Withheld | None = None


def rank_of(version: ModelVersion) -> Rank:
    """The rank of a version among those of its space and learner."""
    return name_of(version), version.offset


@dataclass(slots=True, eq=False)
class Candidate:
    """A version that may serve.

    Parameters
    ----------
    where : as in `Announcement`.
    failure, trouble : the reason of its last failure, as a word and as a sentence; None before the first attempt.
    pause, retry_at : seconds from the last attempt to the next, and when that is due.
    """

    version: ModelVersion
    where: str = ""
    failure: Failure | None = None
    trouble: str | None = None
    pause: float = 0.0
    retry_at: float = 0.0

    @property
    def rank(self) -> Rank:
        return rank_of(self.version)

    @property
    def file(self) -> tuple[Name, str, str]:
        """The key that two announcements of one file share."""
        return name_of(self.version), self.version.location, self.version.sha256


@dataclass(slots=True)
class Choice:
    """The newest versions of one space and learner that are above the serving one.

    For any order and number of announcements, the highest (generation, epoch, step) is served, or the highest of those
    that can be loaded; and the serving version is never followed by a lower one.

    Parameters
    ----------
    kept : how many versions are held at most. Versions that failed are dropped before untried ones.
    """

    kept: int = KEPT
    _serving: Rank | None = None
    _above: list[Candidate] = field(default_factory=list)
    _announced: Name = UNLEARNED
    _withheld: Withheld | None = None

    @property
    def withheld(self) -> Withheld | None:
        """The newest model that its learner withholds; None if none is above the announced ones."""
        found = self._withheld
        return None if found is None or Name(*found[:3]) <= self._announced else found

    def note(self, withheld: Withheld | None) -> None:
        """Take the note of an announcement; an older one changes nothing."""
        if withheld is not None and (self._withheld is None or withheld[:3] >= self._withheld[:3]):
            self._withheld = withheld

    @property
    def announced(self) -> Name:
        """The highest name that was ever announced."""
        return self._announced

    @property
    def trouble(self) -> str | None:
        """Why the best of the tried versions was not loaded; None if all were."""
        return next((one.trouble for one in self._above if one.trouble is not None), None)

    def take(self, version: ModelVersion, where: str = "") -> bool:
        """An announcement; returns whether there is now something new to load."""
        if version.epoch < 0:
            return False  # only a refused block has named that space
        found = Candidate(version, where)
        self._announced = max(self._announced, found.rank[0])
        if self._serving is not None and found.rank <= self._serving:
            return False
        for other in self._above:
            if other.rank == found.rank or (other.file == found.file and other.rank > found.rank):
                return False
            if other.file == found.file:
                # The same file announced again: its state is kept.
                other.version, other.where = version, where
                self._above.sort(key=lambda one: one.rank, reverse=True)
                return True
        self._above = sorted([*self._above, found], key=lambda one: one.rank, reverse=True)
        if len(self._above) > self.kept:
            tried = [one for one in self._above[1:] if one.failure is not None]
            self._above.remove((tried or self._above)[-1])
        return found in self._above

    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates for loading, the best first."""
        return tuple(self._above)

    def wanted(self) -> tuple[ModelVersion, ...]:
        """The versions of the candidates."""
        return tuple(one.version for one in self._above)

    def serves(self, model: Model) -> None:
        """A version was loaded and serves from now on."""
        assert model.version is not None
        self._serving = rank_of(model.version)
        self._above = [one for one in self._above if one.rank > self._serving]
