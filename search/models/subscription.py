"""The models of one space and learner for a service: the newest one, and its age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Condition
from typing import Protocol

from kinstream.search.models.choice import Choice
from kinstream.search.models.model import Features, Model, Name, Rows
from kinstream.search.models.staleness import Failure, Staleness
from kinstream.streams.errors import KinstreamError
from kinstream.streams.records.withheld import Withheld

#: The goal of a wait: a name that has to be reached, or a condition that the model has to meet.
Wanted = Name | Callable[[Model], bool]


class FollowerStopped(KinstreamError):
    """The thread that follows models has failed; the last serving model may be old. Its cause is chained."""


class NotYet(KinstreamError, TimeoutError):
    """The wait timed out."""


class Follows(Protocol):
    """The follower of the models of a subscription: `kinstream.search.models.feed.ModelFeed`."""

    fault: BaseException | None

    def check(self) -> None:
        """Raise FollowerStopped if it has failed."""

    def staleness_of(self, subscription: Subscription) -> Staleness:
        """See `Subscription.staleness`."""


class Subscription:
    """One space under one learner; created by `ModelFeed.subscribe`. Any thread may use it.

    For several answers of one version, read `model` once and use that object.
    """

    def __init__(self, feed: Follows, space: str, learner: str, changed: Condition) -> None:
        self.space = space
        self.learner = learner
        self._feed = feed
        self._changed = changed
        # One reference: a reader gets one complete model, before or after a swap.
        self._model = Model()
        # The attributes below belong to the feed, which holds `_changed` while it writes.
        self.choice = Choice()
        self.failures: Counter[str] = Counter()
        self.tried = False
        #: What the log was told of a withheld model, and of a model that cannot be loaded.
        self.told_withheld: Withheld | None = None
        self.told_failure: Failure | None = None

    @property
    def model(self) -> Model:
        """The serving model.

        Raises
        ------
        FollowerStopped : the thread that follows has failed.
        """
        self._feed.check()
        return self._model

    @property
    def serving(self) -> Model:
        """The same, even if the thread has failed."""
        return self._model

    def transform(self, X: Features) -> Rows:
        """`Model.transform` of the serving model."""
        return self.model.transform(X)

    def distance(self, X: Features, Y: Features) -> Rows:
        """`Model.distance` of the serving model."""
        return self.model.distance(X, Y)

    @property
    def retry_at(self) -> float:
        """When the next attempt at a version that could not be loaded is due, on the feed's clock."""
        return min((one.retry_at for one in self.choice.candidates()), default=0.0)

    @property
    def settled(self) -> bool:
        """Whether every announcement above the serving model was tried."""
        return all(one.failure is not None for one in self.choice.candidates())

    @property
    def caught_up(self) -> bool:
        """Whether all announcements from before the start are known, and were tried."""
        return self.tried

    def staleness(self) -> Staleness:
        """The age of the serving model, and why no newer one serves. Never raises."""
        return self._feed.staleness_of(self)

    def wait(self, wanted: Wanted | None = None, timeout: float = 30.0) -> Model:
        """Wait for a model, and return it.

        Parameters
        ----------
        wanted : a name, or a condition; by default until the follower has caught up.
        timeout : seconds.

        Raises
        ------
        NotYet : the wait timed out; the message gives the reason.
        FollowerStopped : the thread that follows has failed.
        """

        def there() -> bool:
            if self._feed.fault is not None:
                return True
            if wanted is None:
                return self.caught_up
            return self._model.name >= wanted if isinstance(wanted, Name) else wanted(self._model)

        with self._changed:
            if self._changed.wait_for(there, timeout):
                return self.model
        now = self.staleness()
        why = f": {now.trouble}" if now.trouble else ""
        raise NotYet(
            f"{self.space}/{self.learner}: waited {timeout:g} s; {now.serving} serves, {now.announced} was "
            f"announced{why}"
        )

    def swap(self, model: Model) -> None:
        """Set another serving model; the feed calls this."""
        self.told_failure = None
        self.choice.serves(model)
        self._model = model
