"""x'Ax of every item, stored for the base of a metric and corrected for its held steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.online.metric import Metric
from kinstream.search.index.online.ranking import rounding
from kinstream.search.index.online.vectors import CHUNK, Slots, VectorSlots, grown
from kinstream.streams.compute.blas_threads import one_blas_thread


class Squares:
    """Squared lengths of the mapped items.

    Attributes
    ----------
    values : (slots,) float64, x'Ax for A of the metric's base.
    error : values are off by at most this times |x|^2.
    """

    def __init__(self, metric: Metric, items: VectorSlots) -> None:
        self._metric, self._items = metric, items
        self.values = np.zeros(0)
        self.error = self._fresh_error = 0.0
        self._version = -1

    def enter(self, slots: Slots) -> None:
        """Calculate those of new items."""
        if len(self.values) < self._items.slots:
            self.values = grown(self.values, self._items.slots)
        if self._version == self._metric.base_version:
            Q, C = self._metric.change()
            A = self._metric.A - Q @ C @ Q.T
            self._calculate(slots, A)

    def up_to_date(self) -> bool:
        """Update the values to the metric's base; returns whether they had to be recomputed."""
        if self._version == self._metric.base_version and self.error <= 4.0 * self._fresh_error:
            return False
        self._metric.settle()
        A = self._metric.A
        self._fresh_error = self.error = self.rounding * float(np.linalg.norm(A))
        self._calculate(self._items.taken(), A)
        self._version = self._metric.base_version
        return True

    def catch_up(self) -> None:
        """Bring the values and the metric's base up to date."""
        if self.up_to_date() or not self._metric.held:
            return
        Q, C = self._metric.change()
        narrow = Q.astype(self._items.X.dtype)
        taken = self._items.taken()
        for first in range(0, len(taken), CHUNK):
            piece = taken[first : first + CHUNK]
            with one_blas_thread():
                self.values[piece] += changes(self._items.rows(piece) @ narrow, C)
        self.settled(C)

    def settled(self, C: NDArray[np.float64]) -> None:
        """The values have been corrected by the held steps, whose change is C: these go into the base."""
        self.error += self.rounding * float(np.linalg.norm(C))
        self._metric.settle()

    @property
    def rounding(self) -> float:
        """A product of d terms is off by at most this times the lengths of its factors."""
        return rounding(self._metric.d, self._items.X.dtype)

    def _calculate(self, slots: Slots, A: NDArray[np.float64]) -> None:
        narrow = A.astype(self._items.X.dtype)
        for first in range(0, len(slots), CHUNK):
            piece = slots[first : first + CHUNK]
            rows = self._items.rows(piece)
            with one_blas_thread():
                mapped = rows @ narrow
            self.values[piece] = np.einsum("ij,ij->i", mapped, rows, dtype=np.float64)


def changes(H: NDArray[Any], C: NDArray[np.float64]) -> NDArray[np.float64]:
    """h'Ch for each row h = Q'x: the change of x'Ax by the held steps."""
    return np.asarray(np.einsum("ij,ij->i", H @ C.astype(H.dtype), H, dtype=np.float64))
