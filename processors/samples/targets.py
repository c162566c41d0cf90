"""Target distances for pairs, from the distances between random earlier samples (LEGO paper, Jain et al. 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.draws import below_each, sample_draws
from kinstream.processors.base.packing import References
from kinstream.processors.base.validation import number, one_of, whole
from kinstream.processors.samples.reservoir import Reservoir
from kinstream.processors.samples.reservoir_kernels import ANY, FOUND
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import Table

MODES: Final = ("none", "frozen", "reservoir")
#: Number of distances of a sample to earlier ones, and of samples kept for drawing these.
PER_SAMPLE: Final = 4
ITEMS: Final = 256
#: Number of distances before the first targets of a reservoir, and between two calculations.
FIRST: Final = 100
EVERY: Final = 400
MAX_SAMPLE: Final = 10_000

# Range of a target as float32: positive and finite.
_LEAST: Final = float(np.finfo(np.float32).tiny)
_MOST: Final = float(np.finfo(np.float32).max)


class Targets:
    """y_S for similar and y_D for dissimilar pairs: percentiles of squared Euclidean distances of raw features.

    Each sample gives its distances to `PER_SAMPLE` uniformly drawn earlier ones; several modalities count as one
    vector. Distances of zero are dropped. If y_S >= y_D, y_S becomes y_D / 2, which is counted in `halved`.

    Parameters
    ----------
    mode : the source of targets.

        - "none": no targets.
        - "frozen": the percentiles of the first `sample` distances (or a few more: those of a sample are taken
          together), from then on the same.
        - "reservoir": the percentiles of a uniform sample of all distances so far (algorithm R), from the first
          `FIRST` distances on (or `sample`, if that is less) and again after every `EVERY` more.
    percentiles : percentiles for y_S and y_D, from 0 to 100.
    sample : distances, 2 to `MAX_SAMPLE`.
    algorithm, seed : for the draws, which otherwise depend only on the space and a sample's number in it.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    Targets depend only on the number of samples, not on blocks or clocks. Only distances that enter the sample are
    computed. O(sample + ITEMS d) memory, which "frozen" frees once the targets are known. An erased sample is no longer
    used; its earlier distances, which are numbers without name, remain.
    """

    def __init__(
        self, mode: str, percentiles: Sequence[float], sample: int, algorithm: str, seed: int
    ) -> None:
        self.mode = one_of("targets", mode, MODES)
        if isinstance(percentiles, str) or not isinstance(percentiles, Sequence) or len(percentiles) != 2:
            raise SettingsError(f"target_percentiles must be two numbers, not {percentiles!r}")
        low, high = (number("target_percentiles", value, 0.0, 100.0) for value in percentiles)
        if low >= high:
            raise SettingsError(f"target_percentiles must rise, unlike {percentiles!r}")
        self.percentiles = low, high
        self.sample = whole("target_sample", sample, 2, MAX_SAMPLE)
        #: y_S and y_D, NaN while they are not known; and how often y_S was set to y_D / 2.
        self.similar, self.dissimilar = np.nan, np.nan
        self.halved = 0
        self._name, self._seed = f"{algorithm}/targets", seed
        self._items = Reservoir(ITEMS, 1) if mode != "none" else None
        self._distances = np.empty(0)
        self._drawn = 0
        self._changed = False
        self._next = min(FIRST, sample) if mode == "reservoir" else sample

    @property
    def wanted(self) -> bool:
        """Whether pairs have targets."""
        return self.mode != "none"

    def of(
        self, space: str, tables: tuple[Table, ...], ids: Sequence[str] | None
    ) -> NDArray[np.float32] | None:
        """Add a block of n samples.

        Returns
        -------
        (n, 2) float32: y_S and y_D known before each sample, NaN while unknown; None with "none".
        """
        if not self.wanted:
            return None
        n = len(tables[0].vectors)
        known = np.empty((n, 2), np.float32)
        known[:] = self.similar, self.dissimilar
        if self._items is None:
            return known
        draws = sample_draws(self._name, self._seed, space, self._items.samples, n, 1 + 3 * PER_SAMPLE)
        picks = self._items.walk([0] * n, draws, np.full((n, PER_SAMPLE), ANY, np.int8))
        # A sample has either all of its partners or none.
        drawn = self._drawn + PER_SAMPLE * np.cumsum(picks.fates[:, 0] == FOUND)
        order = drawn[:, None] - np.arange(PER_SAMPLE)[::-1]
        slots = below_each(draws[:, 1 + 2 * PER_SAMPLE : 1 + 3 * PER_SAMPLE], order)
        slots = np.where(order <= self.sample, order - 1, slots)
        rows, which = np.nonzero((picks.fates == FOUND) & (slots < self.sample))
        slots = slots[rows, which]
        distances = self._between(tables, rows, picks.references[rows, which])
        self._items.settle(tables, ids)
        self._make_room(int(min(drawn[-1], self.sample)))
        start = 0
        while start < n:
            due = int(np.searchsorted(drawn, self._next))
            stop = min(due + 1, n)
            first, end = np.searchsorted(rows, (start, stop))
            # If two enter the same slot, the last one stays.
            self._distances[slots[first:end]] = distances[first:end]
            self._changed |= bool(first < end)
            self._drawn = int(drawn[stop - 1])
            if due < n:
                if self._changed:
                    self._calculate()
                known[stop:] = self.similar, self.dissimilar
                if self.mode == "frozen" and not np.isnan(self.similar):
                    self._items, self._distances = None, np.empty(0)
                    break
                self._next = self._drawn + EVERY
            start = stop
        return known

    def _between(
        self, tables: tuple[Table, ...], rows: NDArray[np.int64], others: References
    ) -> NDArray[np.float64]:
        """Squared distances between rows of the block and references."""
        assert self._items is not None
        distinct, at = np.unique(others, return_inverse=True)
        squared = np.zeros(len(rows))
        for table, earlier in zip(tables, self._items.tables(tables, distinct), strict=True):
            difference = table.vectors[rows].astype(np.float64) - earlier.vectors[at]
            squared += (difference * difference).sum(axis=1)
        return squared

    def _make_room(self, places: int) -> None:
        if places > len(self._distances):
            self._distances = np.concatenate([self._distances, np.zeros(places - len(self._distances))])

    def _calculate(self) -> None:
        self._changed = False
        positive = self._distances[self._distances > 0.0]
        if not len(positive):
            return
        found = np.clip(np.percentile(positive, self.percentiles), _LEAST, _MOST).astype(np.float32)
        low, high = found.tolist()
        if low >= high:
            low = high / 2.0
            self.halved += 1
        self.similar, self.dissimilar = low, high

    def erase(self, ids: Sequence[str]) -> None:
        """Forget the vectors of the samples of these names."""
        if self._items is not None:
            self._items.erase(ids)

    def state(self) -> State:
        """A copy of everything that later targets depend on."""
        if not self.wanted:
            return {}
        state: State = {
            "numbers": np.array([self._drawn, self._next, self._changed, self.halved], np.int64),
            "known": np.array([self.similar, self.dissimilar]),
        }
        if self._items is not None:
            state["distances"] = self._distances.copy()
            state |= with_prefix("items.", self._items.state())
        return state

    def restore(self, state: State) -> None:
        """The inverse of `state`."""
        if not self.wanted:
            return
        self._drawn, self._next, changed, self.halved = np.asarray(state["numbers"]).tolist()
        self._changed = bool(changed)
        self.similar, self.dissimilar = np.asarray(state["known"]).tolist()
        items = without_prefix("items.", state)
        self._items = Reservoir(ITEMS, 1) if items else None
        self._distances = np.array(state.get("distances", ()), np.float64)
        if self._items is not None:
            self._items.restore(items)
