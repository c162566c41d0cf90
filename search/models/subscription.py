"""The models of one space and learner as a service sees them: the newest one, and how old it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Condition
from typing import Protocol

from kinstream.search.models.choice import Choice
from kinstream.search.models.model import Features, Model, Name, Rows
from kinstream.search.models.staleness import Staleness
from kinstream.streams.errors import KinstreamError

#: What to wait for: a name that has to be reached, or a condition that the model has to meet.
Wanted = Name | Callable[[Model], bool]


class FollowerStopped(KinstreamError):
    """The thread that follows models has failed; what served until then may be old. Its cause is chained."""


class NotYet(KinstreamError, TimeoutError):
    """What was waited for did not come in time."""


class Follows(Protocol):
    """What follows the models of a subscription: `kinstream.search.models.feed.ModelFeed`."""

    fault: BaseException | None

    def check(self) -> None:
        """Raise FollowerStopped where it has failed."""

    def staleness_of(self, subscription: Subscription) -> Staleness:
        """See `Subscription.staleness`."""


class Subscription:
    """One space under one learner; made by `ModelFeed.subscribe`. Any thread may use it.

    Who needs several answers of one version takes `model` once, and asks that.
    """

    def __init__(self, feed: Follows, space: str, learner: str, changed: Condition) -> None:
        self.space = space
        self.learner = learner
        self._feed = feed
        self._changed = changed
        # One reference: whoever reads it has one whole model, before or after a swap.
        self._model = Model()
        # Below is the feed's; it holds `_changed` while it writes.
        self.choice = Choice()
        self.failures: Counter[str] = Counter()
        self.tried = False

    @property
    def model(self) -> Model:
        """The model that serves.

        Raises
        ------
        FollowerStopped : the thread that follows has failed.
        """
        self._feed.check()
        return self._model

    @property
    def serving(self) -> Model:
        """The same where the thread has failed, too."""
        return self._model

    def transform(self, X: Features) -> Rows:
        """`Model.transform` of the model that serves."""
        return self.model.transform(X)

    def distance(self, X: Features, Y: Features) -> Rows:
        """`Model.distance` of the model that serves."""
        return self.model.distance(X, Y)

    @property
    def retry_at(self) -> float:
        """When the next attempt at a version that could not be loaded is due, on the feed's clock."""
        return min((one.retry_at for one in self.choice.candidates()), default=0.0)

    @property
    def settled(self) -> bool:
        """Whether everything that was announced above what serves was tried."""
        return all(one.failure is not None for one in self.choice.candidates())

    @property
    def caught_up(self) -> bool:
        """Whether all that was announced before the start is known, and was tried."""
        return self.tried

    def staleness(self) -> Staleness:
        """How old what serves is, and why nothing newer does. Never raises."""
        return self._feed.staleness_of(self)

    def wait(self, wanted: Wanted | None = None, timeout: float = 30.0) -> Model:
        """Wait for a model, and return it.

        Parameters
        ----------
        wanted : a name, or a condition; by default that the follower has caught up, whatever serves then.
        timeout : seconds.

        Raises
        ------
        NotYet : it did not come in time; says what is in the way.
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
        """Let another model serve; the feed calls this."""
        self.choice.serves(model)
        self._model = model
