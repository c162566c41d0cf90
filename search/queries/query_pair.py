"""The query maps that answer in a space with a gate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kinstream.search.drafts.serving_choice import Decided, Deciding
from kinstream.search.models.model import Model
from kinstream.search.queries.adapter import query_model
from kinstream.search.queries.model import QueryModel

#: Query models that are kept: serving, challenger, newest, and those of a moment ago.
_MAPS: Final = 6


@dataclass(frozen=True, slots=True)
class ModelPair:
    """The query maps that answer at one moment. It never changes, so everything in an answer comes from one.

    Parameters
    ----------
    serving : maps the queries.
    candidate : the other side of drafted lists; None if there are none.
    decided : what the gate has decided; None for a space without a gate.
    missing : whether the model that serves by decision is not available, so that queries are asked as they are.
    """

    serving: QueryModel
    candidate: QueryModel | None = None
    decided: Decided | None = None
    missing: bool = False


class Gated:
    """The decisions on a space, obeyed. Any thread may call it.

    Parameters
    ----------
    learner : whose models are decided on.
    deciding : the decisions.
    """

    def __init__(self, learner: str, deciding: Deciding) -> None:
        self._deciding = deciding
        self._none = QueryModel(learner)

        # Each model's map is made once; models are compared by identity.
        @lru_cache(_MAPS)
        def mapping(model: Model) -> QueryModel:
            return query_model(learner, model)

        self._mapping = mapping

    @property
    def tried(self) -> bool:
        """Whether every model that was decided on before the start is loaded, or was tried."""
        return self._deciding.tried

    def pair(self, dimension: int | None) -> ModelPair:
        """Who answers now.

        Parameters
        ----------
        dimension : features of the store's vectors; None if unknown. A model of another dimension is not available.
        """
        decided = self._deciding.now()
        serving = self._fitting(decided.serving, dimension)
        if serving is None:
            return ModelPair(self._none, None, decided, True)
        fitting = (self._fitting(model, dimension) for model in decided.candidates)
        return ModelPair(serving, next((one for one in fitting if one is not None), None), decided)

    def _fitting(self, model: Model | None, dimension: int | None) -> QueryModel | None:
        if model is None:
            return None
        if not model.learned:
            return self._none
        found = self._mapping(model)
        fits = found.dimension is None or dimension is None or found.dimension == dimension
        return found if fits and found.adapted else None
