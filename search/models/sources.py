"""Where announcements of models come from: the checkpoint store itself, looked at now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event
from typing import Protocol

from kinstream.search.models.choice import Announcement
from kinstream.streams.errors import CheckpointError
from kinstream.streams.operations.checkpoints import Agent
from kinstream.streams.operations.models import checkpointed
from kinstream.streams.secrets import hide
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.follower")


class Source(Protocol):
    """Announcements in any order, as often as they come.

    Attributes
    ----------
    caught_up : whether all that was announced before the start has been handed out.
    contact : when the source last answered, on its clock; None before it did.
    trouble : what goes wrong now, in one sentence.
    unreadable : how many announcements could not be read.
    """

    caught_up: bool
    contact: float | None
    trouble: str | None
    unreadable: int

    def open(self) -> None:
        """Begin. Raises SettingsError where the settings name no source."""

    def poll(self, seconds: float, learners: Iterable[str], stop: Event) -> list[Announcement]:
        """What was announced since the last call; waits up to `seconds` for something, or until `stop` is set.

        `learners` are those that are asked for. Outages are `trouble`, and never an error.
        """

    def close(self) -> None:
        """End."""


class CheckpointSource:
    """The newest checkpoints of the learners that are asked for. Needs no brokers.

    Parameters
    ----------
    settings : where checkpoints lie.
    interval : seconds from one look at the store to the next.
    clock : monotonic, in seconds.
    """

    def __init__(
        self, settings: Settings, interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.caught_up = False
        self.contact: float | None = None
        self.trouble: str | None = None
        self.unreadable = 0
        self._settings = settings
        self._interval = interval
        self._clock = clock
        self._due = clock()
        self._asked: frozenset[str] = frozenset()

    def open(self) -> None:
        """Nothing is to be opened."""

    def poll(self, seconds: float, learners: Iterable[str], stop: Event) -> list[Announcement]:
        asked = frozenset(learners)
        if asked <= self._asked:
            # Whoever asks for another learner does not wait for the next look.
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
                for version in checkpointed(self._settings, Agent("learner", learner, pinned)):
                    found.append(Announcement(version, f"checkpoint {version.location}"))
            except (CheckpointError, OSError) as error:
                troubles.append(hide(str(error)))
            # Manifests and birth records come from elsewhere, as records do.
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
        """Nothing is to be closed."""
