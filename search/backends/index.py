"""A space whose items are in an index of ours, from `kinstream.events`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from kinstream.search.backends.base import (
    Found,
    Query,
    Side,
    Space,
    TooLarge,
    Unsupported,
    Used,
    Waiting,
    gate_state,
)
from kinstream.search.drafts.serving_choice import Decided, Deciding
from kinstream.search.index.engines import ONLINE, IndexPlan, check
from kinstream.search.index.items import Modalities
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Model, Name
from kinstream.search.models.subscription import FollowerStopped, Subscription
from kinstream.search.spaces.catalogue import Changed
from kinstream.search.spaces.errors import NotReady, UnknownItem, WrongDimension
from kinstream.search.spaces.searcher import Answer, Searcher, Standing
from kinstream.search.updates.follow import Stepping
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import ServeSpaceSettings, Settings

log = logging.getLogger("kinstream.serve")

#: Attempts to ask both indexes in the same state of the catalogue.
_ATTEMPTS: Final = 3
#: Seconds to wait after a failed build.
_AGAIN_SECONDS: Final = 5.0
_RAW: Final = Model()


class Rebuilt:
    """An index that a thread keeps on its newest model.

    Attributes
    ----------
    behind_since : by the monotonic clock, when a newer model than the serving one became known; None if there is none.
    trouble : why the newest model cannot be taken over; None if there is no error.
    """

    #: Least seconds between two builds.
    pause: ClassVar[float] = 1.0

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.behind_since: float | None = None
        self.trouble: str | None = None
        self._next_build = 0.0

    def follow(self) -> None:
        """Take over the newest model, if it is due; a fault is logged, and tried again."""
        try:
            self._follow()
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            self.searcher.counts["failed"] += 1
            log.exception("space %r: the newest model could not be taken over", self.searcher.space)
            self._next_build = time.monotonic() + _AGAIN_SECONDS

    def _follow(self) -> None:
        searcher = self.searcher
        searcher.loaded()
        self._step()
        if not searcher.behind:
            self.behind_since = self.trouble = None
            return
        self.behind_since = self.behind_since or time.monotonic()
        if time.monotonic() < self._next_build and searcher.ready:
            return
        began = time.monotonic()
        searcher.refresh()
        # A model that arrived meanwhile is newer than the serving one, and has been known since now at the earliest.
        self.behind_since = began
        # At most half of the time goes into building.
        self._next_build = time.monotonic() + max(self.pause, searcher.build_seconds)

    def _step(self) -> None:
        """Move the index by what is known between announced models."""


class Stepped(Rebuilt):
    """The same for a learner whose updates are followed."""

    def __init__(self, searcher: Searcher, newest: Newest, stepping: Stepping) -> None:
        super().__init__(searcher)
        self._newest, self._stepping = newest, stepping

    def _step(self) -> None:
        self._stepping.advance(self._newest.announced(), self.searcher)


class Newest:
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


class IndexSpace(Space):
    """Searches our own index. With a gate, a second index is of the candidate.

    Parameters
    ----------
    models : the feed; not started yet.

    Attributes
    ----------
    stepping : of a space with updates.
    candidate : the index of the candidate, of a space with a gate.
    answered : receives the index, the vectors and the answer of every request; `rows` is None for queries by item.

    Raises
    ------
    SettingsError : the space cannot be served with its settings.
    """

    measure = "squared_distance"

    def __init__(self, settings: Settings, name: str, section: ServeSpaceSettings, models: ModelFeed) -> None:
        assert section.learner is not None
        learner, place = section.learner, f"serve.spaces.{name}"
        self.plan = plan = IndexPlan(section.index, section.options)
        check(plan, settings, learner, place)
        gated = name in settings.gate
        if section.updates and plan.index not in ONLINE:
            raise SettingsError(f"{place}: updates are for the index lazy")
        if section.updates and gated:
            raise SettingsError(
                f"{place}: updates follow the newest model, and [gate.{name}] decides who serves: remove updates, or "
                "the gate"
            )
        self._deciding = Deciding(name, learner, models) if gated else None
        self.subscription: Subscription = models.subscribe(name, learner)
        super().__init__(settings, name, learner, self.subscription)
        self.stepping = Stepping(name, learner) if section.updates else None
        newest = Newest(self.subscription, self.stepping)
        self.candidate: Searcher | None = None
        #: The state of the catalogue that answers name.
        self.partition: Callable[[], int | None] = lambda: None
        self.answered: Callable[[str, Searcher, Vectors | None, Answer], None] = lambda *_: None
        if self._deciding is not None:
            self.searcher = Searcher(name, plan, _serving(self._deciding))
            self.candidate = Searcher(name, plan, _candidate(self._deciding))
        else:
            self.searcher = Searcher(name, plan, newest)
        self.rebuilt = (
            Rebuilt(self.searcher) if self.stepping is None else Stepped(self.searcher, newest, self.stepping)
        )
        #: Every index that a thread keeps on its model.
        self.indexes = [self.rebuilt] if self.candidate is None else [self.rebuilt, Rebuilt(self.candidate)]

    # ---- state --------------------------------------------------------------------------------------------------

    @property
    def modalities(self) -> Modalities:
        return self.searcher.modalities

    @property
    def dimension(self) -> int | None:
        return None

    @property
    def known(self) -> bool:
        return self.subscription.caught_up and (self._deciding is None or self._deciding.tried)

    @property
    def ready(self) -> bool:
        return self.searcher.ready

    @property
    def behind(self) -> bool:
        """Whether a newer model than the serving one was announced; it may not be taken over yet, or not be loadable.
        With a gate, whether another model is to serve by its decision."""
        if self._deciding is not None:
            return self._deciding.now().missing or self.searcher.behind
        # In this order: the second check sees a model that is loaded between the two.
        return self.subscription.staleness().behind or self.searcher.behind

    @property
    def serving(self) -> tuple[Name, bool]:
        standing = self.searcher.glance()
        return standing.model, standing.learned

    @property
    def nbytes(self) -> int:
        """Bytes of vectors and indexes."""
        return sum(one.searcher.nbytes for one in self.indexes)

    def decided(self) -> tuple[Decided, bool] | None:
        if self._deciding is None:
            return None
        found = self._deciding.now()
        return found, found.missing

    def stale_seconds(self) -> float:
        """How long a newer model has been known without serving."""
        since = self.rebuilt.behind_since
        return 0.0 if since is None else max(0.0, time.monotonic() - since)

    def waiting_for(self) -> Iterator[Waiting]:
        if not self.known:
            yield Waiting(
                f"models of {self.name!r} under {self.learner!r}", self.subscription.staleness().trouble
            )
        elif not self.ready:
            yield Waiting(f"the index of {self.name!r}", self.rebuilt.trouble)

    def shown(self) -> dict[str, Any]:
        standing, decided = self.searcher.standing(), self.decided()
        facts = {
            "ready": self.ready,
            "index": self.plan.index,
            "modalities": [{"name": name, "dimension": size} for name, size in self.modalities],
            "announced": str(self.subscription.staleness().announced),
            "behind": self.searcher.behind if decided is None else self.behind,
        } | ({} if decided is None else {"gate": gate_state(*decided)})
        named = {"space": self.name, "model": self._model(standing)}
        return named | self._state(standing) | self.withheld() | facts

    def _model(self, standing: Standing) -> dict[str, Any]:
        return {"learner": self.learner, **standing.model._asdict(), "learned": standing.learned}

    def _state(self, standing: Standing) -> dict[str, Any]:
        state = {
            "epoch": standing.epoch,
            "items": standing.items,
            "partition": self.partition(),
            "offset": standing.offset,
        }
        return {"catalogue": state}

    def apply(self, changed: list[Changed]) -> None:
        """Take over changes of the catalogue, in the order of the log."""
        for one in self.indexes:
            one.searcher.apply(changed)

    # ---- answers ------------------------------------------------------------------------------------------------

    def map(self, rows: Vectors) -> tuple[dict[str, Any], Side, Vectors]:
        image = self.searcher.transform(rows)
        side = Side(self._model(image.standing), _version(image.standing), {})
        return self._state(image.standing), side, image.vectors

    def _ask(self, query: Query, drafted: list[int], used: Used) -> Found:
        if query.where is not None:
            raise Unsupported(f"the index of {self.name!r} takes no filter")
        answer, other, decided = self._both(query, drafted)
        for row, distances in enumerate(answer.distances):
            if distances and not distances[-1] < float("inf"):
                raise TooLarge(row, "distances")
        self.answered(self.name, self.searcher, query.rows, answer)
        used(_version(answer.standing))
        candidate = None if other is None else self._side(other, drafted)
        return Found(
            self._side(answer, range(len(answer.names))),
            candidate,
            self._state(answer.standing),
            [{"examined": examined} for examined in answer.examined.tolist()],
            decided,
            decided is not None and decided.missing,
        )

    def _both(self, query: Query, drafted: list[int]) -> tuple[Answer, Answer | None, Decided | None]:
        """The answers of the serving model and of the candidate.

        There is none of the candidate while an index is not on the model that the gate has decided on.
        """
        if self._deciding is None or self.candidate is None:
            return _asked(self.searcher, query), None, None
        for _ in range(_ATTEMPTS):
            decided = self._deciding.now()
            answer = _asked(self.searcher, query)
            if not drafted or decided.missing or _version(answer.standing) != decided.version:
                break
            try:
                other = _asked(self.candidate, query, drafted)
            except (NotReady, WrongDimension, UnknownItem):
                break
            among = any(other.standing.model == one.name for one in decided.candidates)
            if not other.standing.learned or not among or _infinite(other):
                break
            if _catalogue(answer.standing) == _catalogue(other.standing):
                return answer, other, decided
            # One of them has a change that the other is about to get.
        return answer, None, decided

    def _side(self, answer: Answer, rows: Sequence[int]) -> Side:
        found = zip(rows, answer.names, answer.distances, strict=True)
        ranked = {
            row: [{"id": name, "squared_distance": far} for name, far in zip(names, distances, strict=True)]
            for row, names, distances in found
        }
        return Side(self._model(answer.standing), _version(answer.standing), ranked)


def _serving(deciding: Deciding) -> Callable[[], Model]:
    """The model that serves by decision; the un-learned map while it is missing."""
    return lambda: deciding.now().serving or _RAW


def _candidate(deciding: Deciding) -> Callable[[], Model]:
    """The first candidate; the un-learned map if there is none."""
    return lambda: next(iter(deciding.now().candidates), _RAW)


def _asked(searcher: Searcher, query: Query, chosen: list[int] | None = None) -> Answer:
    """What an index answers: to the queries of these numbers, or to all of them."""
    if query.rows is None:
        items = query.items if chosen is None else [query.items[row] for row in chosen]
        return searcher.similar(items, query.k)
    return searcher.search(query.rows if chosen is None else query.rows[chosen], query.k)


def _infinite(answer: Answer) -> bool:
    return any(far and far[-1] == float("inf") for far in answer.distances)


def _catalogue(standing: Standing) -> tuple[int, int]:
    """The state of the catalogue."""
    return standing.epoch, standing.offset


def _version(standing: Standing) -> Version:
    return Version(*standing.model) if standing.learned else UNADAPTED
