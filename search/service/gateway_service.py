"""The gateway without its HTTP: the spaces of the settings, with the newest models of their learners."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kinstream.search.drafts.drafts import Drafts, drafts_of
from kinstream.search.drafts.randomising import randomising_of
from kinstream.search.drafts.serving_choice import Deciding
from kinstream.search.queries.query_pair import Gated
from kinstream.search.backends.store import GatewaySpace
from kinstream.search.models.feed import ModelFeed
from kinstream.search.queries.adapter import query_loader
from kinstream.search.queries.model import QueryModel
from kinstream.search.service.service import Waiting, notes_on, threads_of
from kinstream.search.stores import kinds
from kinstream.search.stores.base import Place, Store
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.checks import check_space
from kinstream.streams.settings import GatewaySettings, GatewaySpaceSettings, Settings
from kinstream.streams.worker.page.server import Check, Health

#: A check of a store that takes longer than so many seconds, and so many answers of the store, does not end.
HUNG_SECONDS: Final = 60.0
HUNG_ANSWERS: Final = 10


class GatewayService:
    """The spaces of the settings. Call `start`, then its spaces from any thread, then `stop`.

    Parameters
    ----------
    models : the feed of models; by default that of the settings' brokers, if a space follows a learner.
    create : a store from its kind and place.

    Raises
    ------
    SettingsError : no space is named, or one cannot be served with its settings.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        models: ModelFeed | None = None,
        create: Callable[[str, Place], Store] = kinds.create,
    ) -> None:
        self.limits: GatewaySettings = settings.gateway
        sections = self.limits.spaces
        if not sections:
            raise SettingsError('no store to ask: name a space, as [gateway.spaces.NAME] store = "pgvector"')
        follows = any(section.learner is not None for section in sections.values())
        self.models = models
        if models is None and follows:
            self.models = ModelFeed(settings, loader=query_loader(settings))
        self.spaces: dict[str, GatewaySpace] = {}
        for name, section in sections.items():
            try:
                check_space(name)
                store = create(section.store, place_of(section, self.limits))
                pinned = None if section.model is None else QueryModel.from_file(section.model)
            except BadRecord as error:
                raise SettingsError(f"gateway.spaces: {error.detail}") from None
            except SettingsError as error:
                raise type(error)(f"gateway.spaces.{name}: {error}") from None
            subscription = None
            if section.learner is not None and self.models is not None:
                subscription = self.models.subscribe(name, section.learner)
            gated, drafts = self._gate(settings, name, section)
            self.spaces[name] = GatewaySpace(
                name,
                section.store,
                section.collection,
                store,
                subscription,
                pinned,
                gated,
                drafts,
                randomising_of(settings, name),
                threads_of(self.limits),
            )
        self.health = Health(
            live=[
                Check("feeds", lambda: self.failure is None),
                # A store that is away fails its check in time; a check that does not end is the process's fault.
                Check("seconds since a check of stores", self._unchecked_seconds, self._hung_seconds()),
            ],
            ready=[Check(name, value) for name, value in self._checks()],
            about={"agent": "gateway", "pid": os.getpid()},
            notes=lambda: notes_on(one.subscription for one in self.spaces.values() if one.subscription),
        )

    def _gate(
        self, settings: Settings, name: str, section: GatewaySpaceSettings
    ) -> tuple[Gated | None, Drafts | None]:
        """The decisions on a space, and its drafted lists, if the settings have a gate for it."""
        if name not in settings.gate:
            return None, None
        if section.learner is None or self.models is None:
            raise SettingsError(
                f"gateway.spaces.{name}: model pins a file, and [gate.{name}] decides who serves: name the learner "
                f"in place of model, or remove [gate.{name}]"
            )
        deciding = Deciding(name, section.learner, self.models)
        return Gated(section.learner, deciding), drafts_of(settings, name)

    # ---- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow models, and to check stores."""
        if self.models is not None:
            self.models.start()
        for space in self.spaces.values():
            space.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the threads; wait up to that long for them."""
        limit = time.monotonic() + seconds
        for space in self.spaces.values():
            space.stop(max(0.0, limit - time.monotonic()))
        if self.models is not None:
            self.models.close(max(0.0, limit - time.monotonic()))

    @property
    def served(self) -> Iterable[str]:
        """The names of its spaces."""
        return self.spaces

    @property
    def failure(self) -> BaseException | None:
        """Why the gateway cannot continue and must be restarted."""
        return None if self.models is None else self.models.fault

    # ---- readiness --------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether every space can be answered for."""
        return all(space.ready for space in self.spaces.values())

    def _checks(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        yield "models", lambda: all(space.loaded for space in self.spaces.values())
        yield "stores", lambda: all(space.trouble is None for space in self.spaces.values())

    def _unchecked_seconds(self) -> float:
        return max(space.unchecked_seconds for space in self.spaces.values())

    def _hung_seconds(self) -> float:
        return HUNG_SECONDS + HUNG_ANSWERS * self.limits.store_seconds

    def waiting_for(self) -> list[Waiting]:
        """What the gateway is waiting for; empty once it is ready."""
        found = [] if self.failure is None else [Waiting("a restart", str(self.failure))]
        for space in self.spaces.values():
            if not space.loaded:
                staleness = space.staleness()
                why = None if staleness is None else staleness.trouble
                found.append(Waiting(f"models of {space.name!r} under {space.newest.learner!r}", why))
            if space.trouble is not None:
                found.append(Waiting(f"the store of {space.name!r}", space.trouble))
        return found


def place_of(section: GatewaySpaceSettings, limits: GatewaySettings) -> Place:
    """Where the items of a space lie."""
    return Place(
        section.connect_by(),
        section.collection,
        section.distance,
        section.columns,
        # Nothing waits longer for a request.
        min(limits.store_seconds, limits.request_seconds),
        section.options,
    )
