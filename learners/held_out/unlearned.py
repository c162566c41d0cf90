"""Features as un-learned metrics see them, by scales of the first vectors of a stream."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.shared.events import apart
from kinstream.learners.shared.scaler import MinMax, UnitLength, ZScore
from kinstream.streams.records.state import State, with_prefix, without_prefix

Features = NDArray[np.float64]
Index = NDArray[np.int32]

_DIRECTIONS: Final = UnitLength()


class Scales:
    """Z-score and min-max scale of the first 256 distinct vectors, in the order in which constraints name them."""

    def __init__(self) -> None:
        self._zscore = ZScore()
        self._minmax = MinMax()

    @property
    def ready(self) -> bool:
        """Whether they are final."""
        return self._zscore.ready

    def after(self, X: Features, index: Index) -> Scales:
        """The scales with the vectors of some constraints: rows (m, 2 or 3) of X (n, D). These stay as they are."""
        found = Scales()
        found._zscore, found._minmax = apart(self._zscore), apart(self._minmax)
        for rows in index:
            if found.ready:
                break
            found._zscore.observe(X[rows])
            found._minmax.observe(X[rows])
        return found

    def views(self, X: Features) -> list[Features]:
        """X (n, D) for each un-learned metric, in their order: squared Euclidean distances rank as it does."""
        with np.errstate(all="ignore"):
            scaled = np.asarray(self._zscore.apply(X), np.float64)
            return [
                X,
                np.asarray(_DIRECTIONS.apply(X)),
                scaled,
                np.asarray(_DIRECTIONS.apply(scaled)),
                np.asarray(self._minmax.apply(X), np.float64),
            ]

    def state(self) -> State:
        return with_prefix("zscore.", self._zscore.state()) | with_prefix("minmax.", self._minmax.state())

    def restore(self, state: State) -> None:
        self._zscore.restore(without_prefix("zscore.", state))
        self._minmax.restore(without_prefix("minmax.", state))
