"""Announcements that a test makes, and a clock that it moves."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Condition, Event

from kinstream.search.models.choice import Announcement
from kinstream.search.models.decisions import Decisions
from kinstream.streams.records.values import ModelVersion


class Clock:
    """Seconds, that pass only where a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class ListSource:
    """A source that hands out what `announce` is given. While it is not complete, it is not caught up."""

    def __init__(self) -> None:
        self.complete = True
        self.caught_up = False
        self.contact: float | None = None
        self.trouble: str | None = None
        self.unreadable = 0
        self.decisions = Decisions()
        self.opened = self.closed = False
        self.error: BaseException | None = None
        self._changed = Condition()
        self._waiting: list[Announcement] = []
        self._offset = 0

    def open(self) -> None:
        self.opened = True

    def announce(self, *versions: ModelVersion) -> None:
        with self._changed:
            for version in versions:
                self._waiting.append(Announcement(version, f"models partition 0 offset {self._offset}"))
                self._offset += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def poll(self, seconds: float, learners: Iterable[str], stop: Event) -> list[Announcement]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.error or stop.is_set(), min(seconds, 0.02))
            if self.error is not None:
                raise self.error
            found, self._waiting = self._waiting, []
            self.caught_up = self.caught_up or self.complete
            return found

    def close(self) -> None:
        self.closed = True
