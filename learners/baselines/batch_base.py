"""The base of learners that fit a batch algorithm to the latest constraints at intervals."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import take
from kinstream.learners.base.first_vectors import cut, scales_of, within
from kinstream.learners.base.learner import Outcomes, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.validation import whole
from kinstream.learners.baselines.euclidean import Euclidean
from kinstream.learners.baselines.sampling import squared_percentiles
from kinstream.learners.baselines.window import ConstraintWindow, Pairs
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock

#: Constraints that a learner keeps, and constraints between two fits.
BUFFER = 1000
_NEVER = 2**62


class Refitted(Euclidean):
    """A map that is fitted again to the latest constraints; Euclidean distance before the first fit.

    Between two fits, constraints are scored under the present map. A fit is due every `refit_every` constraints. It
    takes place at the next constraint with a loss, which is reported as utilised if the map has changed; if the window
    holds too little, the map stays. So a map without a loss does not change, as with online learners.

    After every fit, the threshold of pairs becomes the mean of the 5th and 95th percentile of the squared distances
    between the window's vectors under the new map, unless the algorithm has targets of its own.

    A subclass gives `algorithm` and `_fit`.

    Parameters
    ----------
    buffer : largest number of constraints that a fit uses.
    refit_every : constraints from one fit to the next; 0 fits only once, when the buffer is full.
    y_similar, y_dissimilar, dtype, scaler, warm_up : as for `kinstream.learners.baselines.euclidean.Euclidean`.

    Attributes
    ----------
    fits : how many fits have changed the map.
    """

    def __init__(
        self,
        *,
        buffer: int,
        refit_every: int,
        dtype: str,
        scaler: str | None,
        warm_up: int,
        y_similar: float | None = None,
        y_dissimilar: float | None = None,
    ) -> None:
        super().__init__(
            y_similar=y_similar, y_dissimilar=y_dissimilar, dtype=dtype, scaler=scaler, warm_up=warm_up
        )
        self.buffer = whole("buffer", buffer, 2)
        self.refit_every = whole("refit_every", refit_every, 0)
        self.fits = 0
        self._since = 0
        self._threshold = np.nan
        self._window = ConstraintWindow(self.buffer, 1, self.dtype)

    def _split(self, block: ConstraintBlock) -> NDArray[np.bool_]:
        return block.split(self.form)

    @abstractmethod
    def _fit(self, pairs: Pairs) -> NDArray[np.float64] | None:
        """The map (d, d) of these constraints; None, or a ValueError, if they are too few or do not determine one."""

    def _threshold_of(self, mapped: NDArray[np.float64]) -> float:
        """Threshold of pairs under a new map, from the window's vectors (n, d) under it; NaN for no change."""
        found = squared_percentiles(mapped)
        return np.nan if found is None else sum(found) / 2.0

    @property
    def threshold(self) -> float:
        """Squared distance above which a pair counts as dissimilar; NaN while it is not known."""
        return super().threshold if np.isnan(self._threshold) else self._threshold

    def _begin(self, d: int) -> None:
        super()._begin(d)
        self.fits, self._since, self._threshold = 0, 0, np.nan
        self._window = ConstraintWindow(self.buffer, d, self.dtype)

    def _model(self) -> State:
        learned: State = {"fits": self.fits, "since": self._since}
        if self.fits:
            learned |= {"map": self._T.T.copy(), "threshold": self._threshold}
        return super()._model() | learned | self._window.state()

    def _restore_model(self, state: State) -> int:
        d = super()._restore_model(state)
        found: NDArray[Any] = np.asarray(state.get("map", np.empty((0, 0), self.dtype)))
        if found.dtype != self.dtype:
            raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        window = ConstraintWindow(self.buffer, d, self.dtype)
        window.restore(state)
        self._T, self._window = np.array(found.T, order="C"), window
        self.fits, self._since = int(state["fits"]), int(state["since"])
        self._threshold = float(state.get("threshold", np.nan))
        return d

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        row, judged = 0, 0
        late: list[tuple[int, Outcomes]] = []
        while row < len(batch):
            first = row
            row, self._since, due = self._scored(batch, outcomes, first, self._since, self._every)
            self._window.add(batch, outcomes, slice(first, row))
            if due:
                end = batch.end_of_event(row)
                if end > max(row, judged):
                    late.append((row, self._rest(batch, row, end)))
                    judged = end
                outcomes.utilised[row - batch.group] = self._refit()
        for first, found in late:
            take(outcomes, first, found)

    def _rest(self, batch: Batch, row: int, end: int) -> Outcomes:
        """Verdicts on the rest of an event, by the map from the event's start, before any fit."""
        rows = slice(row, end)
        rest = replace(batch, index=batch.index[rows], usable=batch.usable[rows], signs=batch.signs[rows])
        found = Outcomes.blank(end - row)
        self._scored(rest, found, 0, 0, _NEVER)
        return found

    @property
    def _every(self) -> int:
        if self.refit_every:
            return self.refit_every
        return _NEVER if self.fits else self.buffer

    def _refit(self) -> bool:
        """Fit the map; returns whether it changed."""
        self._since = 0
        pairs = _near(self._window.pairs())
        with one_blas_thread(), np.errstate(all="ignore"):
            try:
                found = self._fit(pairs)
            except ValueError:
                return False
            if found is None:
                return False
            T = np.array(found.T, self.dtype, order="C")
            if not np.isfinite(T).all() or np.array_equal(T, self._T):
                return False
            self._T = T
            self._threshold = self._threshold_of(pairs.X @ found.T)
        self.fits += 1
        return True


def _near(pairs: Pairs) -> Pairs:
    """The pairs of vectors within reach of one another, with far values cut: none decides a covariance."""
    X = cut(pairs.X)
    if X is pairs.X:
        return pairs
    near = within(pairs.X, *scales_of(pairs.X))[pairs.index].all(axis=1)
    return Pairs(X, pairs.index[near], pairs.signs[near])
