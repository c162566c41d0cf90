"""Who serves a space with a gate: the model that the newest decision names, and the candidate of drafted lists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.held import Held
from kinstream.search.models.model import Model
from kinstream.search.queries.adapter import query_model
from kinstream.search.queries.model import QueryModel
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version

#: Query models that are kept: serving, challenger, newest, and those of a moment ago.
_MAPS: Final = 6


@dataclass(frozen=True, slots=True)
class ModelPair:
    """The models that answer at one moment. It never changes, so everything in an answer comes from one.

    Parameters
    ----------
    serving : maps the queries.
    candidate : the other side of drafted lists; None if there are none.
    decided : what the newest decision lets serve; None for a space without a gate.
    decision : the newest one; None before the first.
    missing : whether the model that serves by decision is not available, so that queries are asked as they are.
    """

    serving: QueryModel
    candidate: QueryModel | None = None
    decided: Version | None = None
    decision: GateDecision | None = None
    missing: bool = False


class Gated:
    """The decisions on a space, obeyed. Any thread may call it.

    Parameters
    ----------
    space, learner : whose models are decided on.
    feed : of models and decisions; not started yet.
    """

    def __init__(self, space: str, learner: str, feed: ModelFeed) -> None:
        self._space = space
        self._feed = feed
        self._held: Held = feed.hold(space, learner)
        self._none = QueryModel(learner)

        # Each model's map is made once; models are compared by identity.
        @lru_cache(_MAPS)
        def mapping(model: Model) -> QueryModel:
            return query_model(learner, model)

        self._mapping = mapping

    @property
    def tried(self) -> bool:
        """Whether every model that was decided on before the start is loaded, or was tried."""
        return self._held.tried

    def pair(self, dimension: int | None) -> ModelPair:
        """Who answers now.

        Parameters
        ----------
        dimension : features of the store's vectors; None if unknown. A model of another dimension is not available.
        """
        decision, floor = self._feed.decided(self._space)
        decided = UNADAPTED if decision is None else decision.serving
        if decided == UNADAPTED:
            serving: QueryModel | None = self._none
        else:
            serving = self._usable(decided, dimension)
        if serving is None:
            # A list with another serving model than the decided one would be left out by the gate.
            return ModelPair(self._none, None, decided, decision, True)
        candidate = self._candidate(decision, floor, dimension)
        return ModelPair(serving, candidate, decided, decision)

    def _candidate(
        self, decision: GateDecision | None, floor: Version, dimension: int | None
    ) -> QueryModel | None:
        """The challenger; or the newest model, if that may become the challenger."""
        if decision is not None and decision.challenger is not None:
            found = self._usable(decision.challenger, dimension)
            if found is not None:
                return found
        newest = self._held.subscription.serving
        version = Version(*newest.name)
        serving = UNADAPTED if decision is None else decision.serving
        if not newest.learned or version <= floor or version == serving:
            return None
        if decision is not None and (decision.pinned or version.epoch != decision.epoch):
            return None
        return self._fitting(newest, dimension)

    def _usable(self, version: Version, dimension: int | None) -> QueryModel | None:
        model = self._held.get(version)
        return None if model is None else self._fitting(model, dimension)

    def _fitting(self, model: Model, dimension: int | None) -> QueryModel | None:
        found = self._mapping(model)
        fits = found.dimension is None or dimension is None or found.dimension == dimension
        return found if fits and found.adapted else None
