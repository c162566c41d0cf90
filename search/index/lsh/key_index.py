"""Search by keys: candidates whose keys are nearest to the query's, ranked by exact distance."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.lsh.candidates import Candidates
from kinstream.search.index.lsh.deadlines import Deadlines
from kinstream.search.index.lsh.keys import Keys
from kinstream.search.index.online.metric_index import MetricIndex
from kinstream.search.index.online.ranking import distances, foremost, projected
from kinstream.search.index.online.vectors import Slots, grown
from kinstream.streams.compute.blas_threads import one_blas_thread


class HashedIndex(MetricIndex):
    """Base of all searches by keys. Keys belong to the metric that they were last computed or repaired for."""

    def _begun(self) -> None:
        self.keys = Keys(self.settings.bits)
        self.candidates = Candidates(self.items, self.metric, self.keys)
        self._version = self.metric.version

    def _entered(self, slots: Slots) -> None:
        self.keys.reserve(self.items.slots)
        if len(slots) == len(self.items):
            # All keys will be recomputed.
            self._restart()
            self._version = self.metric.version
        for piece, S in self.keys.write(slots, self.items, self.metric):
            self._hashed(piece, S)
        self.candidates.enter(slots)

    def _left(self, slots: Slots) -> None:
        self.candidates.leave(slots)

    def _searched(self, Q: NDArray[np.float64], k: int) -> list[tuple[Slots, NDArray[np.float64], int]]:
        if self._version != self.metric.version:
            self._refresh()
            self.candidates.refresh()
            self._version = self.metric.version
        elif self.metric.held:
            # The metric no longer changes: one product maps from now on; held steps took two more.
            self.metric.settle()
        budget = self.settings.budget(len(self), k)
        answers = []
        with one_blas_thread():  # once for all work of a query
            for q in Q:
                slots = self.candidates.of(q, budget)
                near = projected(q, slots, k, self.items, self.metric)
                near = foremost(q, near, k, self.items, self.metric)
                answers.append((near, distances(q, near, self.items, self.metric), len(slots)))
        return answers

    def rebuild(self) -> None:
        """Recompute all keys."""
        begun = perf_counter()
        self._restart()
        for piece, S in self.keys.write(self.items.taken(), self.items, self.metric):
            self._hashed(piece, S)
        self._version = self.metric.version
        self.stats.rebuilds += 1
        self.stats.rebuild_seconds += perf_counter() - begun

    def _refresh(self) -> None:
        """The metric has changed since the last search."""
        self.rebuild()

    def _restart(self) -> None:
        """All keys are about to be computed."""

    def _hashed(self, slots: Slots, S: NDArray[Any]) -> None:
        """The keys of some items were computed."""


class NaiveIndex(HashedIndex):
    """All keys are recomputed for the first search after a change of the metric."""


class StaticIndex(HashedIndex):
    """Keys and distances of the metric at the time of the first item. Later metrics are ignored."""

    def _remapped(self, matrix: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
        if not len(self):
            super()._remapped(matrix, offset)

    def _stepped(self, U: NDArray[np.float64], V: NDArray[np.float64]) -> None:
        if not len(self):
            super()._stepped(U, V)


class LazyIndex(HashedIndex):
    """Keys follow the metric by the LEGO paper's monitored rule.

    Bits of the monitored hyperplanes that may be stale are computed again; when enough of them have flipped, all keys.
    """

    def _begun(self) -> None:
        super()._begun()
        bits = self.settings.bits
        draw = np.random.Generator(np.random.Philox([self.settings.seed, bits, 1]))
        watched = np.sort(draw.choice(bits, self.settings.monitored, replace=False))
        self._stale = Deadlines(watched.astype(np.int64), self.settings.seed)
        self._restart()

    @property
    def watched(self) -> NDArray[np.int64]:
        """Bits that are kept up to date."""
        return self._stale.watched

    def _restart(self) -> None:
        self._begun_with = len(self.items)
        self._stale.start(self.metric, self.items, self.settings.sample)
        self._touched = np.zeros(self.items.slots, np.bool_)
        self._flipped = 0

    def _hashed(self, slots: Slots, S: NDArray[Any]) -> None:
        if len(self._touched) < self.items.slots:
            self._touched = grown(self._touched, self.items.slots)
        self._touched[slots] = False
        self._stale.enter(slots, S, self.metric, self.items)

    def _left(self, slots: Slots) -> None:
        super()._left(slots)
        self._touched[slots] = False
        self._stale.leave(slots)

    def _refresh(self) -> None:
        begun = perf_counter()
        now = self._stale.now(self.metric)
        if self.settings.sample is not None and len(self) > 2 * self._begun_with:
            now = None  # The share of the items in a sample of that size has changed.
        if now is None:
            self.rebuild()
            return
        looked, flipped = self._stale.repair(now, self.metric, self.items, self.keys, self._touched)
        self._flipped += flipped
        self.stats.checked += looked
        self.stats.flipped += flipped
        self.stats.repair_seconds += perf_counter() - begun
        if self.changed() > self.settings.share:
            self.rebuild()

    def changed(self) -> float:
        """Share of the monitored items, or bits, with stale bits since the last rebuild."""
        cells = max(1, self._stale.cells)
        if self.settings.rule == "bits":
            return self._flipped / cells
        return float(self._touched.sum()) * len(self._stale.watched) / cells
