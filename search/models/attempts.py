"""Loading a model on a thread of its own: a hanging store blocks neither other spaces nor older models."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from threading import Condition
from typing import Final, NamedTuple, Protocol

from kinstream.search.models.choice import Candidate, Rank
from kinstream.search.models.loader import Unloadable
from kinstream.search.models.model import Model
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import Subscription
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.secrets import hide

log = logging.getLogger("kinstream.follower")

#: Seconds before a failed file is tried again: the first pause, and the longest.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
#: Seconds between two checks of a running load.
_CHECK_SECONDS: Final = 0.05
_LASTING: Final = (Failure.REFUSED, Failure.FAULT)


class Loads(Protocol):
    """Turns announcements into models; see `kinstream.search.models.loader.Loader`."""

    def load(self, version: ModelVersion, present: Model) -> Model: ...


class Limits(NamedTuple):
    """Limits on the time and the number of loads.

    Parameters
    ----------
    wait_seconds : time that the feed's thread waits for a load that it has begun; most are done by then.
    slow_seconds : after this a load counts as unreachable and the next older version is tried. If the load ends later,
        its model is used.
    at_once : loads at the same time, of all spaces together; slow ones are not counted.
    hanging : loads of one space and learner that have not ended. Beyond this number no other load is begun there.
    """

    wait_seconds: float = 0.5
    slow_seconds: float = 10.0
    at_once: int = 4
    hanging: int = 16


class Load:
    """One attempt to load a model.

    Parameters
    ----------
    began : when, on the feed's clock.

    Attributes
    ----------
    slow : whether it counts as unreachable for now.
    """

    def __init__(self, loader: Loads, version: ModelVersion, present: Model, began: float) -> None:
        self.began = began
        self.slow = False
        self._version = version
        self._model: Model | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        try:
            threading.Thread(
                target=self._run, args=(loader, present), name="kinstream-model", daemon=True
            ).start()
        except RuntimeError as error:  # there are too many threads
            self._error = error
            self._ended.set()

    def _run(self, loader: Loads, present: Model) -> None:
        try:
            self._model = loader.load(self._version, present)
        # A panic of a library written in Rust is not an Exception.
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float) -> None:
        """Wait for the end, up to that long."""
        self._ended.wait(seconds)

    def result(self) -> Model:
        """The model, once it has ended.

        Raises
        ------
        Unloadable : it could not be loaded, for any reason.
        """
        if self._model is not None:
            return self._model
        if isinstance(self._error, Unloadable):
            raise self._error
        raise Unloadable(Failure.FAULT, hide(f"{self._version.location!r}: {self._error!r}")) from self._error


class Attempts:
    """Tries announced models, the best first, and notes those that cannot be loaded.

    Parameters
    ----------
    changed : held while a subscription changes, and notified of a model that serves.
    clock : seconds, monotonic.
    """

    def __init__(self, loader: Loads, changed: Condition, clock: Callable[[], float], limits: Limits) -> None:
        self._loader = loader
        self._changed = changed
        self._clock = clock
        self._limits = limits
        #: Loads that have neither ended nor become slow.
        self._running: list[Load] = []
        #: Running and hanging loads, by space and learner.
        self._loads: dict[tuple[str, str], dict[Rank, Load]] = {}

    def due(self, one: Subscription) -> float | None:
        """When the next action for a subscription is due, on the feed's clock; None if there is none."""
        found = []
        loads = self._of(one)
        for candidate in one.choice.candidates():
            load = loads.get(candidate.rank)
            if load is None:
                found.append(candidate.retry_at)
            elif not load.slow:
                found.append(self._clock() + _CHECK_SECONDS)
                break  # those below wait for it
        crowded = bool(loads) or any(not (load.ended or load.slow) for load in self._running)
        # A load without room is tried again a little later, not in a busy loop.
        return (
            max(min(found), self._clock() + _CHECK_SECONDS) if found and crowded else min(found, default=None)
        )

    def advance(self, one: Subscription, *, caught_up: bool = True) -> None:
        """Begin loads that are due, and take finished ones.

        Parameters
        ----------
        caught_up : whether every announcement from before the start is known. Until then a newer one may follow, whose
            learner has deleted the files of those before it: a file that is missing is no failure.
        """
        candidates = one.choice.candidates()
        ranks = {candidate.rank for candidate in candidates}
        loads = self._of(one)
        for rank in [rank for rank, load in loads.items() if load.ended and rank not in ranks]:
            del loads[rank]
        for candidate in candidates:
            load = loads.get(candidate.rank) or self._begin(one, candidate)
            if load is None:
                continue
            if not load.ended and not load.slow:
                if self._clock() - load.began < self._limits.slow_seconds:
                    return
                load.slow = True
                text = f"{candidate.version.location!r}: not loaded within {self._limits.slow_seconds:g} s"
                self._left_out(one, candidate, Unloadable(Failure.UNREACHABLE, hide(text)), caught_up)
            if not load.ended:
                continue
            del loads[candidate.rank]
            try:
                model = load.result()
            except Unloadable as error:
                self._left_out(one, candidate, error, caught_up)
                continue
            # A learner announces one with each of its checkpoints.
            level = logging.DEBUG if _continues(model, one.serving) else logging.INFO
            with self._changed:
                one.swap(model)
                self._changed.notify_all()
            log.log(level, "%s/%s: %s serves", one.space, one.learner, model.name)
            return

    def _of(self, one: Subscription) -> dict[Rank, Load]:
        return self._loads.setdefault((one.space, one.learner), {})

    def _begin(self, one: Subscription, candidate: Candidate) -> Load | None:
        """A load, if it is due and there is room."""
        now = self._clock()
        loads = self._of(one)
        self._running = [load for load in self._running if not (load.ended or load.slow)]
        crowded = len(self._running) >= self._limits.at_once or len(loads) >= self._limits.hanging
        if now < candidate.retry_at or crowded:
            return None
        load = loads[candidate.rank] = Load(self._loader, candidate.version, one.serving, now)
        self._running.append(load)
        load.wait(self._limits.wait_seconds)
        return load

    def _left_out(self, one: Subscription, candidate: Candidate, error: Unloadable, caught_up: bool) -> None:
        gone = error.failure is Failure.MISSING
        # Files of older models are deleted: only that of the newest one should be there.
        expected = gone and not (caught_up and candidate is one.choice.candidates()[0])
        # One line for an outage, however many models cannot be loaded. A fault of ours has a traceback each time.
        told = candidate.failure if error.failure is Failure.FAULT else one.told_failure
        quiet = expected or told is error.failure
        one.told_failure = one.told_failure if expected else error.failure
        with self._changed:
            if gone and not caught_up:
                candidate.retry_at = self._clock() + FIRST_PAUSE
            else:
                one.failures[error.failure] += 1
                candidate.failure, candidate.trouble = error.failure, str(error)
                # Waiting rarely repairs a file that does not fit; an absent store may return at any time.
                first = LONGEST_PAUSE if error.failure in _LASTING else FIRST_PAUSE
                candidate.pause = min(LONGEST_PAUSE, 2.0 * candidate.pause or first)
                candidate.retry_at = self._clock() + candidate.pause
        log.log(
            logging.DEBUG if quiet else logging.WARNING,
            "%s/%s: %s: left out (%s): %s",
            one.space,
            one.learner,
            candidate.where,
            error.failure.value,
            error,
            exc_info=error if error.failure is Failure.FAULT and not quiet else None,
        )


def _continues(model: Model, before: Model) -> bool:
    """Whether a model is a later step of the same generation and epoch."""
    return before.learned and model.learned and model.name[:2] == before.name[:2]
