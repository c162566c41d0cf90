"""The service without its HTTP: the spaces of the settings, with the newest models of their learners."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kinstream.search.backends.base import Space, Waiting
from kinstream.search.feedback.recorder import recorder_of
from kinstream.search.feedback.writer import Writer
from kinstream.search.models.attempts import Loads
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.loader import Loader
from kinstream.search.models.model import Model
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.checks import check_space
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import ServeSettings, Settings
from kinstream.streams.worker.page.server import Check, Health

if TYPE_CHECKING:
    from kinstream.search.backends.indexes import Indexes
    from kinstream.search.backends.store import StoreSpace
    from kinstream.search.stores.base import Place, Store

#: A check of a store that takes longer than so many seconds, and so many answers of the store, does not end.
HUNG_SECONDS: Final = 60.0
HUNG_ANSWERS: Final = 10
#: Threads by default of a service that mostly waits for stores.
_WAITING_THREADS: Final = 16


class Service:
    """The spaces of the settings. Call `start`, then its spaces from any thread, then `stop`.

    Packages that only one backend needs are imported if a space has that backend.

    Parameters
    ----------
    models : the feed of models; by default that of the settings' brokers, if a space follows a learner.
    create : a store from its kind and place.
    writer : of what is shown and of feedback; by default to the settings' brokers, if a space has `record`.
    events, updates : as `kinstream.search.backends.indexes.Indexes` takes them.

    Attributes
    ----------
    indexes : the spaces with our own index; None if there are none.
    stores : the spaces with a store.
    health : what `/livez` and `/readyz` answer.

    Raises
    ------
    SettingsError : no space is named, or one cannot be served with its settings.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        models: ModelFeed | None = None,
        create: Callable[[str, Place], Store] | None = None,
        events: Callable[..., Any] | None = None,
        updates: Callable[..., Any] | None = None,
        writer: Writer | None = None,
    ) -> None:
        self.settings = settings
        self.limits: ServeSettings = settings.serve
        sections = self.limits.spaces
        if not sections:
            raise SettingsError('nothing to serve: name a space, as [serve.spaces.NAME] learner = "NAME"')
        for name in sections:
            try:
                check_space(name)
            except BadRecord as error:
                raise SettingsError(f"serve.spaces: {error.detail}") from None
        self.models = models
        if models is None and any(section.learner is not None for section in sections.values()):
            self.models = ModelFeed(settings, loader=_loader(settings))
        self.stores: dict[str, StoreSpace] = self._stores(create)
        self.indexes: Indexes | None = self._indexes(events, updates)
        own = {} if self.indexes is None else self.indexes.spaces
        self.spaces: dict[str, Space] = {
            name: self.stores[name] if name in self.stores else own[name] for name in sections
        }
        self.writer = self._record(writer)
        self.health = Health(
            live=list(self._live()),
            ready=list(self._checks()),
            about={"agent": "serve", "pid": os.getpid()},
            notes=lambda: [note for one in self.spaces.values() for note in one.notes()],
        )

    def _stores(self, create: Callable[[str, Place], Store] | None) -> dict[str, StoreSpace]:
        if not self.limits.stored:
            return {}
        from kinstream.search.backends.ranked import RankedSpace
        from kinstream.search.backends.store import StoreSpace
        from kinstream.search.stores import kinds

        shared = (self.models, threads_of(self.limits), create or kinds.create)
        return {
            name: (RankedSpace if section.ranks else StoreSpace)(self.settings, name, section, *shared)
            for name, section in self.limits.stored.items()
        }

    def _indexes(
        self, events: Callable[..., Any] | None, updates: Callable[..., Any] | None
    ) -> Indexes | None:
        if not self.limits.indexed:
            return None
        from kinstream.search.backends.index import IndexSpace
        from kinstream.search.backends.indexes import Indexes

        models = self.models
        assert models is not None
        spaces = {
            name: IndexSpace(self.settings, name, section, models)
            for name, section in self.limits.indexed.items()
        }
        return Indexes(self.settings, spaces, events, updates)

    def _record(self, writer: Writer | None) -> Writer | None:
        recorded = self.settings.recorded
        if not recorded:
            return None
        if writer is None:
            writer = Writer(self.settings.kafka, self.settings.topic("feedback"))
        for name in recorded:
            self.spaces[name].recorder = recorder_of(self.settings, name, writer)
        return writer

    # ---- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow models and catalogues, to check stores, and to write what is shown."""
        if self.writer is not None:
            self.writer.start()
        if self.models is not None:
            self.models.start()
        if self.indexes is not None:
            self.indexes.start()
        for space in self.stores.values():
            space.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the threads; wait up to that long for them."""
        limit = time.monotonic() + seconds
        if self.writer is not None:
            self.writer.stop(max(0.0, limit - time.monotonic()))
        for space in self.stores.values():
            space.stop(max(0.0, limit - time.monotonic()))
        if self.indexes is not None:
            self.indexes.stop(max(0.0, limit - time.monotonic()))
        if self.models is not None:
            self.models.close(max(0.0, limit - time.monotonic()))

    @property
    def failure(self) -> BaseException | None:
        """Why the service cannot continue and must be restarted."""
        indexes = None if self.indexes is None else self.indexes.failure
        return indexes or (None if self.models is None else self.models.fault)

    # ---- health -----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether every space can be answered for."""
        read_up = self.indexes is None or self.indexes.read_up()
        return read_up and all(space.ready for space in self.spaces.values())

    def _live(self) -> Iterator[Check]:
        """What a restart would repair. No store is asked."""
        yield Check("feeds", lambda: self.failure is None)
        yield Check("threads", self._alive)
        if self.stores:
            # A store that is away fails its check in time; a check that does not end is the process's fault.
            limit = HUNG_SECONDS + HUNG_ANSWERS * self.limits.store_seconds
            yield Check("seconds since a check of stores", self._unchecked_seconds, limit)

    def _alive(self) -> bool:
        stores = all(space.alive for space in self.stores.values())
        return stores and (self.indexes is None or self.indexes.alive)

    def _unchecked_seconds(self) -> float:
        return max(space.unchecked_seconds for space in self.stores.values())

    def _checks(self) -> Iterator[Check]:
        indexes = self.indexes
        if indexes is not None:
            yield Check("catalogues", lambda: indexes.events.caught_up)
        yield Check("models", lambda: all(space.known for space in self.spaces.values()))
        if indexes is not None:
            yield Check(
                "indexes", lambda: indexes.read_up() and all(one.ready for one in indexes.spaces.values())
            )
        if self.stores:
            yield Check("stores", lambda: all(space.trouble is None for space in self.stores.values()))

    def waiting_for(self) -> list[Waiting]:
        """What the service is waiting for; empty once it is ready."""
        found = [] if self.failure is None else [Waiting("a restart", str(self.failure))]
        if self.indexes is not None:
            found += self.indexes.waiting_for()
        for space in self.spaces.values():
            found += space.waiting_for()
        return found


class _Loaders:
    """Loads whole models for our own index, and query maps for stores.

    Parameters
    ----------
    stored : the spaces with a store.
    """

    def __init__(self, loader: Loads, query_loader: Loads, stored: Mapping[str, Any]) -> None:
        self._loader, self._query_loader, self._stored = loader, query_loader, stored

    def load(self, version: ModelVersion, present: Model) -> Model:
        loader = self._query_loader if version.space in self._stored else self._loader
        return loader.load(version, present)


def _loader(settings: Settings) -> Loads:
    from kinstream.search.queries.adapter import query_loader

    return _Loaders(Loader(settings), query_loader(settings), settings.serve.stored)


def threads_of(limits: ServeSettings) -> int:
    """How many requests are processed at the same time."""
    return limits.threads or (_WAITING_THREADS if limits.stored else os.cpu_count() or 1)
