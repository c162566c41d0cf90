"""Sources of model announcements; here the checkpoint store itself, read at intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import Protocol

from kinstream.search.models.choice import Announcement
from kinstream.search.models.decisions import Decisions
from kinstream.streams.errors import CheckpointError
from kinstream.streams.operations.checkpoints import Agent
from kinstream.streams.operations.models import checkpointed
from kinstream.streams.secrets import hide
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.follower")


class Source(Protocol):
    """A source of announcements, in any order and with repeats.

    Attributes
    ----------
    caught_up : whether all announcements from before the start have been returned.
    contact : when the source last answered, on its clock; None before it did.
    trouble : the current error, in one sentence.
    unreadable : how many announcements could not be read.
    decisions : of the gate, where the source has decisions.
    """

    caught_up: bool
    contact: float | None
    trouble: str | None
    unreadable: int
    decisions: Decisions

    def open(self) -> None:
        """Begin. Raises SettingsError if the settings name no source."""

    def poll(self, seconds: float, learners: Iterable[str], stop: Event) -> list[Announcement]:
        """The announcements since the last call; waits up to `seconds` for one, or until `stop` is set.

        `learners` are the requested ones. Outages are reported in `trouble` and never raised.
        """

    def close(self) -> None:
        """End."""


class CheckpointSource:
    """The newest checkpoints of the requested learners. Needs no brokers.

    Parameters
    ----------
    settings : the checkpoint store.
    interval : seconds between two reads of the store.
    clock : monotonic, in seconds.
    """

    def __init__(
        self, settings: Settings, interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.caught_up = False
        self.contact: float | None = None
        self.trouble: str | None = None
        self.unreadable = 0
        #: Checkpoints of learners hold none.
        self.decisions = Decisions()
        self._settings = settings
        self._interval = interval
        self._clock = clock
        self._due = clock()
        self._asked: frozenset[str] = frozenset()

    def open(self) -> None:
        """There is nothing to open."""

    def poll(self, seconds: float, learners: Iterable[str], stop: Event) -> list[Announcement]:
        asked = frozenset(learners)
        if asked <= self._asked:
            # A new learner does not wait for the next interval.
            wait = min(seconds, self._due - self._clock())
            if wait > 0.0:
                stop.wait(wait)
            if stop.is_set() or self._clock() < self._due:
                return []
        self._asked, self._due = asked, self._clock() + self._interval
        found: list[Announcement] = []
        troubles = []
        for learner in sorted(asked):
            section = self._settings.learners.get(learner)
            pinned = None if section is None else section.generation
            try:
                for one in checkpointed(self._settings, Agent("learner", learner, pinned)):
                    version = one.announced
                    if version is not None:
                        found.append(Announcement(version, f"checkpoint {version.location}", one.withheld))
            except (CheckpointError, OSError) as error:
                troubles.append(hide(str(error)))
            # Manifests and birth records come from elsewhere and may be faulty, as records may.
            except Exception as error:
                self.unreadable += 1
                text = hide(f"checkpoints of learner {learner!r}: {error!r}")
                if text not in (self.trouble or ""):
                    log.exception("the checkpoints of learner %r cannot be read", learner)
                troubles.append(text)
        self.trouble = "; ".join(troubles) or None
        if not troubles:
            self.contact, self.caught_up = self._clock(), True
        return found

    def close(self) -> None:
        """There is nothing to close."""
