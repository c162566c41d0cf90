"""The models of a space with a gate that a service holds: those that the newest decision names, and its candidates.

While the gate has named no challenger, a service chooses the candidate of its drafted lists, and stays with it for some
minutes. The file of each model that may come to serve is copied, because the learner soon deletes it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from threading import Condition
from typing import Final, Protocol

from kinstream.search.models.attempts import FIRST_PAUSE, LONGEST_PAUSE, Load, Loads
from kinstream.search.models.choice import KEPT, rank_of
from kinstream.search.models.decisions import may_challenge
from kinstream.search.models.loader import Unloadable, unloadable
from kinstream.search.models.model import Model, Name, name_of
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import Subscription
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version
from kinstream.streams.records.values import ModelVersion

log = logging.getLogger("kinstream.follower")

#: Seconds for which a candidate stays while there is no challenger: the clicks of its lists come back meanwhile.
CANDIDATE_SECONDS: Final = 300.0
#: Candidates that stay in memory, in case that their file could not be copied.
RECENT: Final = 4
#: Seconds that the feed waits for a load that it has begun; most are done by then. After the longer time the model
#: counts as unreachable until the load ends.
_WAIT_SECONDS: Final = 0.5
_SLOW_SECONDS: Final = 10.0

#: Where an earlier model is, from a newer one of the same space and learner; None if no checkpoint has it any more.
Find = Callable[[ModelVersion, Name], ModelVersion | None]


class Copies(Protocol):
    """Copies of model files; see `kinstream.search.models.model_copies.KeptModels`."""

    def keep(self, version: ModelVersion, serves: bool = False) -> None: ...

    def prune(self, needed: Collection[Name]) -> None: ...


class _Try:
    """Attempts to load, or to copy, one model."""

    def __init__(self) -> None:
        self.load: Load | None = None
        #: Whether the model that is copied serves.
        self.serves = False
        self.failed: Failure | None = None
        self.pause = 0.0
        self.retry_at = 0.0

    def fail(self, failure: Failure, now: float) -> int:
        """Note a failure, and when to try again. Returns the level at which to log it: the same again is no news."""
        level = logging.DEBUG if self.failed is failure else logging.WARNING
        self.failed = failure
        self.pause = min(LONGEST_PAUSE, 2.0 * self.pause or FIRST_PAUSE)
        self.retry_at = now + self.pause
        return level


class Held:
    """Models of one space by their name. The feed's thread calls `announced` and `advance`, any thread the others.

    Parameters
    ----------
    subscription : to the newest model.
    loads : turns announcements into models.
    find : where a model is whose announcement was not read, or whose announced file is gone.
    copies : of the files of models that may come to serve.
    changed : held while failures are counted.
    clock : seconds, monotonic.
    """

    def __init__(
        self,
        subscription: Subscription,
        loads: Loads,
        find: Find,
        copies: Copies,
        changed: Condition,
        clock: Callable[[], float],
    ) -> None:
        self.subscription = subscription
        #: Whether every model that was decided on before the start is loaded, or was tried.
        self.tried = False
        #: The model of drafted lists while there is no challenger; None before the first.
        self.candidate: Model | None = None
        self._chosen_at = 0.0
        self._loads = loads
        self._find = find
        self._copies = copies
        self._changed = changed
        self._clock = clock
        self._announced: dict[Name, ModelVersion] = {}
        #: The last candidates, the newest last.
        self._recent: list[Name] = []
        self._tries: dict[Name, _Try] = {}
        self._copying: dict[Name, _Try] = {}
        # One reference each, which is replaced: readers never see a collection that changes.
        self._models: dict[Name, Model] = {}
        self._copied: frozenset[Name] = frozenset()
        #: The model whose copy is known to be of one that serves.
        self._noted: Name | None = None

    def get(self, version: Version) -> Model | None:
        """The model of that name, if it is in memory."""
        return self._models.get(Name(*version))

    def failed(self, version: Version) -> bool:
        """Whether the newest decision names that model, and it could not be loaded so far."""
        one = self._tries.get(Name(*version))
        return one is not None and one.failed is not None

    def copied(self, version: Version) -> bool:
        """Whether the store has a copy of that model, so that it outlives the learner's checkpoints."""
        return Name(*version) in self._copied

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

    def advance(self, decision: GateDecision | None, floor: Version, complete: bool) -> None:
        """Choose a candidate, drop models that nothing needs, load what the decision names, and copy files.

        Parameters
        ----------
        floor : no model up to this one can become the challenger.
        complete : whether all decisions from before the start are known.
        """
        self._choose(decision, floor)
        wanted = [Name(*one) for one in _named(decision)]
        # The one before is kept in case that people roll back.
        needed = {*wanted, *self._recent, *([] if decision is None else [Name(*decision.before)])}
        self._models = {name: model for name, model in self._models.items() if name in needed}
        self._tries = {name: one for name, one in self._tries.items() if name in wanted}
        if complete:
            for name in wanted:
                if name not in self._models:
                    self._advance(name, self._tries.setdefault(name, _Try()))
            self.tried = self.tried or all(
                name in self._models or self._tries[name].failed is not None for name in wanted
            )
        chosen = [] if self.candidate is None else [self.candidate.name]
        worth = [name for name in {*wanted, *chosen} if name in self._models]
        self._copied &= needed
        self._copying = {name: one for name, one in self._copying.items() if name in worth}
        serving = None if decision is None else Name(*decision.serving)
        for name in worth:
            # One that serves now and was copied before is noted as one that serves.
            if name not in self._copied or (name == serving and name != self._noted):
                # Before all decisions are known, nobody can say which copies are needed.
                one, known = self._copying.setdefault(name, _Try()), needed if complete else None
                self._copy(name, one, known, name == serving)

    def _choose(self, decision: GateDecision | None, floor: Version) -> None:
        newest, present, now = self.subscription.serving, self.candidate, self._clock()
        if present is not None and not may_challenge(Version(*present.name), decision, floor):
            present = None
        free = newest.learned and may_challenge(Version(*newest.name), decision, floor)
        due = present is None or now - self._chosen_at >= CANDIDATE_SECONDS
        if free and due and (present is None or newest.name != present.name):
            present, self._chosen_at = newest, now
            self._recent = [*self._recent, newest.name][-RECENT:]
            self._models = {**self._models, newest.name: newest}
        self.candidate = present

    def _copy(self, name: Name, one: _Try, needed: Collection[Name] | None, serves: bool) -> None:
        """Begin a copy that is due, or note one that has ended."""
        model = self._models[name]
        if one.load is None:
            if self._clock() < one.retry_at:
                return
            assert model.version is not None
            known = self._announced.get(name, model.version)
            one.load = Load(_Copy(self._copies, needed, serves), known, model, self._clock())
            one.serves = serves
            one.load.wait(_WAIT_SECONDS)
        if not one.load.ended:
            return
        load, one.load = one.load, None
        try:
            load.result()
        except Unloadable as error:
            if model is self.candidate and error.failure is Failure.MISSING:
                self._chosen_at = (
                    -math.inf
                )  # its file was deleted before the copy: the newest takes its place
            log.log(
                one.fail(error.failure, self._clock()),
                "%s/%s: the file of %s cannot be copied (%s), so it is lost when the learner deletes it: %s",
                self.subscription.space,
                self.subscription.learner,
                name,
                error.failure.value,
                error,
            )
        else:
            self._copied |= {name}
            if one.serves:
                self._noted = name

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
        with self._changed:
            self.subscription.failures[error.failure] += 1
        log.log(
            one.fail(error.failure, self._clock()),
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
        except (CheckpointError, OSError) as error:
            raise unloadable(error) from error
        if found is None:
            raise missing
        return self._loads.load(found, present)


class _Copy:
    """Copies the file of a model, in the place of a load. `needed` are the copies to keep; None keeps all."""

    def __init__(self, copies: Copies, needed: Collection[Name] | None, serves: bool) -> None:
        self._copies, self._needed, self._serves = copies, needed, serves

    def load(self, version: ModelVersion, present: Model) -> Model:
        try:
            self._copies.keep(version, self._serves)
            if self._needed is not None:
                self._copies.prune(self._needed)
        except (CheckpointError, OSError) as error:
            raise unloadable(error) from error
        return present


def _named(decision: GateDecision | None) -> list[Version]:
    """The models that a decision lets serve, now or in drafted lists."""
    if decision is None:
        return []
    challenger = [] if decision.challenger is None else [decision.challenger]
    return [one for one in (decision.serving, *challenger) if one != UNADAPTED]
