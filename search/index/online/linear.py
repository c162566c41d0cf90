"""The scan of all items, as fast as one pass over their vectors allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.online.metric import HELD
from kinstream.search.index.online.metric_index import MetricIndex
from kinstream.search.index.online.ranking import distances, underflow
from kinstream.search.index.online.squares import Squares, changes
from kinstream.search.index.online.vectors import CHUNK, Slots
from kinstream.streams.compute.blas_threads import one_blas_thread


class LinearIndex(MetricIndex):
    """Scans every item, by one product of all items with the queries and with the steps since the last search.

    |G (q - x)|^2 = q'Aq - 2 x'Aq + x'Ax, where x'Ax is stored. That form loses digits if q and x are close, so items
    that could be among the k nearest within the error of the sum are computed again from the difference.
    """

    def _hold(self, d: int) -> int:
        # The stored values can follow the held steps, and otherwise have to be recomputed.
        return max(HELD, d)

    def _begun(self) -> None:
        self._squares = Squares(self.metric, self.items)

    def _entered(self, slots: Slots) -> None:
        self._squares.enter(slots)

    def _left(self, slots: Slots) -> None:
        pass

    def _searched(self, Q: NDArray[np.float64], k: int) -> list[tuple[Slots, NDArray[np.float64], int]]:
        squares, items, metric = self._squares, self.items, self.metric
        squares.up_to_date()
        taken = items.taken()
        AQ = metric.pull(metric.apply(Q))
        basis, C = metric.change()
        held = basis.shape[1]
        right = np.concatenate([basis, AQ.T], axis=1).astype(items.X.dtype)
        crossed = np.empty((len(taken), len(Q)), items.X.dtype)
        for first in range(0, len(taken), CHUNK):
            piece = taken[first : first + CHUNK]
            with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                product = items.rows(piece) @ right
            if held:
                squares.values[piece] += changes(product[:, :held], C)
            crossed[first : first + CHUNK] = product[:, held:]
        squares.settled(C)
        own, norms = squares.values[taken], items.norms[taken]
        tiny = underflow(metric.d, items.X.dtype)
        answers = []
        for row, q in enumerate(Q):
            with np.errstate(over="ignore", invalid="ignore"):
                rough = own - 2.0 * crossed[:, row]
            length = float(np.linalg.norm(AQ[row]))
            doubt = norms * (squares.error * norms + 2.0 * squares.rounding * length)
            doubt += 2.0 * tiny * (1.0 + norms + length)
            last = min(k, len(taken)) - 1
            # Overflowed values are measured.
            known = np.isfinite(rough) & np.isfinite(doubt)
            edge = np.partition(np.where(known, rough + doubt, np.inf), last)[last]
            near = taken[~known | (rough - doubt <= edge)]
            answers.append((near, distances(q, near, items, metric), len(taken)))
        return answers
