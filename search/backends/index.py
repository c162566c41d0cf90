"""The query agent without its HTTP: the spaces of the settings, kept up to date from the topics."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kinstream.search.agent.drafted_search import Drafting, candidate_model, serving_model
from kinstream.search.drafts.drafts import drafts_of
from kinstream.search.drafts.randomising import Randomising, randomising_of
from kinstream.search.drafts.serving_choice import Deciding
from kinstream.search.index.engines import ONLINE, Plan, check
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Model
from kinstream.search.models.subscription import FollowerStopped, Subscription
from kinstream.search.service.service import Waiting, notes_on
from kinstream.search.spaces.catalogue import Changed
from kinstream.search.spaces.feed import EventsFeed
from kinstream.search.spaces.recall import RecallSampler
from kinstream.search.spaces.searcher import Searcher
from kinstream.search.updates.feed import UpdatesFeed
from kinstream.search.updates.follow import Stepping
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.checks import check_space
from kinstream.streams.records.values import ModelUpdate
from kinstream.streams.settings import SearchSettings, Settings
from kinstream.streams.worker.page.server import Check, Health

log = logging.getLogger("kinstream.search")

_LOOK_SECONDS: Final = 0.05
#: Seconds to wait after a failed build.
_AGAIN_SECONDS: Final = 5.0


@dataclass(slots=True)
class Served:
    """One space of the agent.

    Parameters
    ----------
    behind_since : by the monotonic clock, when a newer model than the serving one became known; None if there is none.
    trouble : why the newest model cannot be taken over; None if there is no error.
    stepping, newest : of a space with updates.
    drafting : of a space with a gate.
    randomising : of a space with randomised lists.
    """

    searcher: Searcher
    subscription: Subscription
    behind_since: float | None = None
    trouble: str | None = None
    stepping: Stepping | None = None
    newest: _Newest | None = None
    drafting: Drafting | None = None
    randomising: Randomising | None = None
    next_build: float = field(default=0.0)

    @property
    def space(self) -> str:
        return self.searcher.space

    @property
    def learner(self) -> str:
        return self.subscription.learner

    @property
    def behind(self) -> bool:
        """Whether a newer model than the serving one was announced; it may not be taken over yet, or not be loadable.
        With a gate, whether another model is to serve by its decision."""
        if self.drafting is not None:
            return self.drafting.deciding.now().missing or self.searcher.behind
        # In this order: the second check sees a model that is loaded between the two.
        return self.subscription.staleness().behind or self.searcher.behind

    @property
    def nbytes(self) -> int:
        """Bytes of vectors and indexes."""
        candidate = 0 if self.drafting is None else self.drafting.candidate.nbytes
        return self.searcher.nbytes + candidate

    @property
    def known(self) -> bool:
        """Whether all models from before the start are known; with a gate, also those that it has named."""
        tried = self.drafting is None or self.drafting.deciding.tried
        return self.subscription.caught_up and tried

    def stale_seconds(self) -> float:
        """How long a newer model has been known without serving."""
        since = self.behind_since
        return 0.0 if since is None else max(0.0, time.monotonic() - since)


class SearchService:
    """Catalogues, models and indexes of all spaces. Call `start`, then its searchers from any thread, then `stop`.

    Parameters
    ----------
    models, events, updates : the feeds; those of the settings' brokers by default.

    Raises
    ------
    SettingsError : no space is named, or one cannot be served with its settings.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        models: ModelFeed | None = None,
        events: Callable[..., EventsFeed] = EventsFeed,
        updates: Callable[..., UpdatesFeed] = UpdatesFeed,
    ) -> None:
        self.settings = settings
        self.limits: SearchSettings = settings.search
        if not self.limits.spaces:
            raise SettingsError('nothing to search: name a space, as [search.spaces.NAME] learner = "NAME"')
        self.models = models or ModelFeed(settings)
        self.spaces: dict[str, Served] = {}
        for name, section in self.limits.spaces.items():
            try:
                check_space(name)
            except BadRecord as error:
                raise SettingsError(f"search.spaces: {error.detail}") from None
            plan = Plan(section.index, section.options)
            check(plan, settings, section.learner, f"search.spaces.{name}")
            if section.updates and plan.index not in ONLINE:
                raise SettingsError(f"search.spaces.{name}: updates are for the index lazy")
            if section.updates and name in settings.gate:
                raise SettingsError(
                    f"search.spaces.{name}: updates follow the newest model, and [gate.{name}] decides who serves: "
                    "remove updates, or the gate"
                )
            if name in settings.gate:
                self.spaces[name] = self._gated(name, plan, section.learner)
                continue
            subscription = self.models.subscribe(name, section.learner)
            stepping = Stepping(name, section.learner) if section.updates else None
            newest = _Newest(subscription, stepping)
            searcher = Searcher(name, plan, newest)
            self.spaces[name] = Served(
                searcher,
                subscription,
                stepping=stepping,
                newest=newest,
                randomising=randomising_of(settings, name),
            )
        sources = {name: section.catalogue for name, section in self.limits.spaces.items()}
        self.events = events(settings, sources, self._apply, self.limits.redrives_of)
        self.updates = updates(
            settings, [name for name, one in self.spaces.items() if one.stepping], self._update
        )
        self.recall = RecallSampler(self.limits.recall_every)
        self._stopping = threading.Event()
        candidates = [
            Served(one.drafting.candidate, one.subscription)
            for one in self.spaces.values()
            if one.drafting is not None
        ]
        self._threads = [
            threading.Thread(target=self._refresh, args=(served,), name=f"kinstream-index-{n}", daemon=True)
            for n, served in enumerate([*self.spaces.values(), *candidates])
        ]
        self._loaded = False
        self.health = Health(
            live=[Check("feeds", lambda: self.failure is None)],
            ready=[Check(name, value) for name, value in self._checks()],
            about={"agent": "search", "pid": os.getpid()},
            notes=lambda: notes_on(one.subscription for one in self.spaces.values()),
        )

    def _gated(self, name: str, plan: Plan, learner: str) -> Served:
        """A space with a gate: an index of the model that serves by decision, and one of the candidate."""
        deciding = Deciding(name, learner, self.models)
        candidate = Searcher(name, plan, candidate_model(deciding))
        drafting = Drafting(deciding, drafts_of(self.settings, name), candidate)
        searcher = Searcher(name, plan, serving_model(deciding))
        subscription = self.models.subscribe(name, learner)
        randomising = randomising_of(self.settings, name)
        return Served(searcher, subscription, drafting=drafting, randomising=randomising)

    @property
    def served(self) -> Iterable[str]:
        """The names of its spaces."""
        return self.spaces

    # ---- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        self.models.start()
        self.events.start()
        self.updates.start()
        self.recall.start()
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the threads; wait up to that long for them."""
        limit = time.monotonic() + seconds
        self._stopping.set()
        self.recall.stop()
        self.updates.stop(max(0.0, limit - time.monotonic()))
        self.events.stop(max(0.0, limit - time.monotonic()))
        self.models.close(max(0.0, limit - time.monotonic()))
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, limit - time.monotonic()))

    @property
    def failure(self) -> BaseException | None:
        """Why the agent cannot continue and must be restarted."""
        return self.events.failure or self.models.fault

    def _apply(self, space: str, changed: list[Changed]) -> None:
        served = self.spaces[space]
        served.searcher.apply(changed)
        if served.drafting is not None:
            served.drafting.candidate.apply(changed)

    def _update(self, update: ModelUpdate) -> None:
        served = self.spaces.get(update.space)
        if served is not None and served.stepping is not None:
            served.stepping.give(update)

    def _refresh(self, served: Served) -> None:
        """Keep one space's index on the newest model."""
        while not self._stopping.wait(_LOOK_SECONDS):
            if not self._read_up():
                continue
            try:
                self._follow(served)
            except Exception as error:
                served.trouble = f"{type(error).__name__}: {error}"
                served.searcher.counts["failed"] += 1
                log.exception("space %r: the newest model could not be taken over", served.space)
                served.next_build = time.monotonic() + _AGAIN_SECONDS

    def _follow(self, served: Served) -> None:
        served.searcher.loaded()
        if served.stepping is not None and served.newest is not None:
            served.stepping.advance(served.newest.announced(), served.searcher)
        if not served.searcher.behind:
            served.behind_since = served.trouble = None
            return
        served.behind_since = served.behind_since or time.monotonic()
        if time.monotonic() < served.next_build and served.searcher.ready:
            return
        began = time.monotonic()
        served.searcher.refresh()
        # A model that arrived meanwhile is newer than the serving one, and has been known since now at the earliest.
        served.behind_since = began
        # At most half of the time goes into building.
        pause = max(self.limits.rebuild_seconds, served.searcher.build_seconds)
        served.next_build = time.monotonic() + pause

    def _read_up(self) -> bool:
        """Whether catalogues and models have once been read up to the ends that the topics had at the start."""
        if not self._loaded:
            self._loaded = self.events.caught_up and all(one.known for one in self.spaces.values())
        return self._loaded

    # ---- readiness ----------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether every space can be searched."""
        return self._read_up() and all(served.searcher.ready for served in self.spaces.values())

    def _checks(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        yield "catalogues", lambda: self.events.caught_up
        yield "models", lambda: all(one.known for one in self.spaces.values())
        yield "indexes", lambda: self.ready

    def waiting_for(self) -> list[Waiting]:
        """What the agent is waiting for; empty once it is ready."""
        found = [] if self.failure is None else [Waiting("a restart", str(self.failure))]
        if not self.events.caught_up:
            found += map(Waiting, self.events.waiting_for)
        for served in self.spaces.values():
            staleness = served.subscription.staleness()
            if not served.known:
                found.append(
                    Waiting(f"models of {served.space!r} under {served.learner!r}", staleness.trouble)
                )
            elif not served.searcher.ready:
                found.append(Waiting(f"the index of {served.space!r}", served.trouble))
        return found


class _Newest:
    """The newest model of a subscription, or the result of its updates; the last one if the follower has stopped."""

    def __init__(self, subscription: Subscription, stepping: Stepping | None) -> None:
        self._subscription = subscription
        self._stepping = stepping
        self._last = Model()

    def announced(self) -> Model:
        # The service ends because of the failure; until then it answers.
        try:
            model = self._subscription.model
        except FollowerStopped:
            return self._last
        self._last = model
        return model

    def __call__(self) -> Model:
        model = self.announced()
        return model if self._stepping is None else self._stepping.newer(model)
