"""The models of a space with a gate that a service keeps: those that the newest decision names, and recent ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition
from typing import Final

from kinstream.search.models.attempts import FIRST_PAUSE, LONGEST_PAUSE, Load, Loads
from kinstream.search.models.choice import KEPT, rank_of
from kinstream.search.models.loader import Unloadable
from kinstream.search.models.model import Model, Name, name_of
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import Subscription
from kinstream.streams.errors import CheckpointError
from kinstream.streams.operations.models import Refused
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.secrets import hide

log = logging.getLogger("kinstream.follower")

#: The newest models that stay in memory: the gate's challenger is the candidate of a list that came back, and newer
#: models may have been announced meanwhile.
RECENT: Final = 8
#: Seconds that the feed waits for a load that it has begun; most are done by then. After the longer time the model
#: counts as unreachable until the load ends.
_WAIT_SECONDS: Final = 0.5
_SLOW_SECONDS: Final = 10.0

#: Where an earlier model is, from a newer one of the same space and learner; None if no checkpoint has it any more.
Find = Callable[[ModelVersion, Name], ModelVersion | None]


class _Try:
    """Attempts to load one model by its name."""

    def __init__(self) -> None:
        self.load: Load | None = None
        self.failed: Failure | None = None
        self.pause = 0.0
        self.retry_at = 0.0


class Held:
    """Models of one space by their name. The feed's thread calls `announced` and `advance`, any thread calls `get`.

    Parameters
    ----------
    subscription : to the newest model.
    loads : turns announcements into models.
    find : where a model is whose announcement was not read, or whose announced file is gone.
    changed : held while failures are counted.
    clock : seconds, monotonic.
    """

    def __init__(
        self,
        subscription: Subscription,
        loads: Loads,
        find: Find,
        changed: Condition,
        clock: Callable[[], float],
    ) -> None:
        self.subscription = subscription
        #: Whether every model that was decided on before the start is loaded, or was tried.
        self.tried = False
        self._loads = loads
        self._find = find
        self._changed = changed
        self._clock = clock
        self._announced: dict[Name, ModelVersion] = {}
        #: The newest models, the newest last.
        self._recent: list[Name] = []
        self._tries: dict[Name, _Try] = {}
        # One reference, which is replaced: readers never see a dictionary that changes.
        self._models: dict[Name, Model] = {}

    def get(self, version: Version) -> Model | None:
        """The model of that name, if it is in memory."""
        return self._models.get(Name(*version))

    def announced(self, version: ModelVersion) -> None:
        """Note where a model is; the newest announcements are kept."""
        name = name_of(version)
        known = self._announced.get(name)
        if version.deleted or (known is not None and rank_of(known) >= rank_of(version)):
            return
        self._announced[name] = version
        if name in self._tries:
            self._tries[name].retry_at = 0.0
        if len(self._announced) > KEPT:
            del self._announced[min(self._announced)]

    def advance(self, decision: GateDecision | None, complete: bool) -> None:
        """Take the newest model, drop those that nothing needs, and load what the decision names.

        Parameters
        ----------
        complete : whether all decisions from before the start are known.
        """
        newest = self.subscription.serving
        models = dict(self._models)
        if newest.learned and newest.name not in self._recent:
            self._recent = [*self._recent, newest.name][-RECENT:]
            models[newest.name] = newest
        wanted = [Name(*one) for one in _named(decision)]
        # The one before is kept in case that people roll back.
        needed = {*wanted, *self._recent, *([] if decision is None else [Name(*decision.before)])}
        self._models = {name: model for name, model in models.items() if name in needed}
        self._tries = {name: one for name, one in self._tries.items() if name in wanted}
        if complete:
            for name in wanted:
                if name not in self._models:
                    self._advance(name, self._tries.setdefault(name, _Try()))
            self.tried = self.tried or all(
                name in self._models or self._tries[name].failed is not None for name in wanted
            )

    def _advance(self, name: Name, one: _Try) -> None:
        """Begin a load that is due, or take one that has ended."""
        if one.load is None:
            known = self._announced.get(name) or self.subscription.serving.version
            if self._clock() < one.retry_at:
                return
            if known is None:
                self._failed(name, one, Unloadable(Failure.MISSING, f"{name} was never announced"))
                return
            one.load = Load(_Named(self._loads, self._find, name), known, Model(), self._clock())
            one.load.wait(_WAIT_SECONDS)
        if not one.load.ended:
            if one.failed is None and self._clock() - one.load.began > _SLOW_SECONDS:
                text = f"not loaded within {_SLOW_SECONDS:g} s"
                self._failed(name, one, Unloadable(Failure.UNREACHABLE, text))
            return
        load, one.load = one.load, None
        try:
            self._models = {**self._models, name: load.result()}
        except Unloadable as error:
            self._failed(name, one, error)
        else:
            log.info(
                "%s/%s: %s is loaded for the gate", self.subscription.space, self.subscription.learner, name
            )

    def _failed(self, name: Name, one: _Try, error: Unloadable) -> None:
        known = one.failed is error.failure
        with self._changed:
            self.subscription.failures[error.failure] += 1
        one.failed = error.failure
        one.pause = min(LONGEST_PAUSE, 2.0 * one.pause or FIRST_PAUSE)
        one.retry_at = self._clock() + one.pause
        log.log(
            logging.DEBUG if known else logging.WARNING,
            "%s/%s: %s, which the gate has named, is not available (%s): %s",
            self.subscription.space,
            self.subscription.learner,
            name,
            error.failure.value,
            error,
        )


class _Named:
    """Loads the model of a name: from its announcement, or from where a checkpoint still has it."""

    def __init__(self, loads: Loads, find: Find, name: Name) -> None:
        self._loads, self._find, self._name = loads, find, name

    def load(self, version: ModelVersion, present: Model) -> Model:
        missing = Unloadable(Failure.MISSING, f"no checkpoint that is kept has {self._name}")
        if name_of(version) == self._name:
            try:
                return self._loads.load(version, present)
            except Unloadable as error:
                if error.failure is not Failure.MISSING:
                    raise
                missing = error
        try:
            found = self._find(version, self._name)
        except Refused as error:
            raise Unloadable(Failure.REFUSED, str(error)) from error
        except (CheckpointError, OSError) as error:
            raise Unloadable(Failure.UNREACHABLE, hide(str(error))) from error
        if found is None:
            raise missing
        return self._loads.load(found, present)


def _named(decision: GateDecision | None) -> list[Version]:
    """The models that a decision lets serve, now or in drafted lists."""
    if decision is None:
        return []
    challenger = [] if decision.challenger is None else [decision.challenger]
    return [one for one in (decision.serving, *challenger) if one != UNADAPTED]
