"""How far hyperplanes may move before a stored bit can be stale.

Bit j of an item x is the sign of s = P_j x + t_j. While P_j moves, s changes by at most the length of its path times
|x|, so a bit that was computed at path length c cannot be stale before c + |s| / |x|: that is its deadline. A
bit past its deadline is computed again and gets a new one, so the work follows the real movement of the metric.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.lsh import kernels
from kinstream.search.index.lsh.keys import Keys, doubt
from kinstream.search.index.online.metric import Metric
from kinstream.search.index.online.vectors import Slots, VectorSlots, grown

#: Levels to the length of a hyperplane's normal vector: deadlines are kept in 16 bits.
_LEVELS: Final = 16_384.0


class Deadlines:
    """Deadlines of the watched bits of all items.

    Parameters
    ----------
    watched : (w,) bits.
    share : of the slots that are watched; always the same slots.
    """

    def __init__(self, watched: NDArray[np.int64], seed: int) -> None:
        self.watched = watched
        self.cells = 0
        self._seed = seed
        self._due = np.zeros((0, len(watched)), np.uint16)
        self._radii = np.zeros(0)
        self._scale = 0.0
        #: Slots that have deadlines; None until first used.
        self._with: Slots | None = None

    def start(self, metric: Metric, items: VectorSlots, sample: int | None) -> None:
        """All keys are about to be computed: begin new paths.

        Parameters
        ----------
        sample : items to watch; None for all.
        """
        w = self.watched
        lengths = np.sqrt(np.einsum("ij,ij->i", metric.P[w], metric.P[w]))
        self._unit = np.where(lengths > 0.0, lengths, 1.0) / _LEVELS
        self._path, self._path_thresholds = metric.path[w], metric.path_thresholds[w]
        norms = items.norms[items.taken()]
        self._offsets = bool(metric.path_thresholds.any())
        mean = float(np.sqrt(np.mean(norms**2))) if len(norms) else 0.0
        self._scale = (mean or 1.0) if self._offsets else 0.0
        self._share = 1.0 if sample is None else min(1.0, sample / max(1, len(items)))
        if len(self._due) == items.slots:
            self._due.fill(kernels.NEVER)
        else:
            self._due = np.full((items.slots, len(w)), kernels.NEVER, np.uint16)
            self._radii = np.zeros(items.slots)
        self.cells, self._with = 0, None

    def enter(self, slots: Slots, S: NDArray[Any], metric: Metric, items: VectorSlots) -> None:
        """Set the deadlines of items whose keys were just computed.

        Parameters
        ----------
        S : (m, bits), see `kinstream.search.index.lsh.keys.Keys.write`.
        """
        if items.slots > len(self._due):
            self._due = grown(self._due, items.slots, kernels.NEVER)
            self._radii = grown(self._radii, items.slots)
        self.leave(slots)
        kept = self._sampled(slots)
        slots, S = slots[kept], S[kept]
        self._radii[slots] = np.hypot(items.norms[slots], self._scale)
        unsure, unsure_thresholds = doubt(metric, S.dtype)
        kernels.deadlines(
            S if len(self.watched) == S.shape[1] else np.ascontiguousarray(S[:, self.watched]),
            slots,
            self._radii,
            metric.thresholds[self.watched],
            # It must also include the rounding of later checks of a bit, and that of paths and radii.
            4.0 * unsure[self.watched],
            4.0 * unsure_thresholds[self.watched],
            self._gone(metric),
            1.0 / self._unit,
            self._due,
        )
        self.cells += len(slots) * len(self.watched)

    def leave(self, slots: Slots) -> None:
        """Forget items."""
        self._with = None
        inside = slots[slots < len(self._due)]
        known = self._due[inside, 0] != kernels.NEVER
        self.cells -= int(known.sum()) * len(self.watched)
        self._due[inside] = kernels.NEVER

    def now(self, metric: Metric) -> NDArray[np.uint16] | None:
        """The current level of each watched bit's path; None if the levels are used up and all must be rebuilt."""
        if bool(metric.path_thresholds.any()) != self._offsets:
            return None
        levels = np.floor(self._gone(metric) / self._unit) + 1.0
        if not (levels < kernels.LAST).all():
            return None
        return levels.astype(np.uint16)

    def repair(
        self,
        now: NDArray[np.uint16],
        metric: Metric,
        items: VectorSlots,
        keys: Keys,
        touched: NDArray[np.bool_],
    ) -> tuple[int, int]:
        """Flip stale bits; returns how many bits were checked and flipped."""
        unsure, unsure_thresholds = doubt(metric, items.X.dtype)
        if self._with is None:
            self._with = np.flatnonzero(self._due[:, 0] != kernels.NEVER)
        return kernels.repair(
            self._with,
            self._due,
            now,
            self.watched,
            items.X,
            items.norms,
            self._radii,
            metric.narrowed(items.X.dtype),
            metric.P,
            metric.thresholds,
            unsure,
            unsure_thresholds,
            self._gone(metric),
            self._unit,
            keys.table,
            touched,
        )

    def _gone(self, metric: Metric) -> NDArray[np.float64]:
        """Length of the path of each watched bit since the start, thresholds included."""
        gone = metric.path[self.watched] - self._path
        if self._scale > 0.0:
            gone = gone + (metric.path_thresholds[self.watched] - self._path_thresholds) / self._scale
        return gone

    def _sampled(self, slots: Slots) -> NDArray[np.bool_]:
        if self._share >= 1.0:
            return np.ones(len(slots), np.bool_)
        # A hashed slot number is as good as a random one, and always the same.
        mixed = (slots.astype(np.uint64) + np.uint64(self._seed)) * np.uint64(0x9E3779B97F4A7C15)
        return np.asarray((mixed >> np.uint64(32)) < np.uint64(self._share * 2.0**32))
