"""The LEGO paper's way to find stale bits: a second level of hashing.

Let s = P1_j x for the hyperplanes P1 of the last rebuild, and D = P_j - P1_j. The bit is stale where s (s + D x) <= 0,
which is q.u >= 0 for u = [s^2 / c; s x] and q = [-c; -D]. So the stale items are those whose u has a small angle with
q: u is hashed when the keys are computed, q when they are repaired, and the items whose hashes are nearest are checked
exactly. Nothing is flipped wrongly, but some stale bits are missed. The paper has c = 1. If D is short, that makes
the angles of stale and other items differ by less than a hash can tell; c of about the length of D is better.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.lsh import kernels
from kinstream.search.index.lsh.candidates import lowest
from kinstream.search.index.lsh.keys import Keys
from kinstream.search.index.online.metric import Metric
from kinstream.search.index.online.vectors import Slots, VectorSlots, grown
from kinstream.streams.compute.blas_threads import one_blas_thread

#: The c of u and q, as a share of the length of P1_j.
_FIRST: Final = 0.05
#: Bits of a hash of the second level.
BITS: Final = 128
_WORDS: Final = BITS // 64


class SecondLevel:
    """Hashes of [s^2 / c; s x; s a] for each watched bit and item; the last entry, in scale a, is for the thresholds.

    Parameters
    ----------
    watched : (w,) bits.
    retrieved : share of the items that are checked for each watched bit.

    Attributes
    ----------
    cells : watched bits of all items.
    """

    def __init__(self, watched: NDArray[np.int64], seed: int, retrieved: float) -> None:
        self.watched = watched
        self.cells = 0
        self._seed, self._retrieved = seed, retrieved
        self._hashes = np.zeros((len(watched), 0, _WORDS), np.uint64)
        self._flipped = np.zeros((0, len(watched)), np.bool_)

    def start(self, metric: Metric, items: VectorSlots, sample: int | None) -> None:
        """All keys are about to be computed: their hyperplanes are the ones to compare with from now on.

        Parameters
        ----------
        sample : not used here.
        """
        draw = np.random.Generator(np.random.Philox([self._seed, metric.d, 2]))
        self._R = draw.normal(size=(BITS, metric.d + 2))
        self._P, self._thresholds = metric.P[self.watched], metric.thresholds[self.watched]
        lengths = np.sqrt(np.einsum("ij,ij->i", self._P, self._P))
        self._first = _FIRST * np.where(lengths > 0.0, lengths, 1.0)
        norms = items.norms[items.taken()]
        self._scale = float(np.sqrt(np.mean(norms**2))) if norms.any() else 1.0
        self._hashes = np.zeros((len(self.watched), items.slots, _WORDS), np.uint64)
        self._flipped = np.zeros((items.slots, len(self.watched)), np.bool_)
        self._present = np.zeros(items.slots, np.bool_)
        self.cells = 0

    def enter(self, slots: Slots, S: NDArray[Any], metric: Metric, items: VectorSlots) -> None:
        """Hash items whose keys were just computed.

        Parameters
        ----------
        S, metric : not used here: the metric of the last rebuild counts.
        """
        if items.slots > len(self._present):
            self._present = grown(self._present, items.slots)
            self._flipped = grown(self._flipped, items.slots)
            self._hashes = grown(self._hashes.swapaxes(0, 1), items.slots).swapaxes(0, 1).copy()
        self.leave(slots)
        self._present[slots] = True
        self.cells += len(slots) * len(self.watched)
        rows = items.rows(slots).astype(np.float64)
        with one_blas_thread():
            first = rows @ self._P.T + self._thresholds
            shared = rows @ self._R[:, 1:-1].T + self._scale * self._R[:, -1]
        for c in range(len(self.watched)):
            s = first[:, c, None]
            self._hashes[c, slots] = packed(s * (s / self._first[c] * self._R[:, 0] + shared))

    def leave(self, slots: Slots) -> None:
        """Forget items."""
        slots = slots[slots < len(self._present)]
        self.cells -= int(self._present[slots].sum()) * len(self.watched)
        self._present[slots] = False
        self._flipped[slots] = False

    def now(self, metric: Metric) -> NDArray[np.uint16] | None:
        """The current paths of the watched bits; not used here."""
        return np.zeros(0, np.uint16)

    def share_due(self, now: NDArray[np.uint16]) -> float:
        """Share of the watched bits that will be checked."""
        return self._retrieved

    def repair(
        self,
        now: NDArray[np.uint16],
        metric: Metric,
        items: VectorSlots,
        keys: Keys,
        touched: NDArray[np.bool_],
    ) -> tuple[int, int]:
        """Flip bits found stale; returns how many bits were checked and flipped."""
        looked = flipped = 0
        wanted = max(1, round(self._retrieved * len(items)))
        away = np.empty(items.top, np.int32)
        for c, j in enumerate(self.watched):
            moved = metric.P[j] - self._P[c]
            shift = (metric.thresholds[j] - self._thresholds[c]) / self._scale
            query = packed(-(self._R @ np.concatenate([[self._first[c]], moved, [shift]])))
            kernels.differing(self._hashes[c], query, away)
            rough = np.where(self._present[: items.top], away, np.inf).astype(np.float32)
            # The first hash no longer holds for a bit that was flipped once, so it is always checked.
            before = np.flatnonzero(self._flipped[: items.top, c])
            slots = np.union1d(lowest(rough, wanted), before)
            stored = keys.bit(slots, int(j))
            flipped += kernels.check_bits(
                slots, int(j), items.X, metric.P[j], metric.thresholds[j], keys.table, touched
            )
            self._flipped[slots, c] ^= keys.bit(slots, int(j)) != stored
            looked += len(slots)
        return looked, flipped


def packed(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Signs (..., BITS) in words (..., BITS / 64)."""
    return np.asarray(np.packbits(values >= 0.0, axis=-1, bitorder="little").view(np.uint64))
