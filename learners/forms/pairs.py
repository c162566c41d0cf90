"""The base of learners of pairs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import write
from kinstream.learners.base.learner import Outcomes
from kinstream.learners.base.one_modality import Batch, SingleModal
from kinstream.streams.records.values import Kind


class PairLearner(SingleModal):
    """A learner of pairs; it gets a triplet as two pairs."""

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.PAIR, Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.PAIR

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        events, rows = batch.events, batch.events.rows
        if batch.group == 1:
            squared = events.found[rows]
            mistake, loss = self._score_pairs(squared, batch.signs[rows], batch, rows)
            write(outcomes, rows, mistake, loss, None)
            return
        near, far = events.found[2 * rows], events.found[2 * rows + 1]
        losses = [
            self._score_pairs(squared, batch.signs[places], batch, places)[1]
            for squared, places in ((near, 2 * rows), (far, 2 * rows + 1))
        ]
        write(outcomes, rows, near >= far, losses[0] + losses[1], far - near)

    @abstractmethod
    def _score_pairs(
        self, squared: NDArray[np.float64], signs: NDArray[np.int8], batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Mistakes (-1 if undefined) and losses of pairs with these squared distances before their events.

        Parameters
        ----------
        squared, signs, rows : (k,), and the row of each in the batch.
        """

    @abstractmethod
    def _score_pair(self, squared: float, sign: int) -> tuple[int, float]:
        """Mistake (-1 if undefined) and loss of a pair with this squared distance under the initial model."""

    @abstractmethod
    def _first_distance(self, z: NDArray[np.float64]) -> float:
        """Squared distance of a difference of scaled vectors (d,) under the initial model."""

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        return self._score_squared([self._first_distance(points[0] - other) for other in points[1:]], sign)

    def _score_squared(self, squared: Sequence[float], sign: int) -> tuple[int, float, float]:
        """`_score` from one squared distance for a pair, or two for a triplet."""
        if len(squared) == 1:
            return *self._score_pair(squared[0], sign), np.nan
        losses = [self._score_pair(value, s)[1] for value, s in zip(squared, (1, -1), strict=True)]
        return int(squared[0] >= squared[1]), sum(losses), squared[1] - squared[0]
