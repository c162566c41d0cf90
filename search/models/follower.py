"""`ModelFollower`: the newest metric of one space in a service's memory, while it is learned elsewhere."""

from __future__ import annotations

from typing import Any, Self

from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.loader import Loader
from kinstream.search.models.model import Features, Model, Rows
from kinstream.search.models.staleness import Staleness
from kinstream.search.models.subscription import Wanted
from kinstream.streams.settings import Settings, load


class ModelFollower:
    """Holds the newest model of a space, never a partial one, and never an older one after a newer one.

    Before the first model the un-learned map serves: raw features unchanged. The same holds for a space that was
    deleted, or reset and not learned again yet; `Model.name` then has that epoch.

    Parameters
    ----------
    space, learner : whose models.
    settings : brokers, and the checkpoint store; by default those of `kinstream.toml` and the environment, as for the
        commands. Nothing else of a worker's settings is needed: its checkpoint store and hyper-parameters are found
        through its announcements, if this machine reaches that store.
    brokers, checkpoints : instead of the settings' `kafka.bootstrap_servers` and `checkpoints.url`.

    Raises
    ------
    SettingsError : the settings are wrong, or name no brokers.

    Examples
    --------
    As a context manager; or `start` and `close`. Before `start` the un-learned map serves.

        with ModelFollower("digits", "opml", brokers="localhost:9092") as metric:
            metric.wait()
            metric.transform(X)
    """

    def __init__(
        self,
        space: str,
        learner: str,
        settings: Settings | None = None,
        *,
        brokers: str | None = None,
        checkpoints: str | None = None,
    ) -> None:
        found = _settings(settings, brokers, checkpoints)
        self._follow(space, learner, ModelFeed(found, loader=self._loader(found)))

    @classmethod
    def from_checkpoints(
        cls,
        space: str,
        learner: str,
        settings: Settings | None = None,
        *,
        checkpoints: str | None = None,
        interval: float = 5.0,
    ) -> Self:
        """A follower that reads the checkpoint store every `interval` seconds, and needs no brokers.

        Raises
        ------
        SettingsError : the settings are wrong.
        """
        made = cls.__new__(cls)
        found = _settings(settings, None, checkpoints)
        feed = ModelFeed.from_checkpoints(found, interval=interval, loader=cls._loader(found))
        made._follow(space, learner, feed)
        return made

    @staticmethod
    def _loader(settings: Settings) -> Loader:
        return Loader(settings)

    def _follow(self, space: str, learner: str, feed: ModelFeed) -> None:
        self._feed = feed
        self._subscription = feed.subscribe(space, learner)

    # ---- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to follow. Raises SettingsError if that is not possible, or was done before."""
        self._feed.start()
        return self

    def close(self) -> None:
        """End the thread. The last model still answers."""
        self._feed.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def healthy(self) -> bool:
        """Whether the thread runs; absent brokers leave it healthy."""
        return self._feed.healthy

    # ---- use ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The serving model. For several answers of one version, read it once and use that object.

        Raises
        ------
        FollowerStopped : the thread has failed; the cause is chained.
        """
        return self._subscription.model

    def transform(self, X: Features) -> Rows:
        """`Model.transform` of the serving model."""
        return self._subscription.transform(X)

    def distance(self, X: Features, Y: Features) -> Rows:
        """`Model.distance` of the serving model."""
        return self._subscription.distance(X, Y)

    def staleness(self) -> Staleness:
        """The age of the serving model, and why no newer one serves. Never raises."""
        return self._subscription.staleness()

    def wait(self, wanted: Wanted | None = None, timeout: float = 30.0) -> Model:
        """Wait until the follower has caught up, or for a name or a condition; see `Subscription.wait`."""
        return self._subscription.wait(wanted, timeout)


def _settings(settings: Settings | None, brokers: str | None, checkpoints: str | None) -> Settings:
    changes: dict[str, Any] = {}
    if brokers is not None:
        changes["kafka.bootstrap_servers"] = brokers
    if checkpoints is not None:
        changes["checkpoints.url"] = checkpoints
    if settings is None:
        return load(None, changes)
    return _changed(settings, changes)


def _changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    update: dict[str, Any] = {}
    for name, value in changes.items():
        section, _, field = name.partition(".")
        update[section] = getattr(settings, section).model_copy(update={field: value})
    return settings.model_copy(update=update)
