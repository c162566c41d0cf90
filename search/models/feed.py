"""One thread and one consumer that keep the newest models of many spaces."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Final, Self

from kinstream.search.models.attempts import Attempts, Limits, Loads
from kinstream.search.models.choice import KEPT, KEPT_UNFOLLOWED, Announcement, Choice
from kinstream.search.models.loader import Loader
from kinstream.search.models.model import Name
from kinstream.search.models.model_copies import KeptModels
from kinstream.search.models.models_of_gate import Held
from kinstream.search.models.sources import CheckpointSource, Source
from kinstream.search.models.staleness import Failure, Staleness
from kinstream.search.models.subscription import FollowerStopped, Subscription
from kinstream.search.models.topic import TopicSource
from kinstream.streams.errors import SettingsError
from kinstream.streams.operations.models import kept_at
from kinstream.streams.records.gate import GateDecision, Version
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.follower")

_POLL_SECONDS: Final = 0.5
#: Seconds between loads before the end of the topic is reached: most models are superseded at once.
_EAGER_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0


class ModelFeed:
    """Follows the models of every space and learner that is subscribed to, until `close`.

    The models topic is read completely from its beginning, and then continuously. Announcements are kept for all
    spaces, and loaded for those with a subscription. Brokers and checkpoint stores may be away for a while: the
    serving model continues to serve.

    Parameters
    ----------
    settings : brokers, and the checkpoint store.
    source : where announcements come from; the models topic by default.
    loader, limits : how they become models, and within what time.
    clock, wall : seconds, monotonic and since the epoch.

    Raises
    ------
    SettingsError : no brokers are named.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        source: Source | None = None,
        loader: Loads | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        #: Why the thread has ended before `close`; None without an error.
        self.fault: BaseException | None = None
        self._source = source or TopicSource(settings, clock=clock)
        self._clock = clock
        self._wall = wall
        self._changed = Condition()
        self._loader = loader or Loader(settings)
        self._attempts = Attempts(self._loader, self._changed, clock, limits or Limits())
        self._settings = settings
        self._stop = Event()
        self._thread: Thread | None = None
        #: Announcements of spaces without a subscription.
        self._choices: dict[tuple[str, str], Choice] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._held: dict[tuple[str, str], Held] = {}
        self._eager_at = 0.0

    @classmethod
    def from_checkpoints(
        cls, settings: Settings, *, interval: float = 5.0, loader: Loads | None = None
    ) -> Self:
        """A feed that reads the checkpoint store of the settings every `interval` seconds, without brokers."""
        return cls(settings, source=CheckpointSource(settings, interval), loader=loader)

    # ---- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to follow.

        Raises
        ------
        SettingsError : the settings name no source to follow, or the feed was started before.
        """
        if self._thread is not None:
            raise SettingsError("a model feed can be started only once; create another one")
        self._source.open()
        self._eager_at = self._clock() + _EAGER_SECONDS
        # A service that ends without `close` must not hang at its exit.
        self._thread = Thread(target=self._run, name="kinstream-models", daemon=True)
        self._thread.start()
        return self

    def close(self, timeout: float = _STOP_SECONDS) -> None:
        """End the thread and the consumer. The last model still answers."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def healthy(self) -> bool:
        """Whether the thread runs. Brokers that are away leave it healthy: see `Staleness.contact_seconds`."""
        return self.fault is None and self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """Raise FollowerStopped if the thread has failed."""
        if self.fault is not None:
            raise FollowerStopped(f"the follower of models has stopped: {self.fault!r}") from self.fault

    # ---- subscriptions ------------------------------------------------------------------------------------------

    def subscribe(self, space: str, learner: str) -> Subscription:
        """Follow a space under a learner, from now on; the same subscription for the same names."""
        key = (space, learner)
        with self._changed:
            if key not in self._subscriptions:
                made = Subscription(self, space, learner, self._changed)
                made.choice = self._choices.setdefault(key, made.choice)
                made.choice.kept = KEPT
                self._subscriptions[key] = made
            return self._subscriptions[key]

    def hold(self, space: str, learner: str) -> Held:
        """Hold the models that the gate of a space names, and candidates. Call it before `start`.

        Raises
        ------
        CheckpointError : the settings name no known kind of store for checkpoints.
        """
        subscription = self.subscribe(space, learner)
        copies = KeptModels(self._settings, space, learner)

        def find(known: ModelVersion, name: Name) -> ModelVersion | None:
            return copies.find(name) or kept_at(self._settings, known, *name)

        held = Held(subscription, self._loader, find, copies, self._changed, self._clock)
        with self._changed:
            return self._held.setdefault((space, learner), held)

    def decision(self, space: str) -> GateDecision | None:
        """The newest decision of the gate on who serves a space; None if there is none, or no gate.

        A space with a gate and without a decision is served un-adapted.
        """
        return self.decided(space)[0]

    def decided(self, space: str) -> tuple[GateDecision | None, Version]:
        """The same, and the model up to which none can become the challenger."""
        return self._source.decisions.of(space)

    def staleness_of(self, subscription: Subscription) -> Staleness:
        """See `Subscription.staleness`."""
        with self._changed:
            model = subscription.serving
            version, contact, source = model.version, self._source.contact, self._source
            failures = {reason: subscription.failures[reason] for reason in Failure}
            trouble = source.trouble or subscription.choice.trouble
            if self.fault is not None:
                trouble = f"the follower has stopped: {self.fault!r}"
            return Staleness(
                serving=model.name,
                announced=subscription.choice.announced,
                written_seconds=None
                if version is None
                else max(0.0, self._wall() - version.time_ms / 1000.0),
                contact_seconds=None if contact is None else max(0.0, self._clock() - contact),
                caught_up=subscription.caught_up,
                failures=failures | {Failure.UNREADABLE: source.unreadable},
                trouble=trouble,
                withheld=subscription.choice.withheld,
            )

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
        except BaseException as error:
            log.exception("the follower of models has stopped")
            with self._changed:
                self.fault = error
                self._changed.notify_all()
        finally:
            with contextlib.suppress(Exception):
                self._source.close()

    def step(self) -> None:
        """Read announcements, and load models that are due; one round of the thread."""
        with self._changed:
            followed = list(self._subscriptions.values())
        learners = {one.learner for one in followed}
        now = self._clock()
        # Before the end of the topic is reached, loading has its own interval.
        starts = now if self._source.caught_up else self._eager_at
        due = [max(at, starts) - now for one in followed if (at := self._attempts.due(one)) is not None]
        announced = self._source.poll(max(0.0, min([_POLL_SECONDS, *due])), learners, self._stop)
        with self._changed:
            for found in announced:
                self._take(found)
            # Waiting callers may need state of the source, such as its trouble.
            self._changed.notify_all()
            followed = list(self._subscriptions.values())
        caught_up = self._source.caught_up
        if caught_up or self._clock() >= self._eager_at:
            self._eager_at = self._clock() + _EAGER_SECONDS
            for one in followed:
                if one.choice.candidates() and not self._stop.is_set():
                    self._attempts.advance(one, caught_up=caught_up)
            # For a source that is read by learner, a new subscription still waits for its first answer.
            self._tried([one for one in followed if caught_up and one.learner in learners and one.settled])
            for one in followed:
                if one.tried:
                    self._log_withheld(one)
        for (space, _), held in list(self._held.items()):
            held.advance(*self.decided(space), caught_up)

    def _take(self, announced: Announcement) -> None:
        version, where, withheld = announced
        key = (version.space, version.learner)
        choice = self._choices.setdefault(key, Choice(KEPT_UNFOLLOWED))
        choice.take(version, where)
        choice.note(withheld)
        if key in self._held:
            self._held[key].announced(version)

    def _log_withheld(self, one: Subscription) -> None:
        """Log once that a newer model is withheld, and once that none is any more."""
        withheld = one.choice.withheld
        if (withheld is None) is (one.told_withheld is None):
            return
        one.told_withheld = withheld
        place = (one.space, one.learner)
        if withheld is None:
            log.info("%s/%s: no newer model is withheld any more", *place)
        else:
            log.warning(
                "%s/%s: %s is the newest to serve, and its learner withholds %s",
                *place,
                one.serving.name,
                withheld,
            )

    def _tried(self, followed: list[Subscription]) -> None:
        fresh = [one for one in followed if not one.tried]
        if fresh:
            with self._changed:
                for one in fresh:
                    one.tried = True
                self._changed.notify_all()
