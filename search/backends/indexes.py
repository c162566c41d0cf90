"""The spaces with an index of ours, kept up to date from the topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from kinstream.search.backends.base import Waiting
from kinstream.search.backends.index import IndexSpace, Rebuilt
from kinstream.search.spaces.catalogue import Changed
from kinstream.search.spaces.feed import EventsFeed
from kinstream.search.spaces.recall import RecallSampler
from kinstream.search.spaces.searcher import Answer, Searcher
from kinstream.search.updates.feed import UpdatesFeed
from kinstream.streams.records.values import ModelUpdate, Vectors
from kinstream.streams.settings import Settings

_LOOK_SECONDS: Final = 0.05
#: The same once nothing has come for a while.
_IDLE_LOOK_SECONDS: Final = 0.45
_IDLE_AFTER_SECONDS: Final = 10.0


class Indexes:
    """Reads catalogues and updates, and keeps each index on its newest model. Call `start`, then `stop`.

    Parameters
    ----------
    events, updates : make the feeds; those of the settings' brokers by default.
    """

    def __init__(
        self,
        settings: Settings,
        spaces: Mapping[str, IndexSpace],
        events: Callable[..., EventsFeed] | None = None,
        updates: Callable[..., UpdatesFeed] | None = None,
    ) -> None:
        limits = settings.serve
        self.spaces = spaces
        sources = {name: limits.spaces[name].catalogue for name in spaces}
        self.events = (events or EventsFeed)(settings, sources, self._apply, limits.redrives_of)
        stepping = [name for name, space in spaces.items() if space.stepping is not None]
        self.updates = (updates or UpdatesFeed)(settings, stepping, self._update)
        self.recall = RecallSampler(limits.recall_every)
        for name, space in spaces.items():
            space.partition = partial(self.events.partition, name)
            space.answered = self._answered
        self._stopping = threading.Event()
        rebuilt = [one for space in spaces.values() for one in space.indexes]
        self._threads = [
            threading.Thread(target=self._refresh, args=(one,), name=f"kinstream-index-{number}", daemon=True)
            for number, one in enumerate(rebuilt)
        ]
        self._loaded = False
        #: When something was last to be followed.
        self._moved_at = time.monotonic()

    def start(self) -> None:
        """Begin to read."""
        self.events.start()
        self.updates.start()
        self.recall.start()
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """End the threads; wait up to that long for them."""
        limit = time.monotonic() + seconds
        self._stopping.set()
        self.recall.stop()
        self.updates.stop(max(0.0, limit - time.monotonic()))
        self.events.stop(max(0.0, limit - time.monotonic()))
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, limit - time.monotonic()))

    @property
    def failure(self) -> BaseException | None:
        """Why catalogues cannot be followed any more."""
        return self.events.failure

    @property
    def alive(self) -> bool:
        """Whether no thread has ended that should run."""
        return self._stopping.is_set() or all(
            one.is_alive() for one in self._threads if one.ident is not None
        )

    def read_up(self) -> bool:
        """Whether catalogues and models have once been read up to the ends that the topics had at the start."""
        if not self._loaded:
            self._loaded = self.events.caught_up and all(space.known for space in self.spaces.values())
        return self._loaded

    def waiting_for(self) -> Iterator[Waiting]:
        """Parts of the log that are not read up."""
        if not self.events.caught_up:
            yield from map(Waiting, self.events.waiting_for)

    def _apply(self, space: str, changed: list[Changed]) -> None:
        self._moved_at = time.monotonic()
        self.spaces[space].apply(changed)

    def _update(self, update: ModelUpdate) -> None:
        space = self.spaces.get(update.space)
        if space is not None and space.stepping is not None:
            self._moved_at = time.monotonic()
            space.stepping.give(update)

    def _refresh(self, one: Rebuilt) -> None:
        while not self._stopping.wait(self._pause()):
            if self.read_up():
                one.follow()
            if not self._loaded or one.behind_since is not None:
                self._moved_at = time.monotonic()

    def _pause(self) -> float:
        idle = time.monotonic() - self._moved_at > _IDLE_AFTER_SECONDS
        return _IDLE_LOOK_SECONDS if idle else _LOOK_SECONDS

    def _answered(self, space: str, searcher: Searcher, rows: Vectors | None, answer: Answer) -> None:
        if rows is not None:
            self.recall.offer(searcher, rows, answer)
