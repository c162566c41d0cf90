"""Features scaled for un-learned metrics, with scales from the first vectors of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import apart
from kinstream.learners.base.scaler import MinMax, ZScore
from kinstream.learners.kernels.ensembles.unlearned_distances import distances
from kinstream.streams.records.state import State, with_prefix, without_prefix

Features = NDArray[np.float64]
Index = NDArray[np.int32]
Numbers = NDArray[Any]


def _no_scale(D: int) -> tuple[Features, Features]:
    return np.zeros(D), np.ones(D)


def _directions(X: Features) -> Features:
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return np.asarray(X / np.where(lengths > 0.0, lengths, 1.0))


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
        """The scales with the vectors of some constraints: rows (m, 2 or 3) of X (n, D). This object does not
        change."""
        found = Scales()
        found._zscore, found._minmax = apart(self._zscore), apart(self._minmax)
        for rows in index:
            if found.ready:
                break
            found._zscore.observe(X[rows])
            found._minmax.observe(X[rows])
        return found

    def distances(self, X: Features, left: Numbers, right: Numbers, found: Features) -> None:
        """Fill in found (5, n): the distance of two rows of X (k, D), by un-learned metric in their order."""
        (shift, factor), (_, share) = (
            one.affine() or _no_scale(X.shape[1]) for one in (self._zscore, self._minmax)
        )
        distances(X, left, right, np.stack([shift, factor, share]), found)

    def embedded(self, X: Features) -> Iterator[Features]:
        """X (n, D) under each un-learned metric in their order: squared Euclidean distances rank as the metric does."""
        (shift, factor), (_, share) = (
            one.affine() or _no_scale(X.shape[1]) for one in (self._zscore, self._minmax)
        )
        scaled = (X - shift) * factor
        yield from (X, _directions(X), scaled, _directions(scaled), X * share)

    def state(self) -> State:
        return with_prefix("zscore.", self._zscore.state()) | with_prefix("minmax.", self._minmax.state())

    def restore(self, state: State) -> None:
        self._zscore.restore(without_prefix("zscore.", state))
        self._minmax.restore(without_prefix("minmax.", state))
