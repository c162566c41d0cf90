"""How often a portfolio has seen the same vectors, and what share of the weight that leaves to learners."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from learners.base import State
from learners.kernels import distinct

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

#: Bits of the count: about 100,000 different vectors, to a few hundredths.
BITS: Final = 32_768
#: Mean number of times that a vector may be seen before learners lose weight.
OFTEN: Final = 20.0
#: What they keep of their share, however often that is.
LEAST: Final = 0.5


class Views:
    """Counts vectors and different vectors.

    Who has seen the same few vectors many times is right on triplets of those, and that says less and less of others.
    Learners therefore share `(1 - floor) min(1, max(1/2, sqrt(20 / v)))` of the weight, v the mean number of times that
    a vector of a constraint has come. Different vectors are counted by linear counting (Whang, Vander-Zanden, Taylor: A
    linear-time probabilistic counting algorithm. TODS 1990); with more than it can hold, v counts as 0.
    """

    def __init__(self) -> None:
        self._bits = np.zeros(BITS // 8, np.uint8)
        self._tally = np.zeros(2, np.int64)

    @property
    def mean(self) -> float:
        """How often a vector has been seen on average; 0 where there is none, or there are too many to count."""
        return float(distinct.mean_views(BITS, int(self._tally[0]), int(self._tally[1])))

    def floor(self, least: float) -> float:
        """Share of the un-learned metrics now, at least `least`."""
        return float(_floors(least, np.array([self.mean]))[0])

    def floors(self, least: float, X: Rows, index: NDArray[Any], counted: NDArray[np.bool_]) -> Vector:
        """That share (m,) before each constraint; those that count are counted.

        Parameters
        ----------
        X : (n, d) scaled vectors.
        index : (m, k) rows of X.
        counted : (m,)
        """
        words = np.ascontiguousarray(X, np.float32).view(np.uint32)
        found = np.empty(len(index))
        distinct.views(distinct.hashes(words), index, counted, self._bits, self._tally, found)
        return _floors(least, found)

    def state(self) -> State:
        return {"bits": self._bits.copy(), "tally": self._tally.copy()}

    def restore(self, state: State) -> None:
        self._bits = np.array(state["bits"], np.uint8)
        self._tally = np.array(state["tally"], np.int64)


def _floors(least: float, views: Vector) -> Vector:
    kept = np.sqrt(OFTEN / np.maximum(views, OFTEN))
    return np.asarray(1.0 - (1.0 - least) * np.maximum(kept, LEAST))
