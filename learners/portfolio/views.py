"""Counts how often a portfolio has seen the same vectors, and derives the initial weight of learners."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import State
from kinstream.learners.kernels.ensembles import distinct

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

#: Bits of the count: about 100,000 different vectors, to a few hundredths.
BITS: Final = 32_768
#: Twice as many views reduce the weight by 2 to this power.
POWER: Final = 2.0


class Views:
    """Counts vectors and different vectors.

    A member that saw the same few vectors many times is right on their triplets, which shows little about others.
    Learners therefore begin with min(1, (repeats / v)^2) of the weight of an un-learned metric, v the mean number of
    times that a vector of a constraint has come: they need fewer mistakes to compensate. Different vectors are counted
    by linear counting (Whang, Vander-Zanden, Taylor: A linear-time probabilistic counting algorithm. TODS 1990); with
    more than it can count, v is 0.

    Parameters
    ----------
    repeats : mean number of times that a vector may come before learners begin with less, above 0; inf for any.
    """

    def __init__(self, repeats: float) -> None:
        self.repeats = repeats
        self._bits = np.zeros(BITS // 8, np.uint8)
        self._tally = np.zeros(2, np.int64)

    @property
    def mean(self) -> float:
        """How often a vector has been seen on average; 0 without vectors, or with too many to count."""
        return float(distinct.mean_views(BITS, int(self._tally[0]), int(self._tally[1])))

    @property
    def start(self) -> float:
        """The present initial weight of a learner; that of an un-learned metric is 1."""
        return float(self._starts(np.array([self.mean]))[0])

    def starts(self, X: Rows, index: NDArray[Any], counted: NDArray[np.bool_]) -> Vector:
        """The initial weight (m,) before each constraint; the counted ones are then included.

        Parameters
        ----------
        X : (n, d) scaled vectors.
        index : (m, k) rows of X.
        counted : (m,)
        """
        words = np.ascontiguousarray(X, np.float32).view(np.uint32)
        found = np.empty(len(index))
        distinct.views(distinct.hashes(words), index, counted, self._bits, self._tally, found)
        return self._starts(found)

    def state(self) -> State:
        return {"bits": self._bits.copy(), "tally": self._tally.copy()}

    def restore(self, state: State) -> None:
        self._bits = np.array(state["bits"], np.uint8)
        self._tally = np.array(state["tally"], np.int64)

    def _starts(self, views: Vector) -> Vector:
        return np.asarray(np.minimum(1.0, self.repeats / np.maximum(views, 1.0)) ** POWER)
