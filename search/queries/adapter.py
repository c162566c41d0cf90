"""`QueryAdapter`: the newest query map of a space in a service's memory, while it is learned elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.learners.base.learner import Learner
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.models.query_map import query_map
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.follower import ModelFollower
from kinstream.search.models.loader import Loader
from kinstream.search.models.model import Model
from kinstream.search.queries.model import QueryModel
from kinstream.streams.records.checks import MAX_DIMENSION
from kinstream.streams.settings import Settings


class Newest:
    """Query models of the models of one learner. The newest one is kept, so that it is made once."""

    def __init__(self, learner: str) -> None:
        # One reference: a reader gets one complete pair.
        self._made = (Model(), QueryModel(learner))

    def of(self, model: Model) -> QueryModel:
        """The query model of a model of that learner.

        Raises
        ------
        SettingsError : the learner has no query map.
        """
        known, found = self._made
        if known is not model:
            found = query_model(found.learner, model)
            self._made = (model, found)
        return found


def query_model(learner: str, model: Model) -> QueryModel:
    """The query model of a model of that learner.

    Raises
    ------
    SettingsError : the learner has no query map.
    """
    state, version = model.learner, model.version
    if state is None or version is None or _empty(state):
        return QueryModel(learner, model.name)
    blend, cosine = getattr(state, "blend", None), getattr(state, "product", None) == "cosine"
    memory = (getattr(state, name, None) for name in ("known_blend", "remembered"))
    return QueryModel(learner, model.name, version.sha256, query_map(state), blend, cosine, *memory)


class QueryAdapter(ModelFollower):
    """Maps queries by the newest model of a space, so that a store of raw items ranks them as learned.

    It follows models as `kinstream.search.models.follower.ModelFollower` does, with the same arguments; a model of
    another learner than of a bilinear similarity is left out. Before the first model, queries stay as they are.

    Examples
    --------
    As a context manager; or `start` and `close`.

        with QueryAdapter("docs", "adapter", brokers="localhost:9092") as adapter:
            adapter.wait()
            store.search(adapter.map(query))
    """

    @property
    def current(self) -> QueryModel:
        """The serving query model. For several answers of one version, read it once and use that object.

        Raises
        ------
        FollowerStopped : the thread has failed; the cause is chained.
        """
        return self._newest.of(self.model)

    def map(self, Q: ArrayLike) -> NDArray[np.float32]:
        """`QueryModel.map` of the serving model: of queries (n, d), or of one (d,)."""
        return self.current.map(Q)

    def _follow(self, space: str, learner: str, feed: ModelFeed) -> None:
        super()._follow(space, learner, feed)
        self._newest = Newest(learner)

    @staticmethod
    def _loader(settings: Settings) -> Loader:
        return query_loader(settings)


def query_loader(settings: Settings) -> Loader:
    """A loader that refuses models without a query map, and computes nothing else of them."""
    return Loader(settings, usable)


def usable(learner: Learner) -> None:
    """Check that a learner has a query map.

    Raises
    ------
    SettingsError : it has none.
    ValueError : its numbers are not finite, or it has too many features.
    """
    if _empty(learner):
        return
    found = query_map(learner)
    if found.dimension > MAX_DIMENSION or not all(np.isfinite(one).all() for one in found.arrays.values()):
        raise ValueError(f"a query map of {found.dimension} features, not all of it finite")


def _empty(learner: Learner) -> bool:
    """Whether a bilinear learner has not learned yet; others have no query map, which is reported."""
    return isinstance(learner, Bilinear) and learner.dimension is None
