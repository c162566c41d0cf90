"""Feature scaling that belongs to the model: its statistics live in the learner's state.

`zscore` and `minmax` need statistics before anything can be learned, because a map that was learned under
one scale is wrong under the next. So they observe a **warm-up** and are then frozen permanently:

- It lasts until `warm_up` distinct vectors were seen, but at most `4 * warm_up` constraints, so it also ends with a
  small catalogue.
- Its constraints are scored by Euclidean distance under the statistics so far, and counted as seen; they do not change
  the map. Learning begins with the first constraint after it, from the identity.
- No vector ruins them: one that lies a million scales from the others is refused, in the warm-up as well as after it
  (`kinstream.learners.base.first_vectors`).
- Vectors count once each, in the order in which constraints name them, never in the order of a block's table, so block
  boundaries have no effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.first_vectors import Buffer, holding, within
from kinstream.learners.base.learner import State
from kinstream.learners.base.validation import one_of, whole
from kinstream.streams.records.values import SCALERS

Rows = NDArray[np.floating[Any]]
Features = NDArray[np.float64]

#: Distinct vectors before statistics are frozen: a standard deviation is then known to about 4 %.
WARM_UP: Final = 256
_NOTHING: Final = 1e-12


class Scaler:
    """No scaling; and the interface of all scalers."""

    #: True once statistics are final, so that the model may learn.
    ready = True

    def observe(self, rows: Features) -> bool:
        """Include the vectors (k, d) of one constraint in the statistics; only called while not `ready`.

        Returns
        -------
        bool
            Whether they are within reach of those before, as far as it can be told yet; the statistics are of such.
        """
        return True

    def refused(self, vectors: Rows, index: NDArray[np.int32]) -> NDArray[np.bool_]:
        """(m,) constraints (m, k) of vectors (n, d) that hold one of which it became clear that it is out of reach."""
        beyond, self.beyond = self.beyond, Scaler.beyond
        return holding(vectors, index, beyond)

    def within(self, X: Rows) -> NDArray[np.bool_]:
        """(n,) which raw features (n, d) are within reach of the statistics, once these are final."""
        return np.ones(len(X), np.bool_)

    def apply(self, X: Rows) -> Rows:
        """Scale (n, d) raw features; the input is never changed."""
        return X

    #: Vectors (k, d) that were observed before it could be told that they are out of reach, until `refused`.
    beyond: Features = np.empty((0, 0))
    #: Whether `renew` must be called before more is learned.
    due = False
    #: How often the statistics were replaced after they were final.
    renewals = 0
    #: Factor from a squared distance under the named scaler to the model's unit.
    squared = 1.0

    def follow(self, vectors: Rows, index: NDArray[np.int32]) -> int:
        """Observe the learned vectors once the scaler is `ready`.

        Parameters
        ----------
        vectors : (n, d) raw features.
        index : (m, k) rows of them in each constraint.

        Returns
        -------
        int
            Number of constraints observed: all, or those before the scaler is `due`.
        """
        return len(index)

    def renew(self) -> Features:
        """Replace the statistics; returns the factors (d,) for the columns of a map."""
        raise NotImplementedError

    def cut(self, X: Rows) -> Rows:
        """Raw features (n, d) for learning, without values far outside the range seen."""
        return X

    def affine(self) -> tuple[Features, Features] | None:
        """Shift and factor (d,) with scaled = (x - shift) * factor; None if there is no such form."""
        return None

    def spread(self, d: int) -> Features:
        """Root mean square (d,) of each scaled feature, up to a factor of all; ones where it is not known."""
        return np.ones(d)

    def state(self) -> State:
        """Statistics, by name."""
        return {}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""


class UnitLength(Scaler):
    """Every vector divided by its Euclidean length; zeros stay zeros."""

    def apply(self, X: Rows) -> Rows:
        wide = np.asarray(X, np.float64)
        top = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
        # Dividing by the largest entry first keeps tiny and huge vectors from under- and overflow.
        shrunk = wide / np.where(top > 0.0, top, 1.0)
        length = np.linalg.norm(shrunk, axis=1, keepdims=True)
        return np.asarray(shrunk / np.where(length > 0.0, length, 1.0), np.float64)


class _Frozen(Scaler, ABC):
    """Statistics of the warm-up's distinct vectors that are within reach of one another."""

    def __init__(self, warm_up: int = WARM_UP) -> None:
        self.warm_up = whole("warm_up", warm_up, 2)
        self.ready = False
        self._rows = 0
        self._buffer = Buffer(self.warm_up)
        self._statistics: tuple[Features, Features] | None = None

    def observe(self, rows: Features) -> bool:
        held, told = len(self._buffer), self._buffer.tells
        new = self._buffer.observe(rows)
        if self._buffer.tells and not told:
            self.beyond = self._buffer.beyond()
        for row in new:
            if self._buffer.within(row[None])[0]:
                self._rows += 1
                self._statistics = self._include(row, self._statistics)
        near = bool(self._buffer.within(rows).all())
        if self._buffer.full:
            self._finish()
        elif len(self._buffer).bit_length() > held.bit_length():
            # Those before may hold a vector that others have shown to be out of reach.
            self._count_anew()
        return near

    def _finish(self) -> None:
        """End the warm-up."""
        self._count_anew()
        self._buffer.clear()
        self.ready = True

    def _count_anew(self) -> None:
        if self._buffer.whole:
            self._rows, self._statistics = 0, None
            for row in self._buffer.rows:
                self._rows += 1
                self._statistics = self._include(row, self._statistics)

    def within(self, X: Rows) -> NDArray[np.bool_]:
        if not self.ready or self._statistics is None:
            return super().within(X)
        return within(X, *self._middle_and_scale(self._statistics))

    def apply(self, X: Rows) -> Rows:
        if self._statistics is None:
            return X
        shift, width = self._shift(self._statistics)
        return np.asarray((X - shift) / width, np.float64)

    def affine(self) -> tuple[Features, Features] | None:
        if self._statistics is None:
            return None
        shift, width = self._shift(self._statistics)
        return shift, np.asarray(1.0 / width, np.float64)

    def _shift(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        """Shift and width (d,); the width is never zero: a constant feature is only shifted."""
        shift, width = self._shift_and_width(statistics)
        return shift, np.where(width > _NOTHING * np.abs(shift), width, 1.0)

    def state(self) -> State:
        state = self._buffer.state()
        if "rows" in state:
            state["vectors"] = state["rows"]
        state |= {"rows": self._rows, "ready": self.ready}
        if self._statistics is not None:
            state["first"], state["second"] = (array.copy() for array in self._statistics)
        return state

    def restore(self, state: State) -> None:
        self._rows, self.ready = int(state["rows"]), bool(state["ready"])
        self._buffer = Buffer(self.warm_up)
        kept = {name: state[name] for name in ("constraints", "digests") if name in state}
        self._buffer.restore(kept | ({"rows": state["vectors"]} if "vectors" in state else {}))
        self._statistics = None
        if "first" in state:
            self._statistics = np.array(state["first"], np.float64), np.array(state["second"], np.float64)

    @abstractmethod
    def _include(
        self, row: Features, statistics: tuple[Features, Features] | None
    ) -> tuple[Features, Features]:
        """Statistics with one more vector."""

    def _middle_and_scale(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        """What values are measured from, and in, to see what is out of reach; 0 for features that did not vary."""
        shift, width = self._shift_and_width(statistics)
        return shift, np.where(width > _NOTHING * np.abs(shift), width, 0.0)

    @abstractmethod
    def _shift_and_width(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        """What to subtract and what to divide by."""


class ZScore(_Frozen):
    """Mean 0 and sample deviation 1 over the warm-up's vectors; a constant feature is only centred."""

    def _include(
        self, row: Features, statistics: tuple[Features, Features] | None
    ) -> tuple[Features, Features]:
        mean, squares = statistics or (np.zeros_like(row), np.zeros_like(row))
        step = row - mean
        mean = mean + step / self._rows
        return mean, squares + step * (row - mean)

    def _shift_and_width(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        mean, squares = statistics
        return mean, np.sqrt(squares / max(self._rows - 1, 1))


class MinMax(_Frozen):
    """The warm-up's smallest value becomes 0 and its largest 1; later vectors may lie outside."""

    def _include(
        self, row: Features, statistics: tuple[Features, Features] | None
    ) -> tuple[Features, Features]:
        least, most = statistics or (row, row)
        return np.minimum(least, row), np.maximum(most, row)

    def _shift_and_width(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        least, most = statistics
        return least, most - least


#: Units of step sizes: "published" is that of the scaled features.
PUBLISHED: Final = "published"
LENGTH: Final = "length"
UNITS: Final = (LENGTH, PUBLISHED)
#: Valid names in a space's declaration and a learner's `scaler`.
NAMES: Final = SCALERS


def create(name: str | None, warm_up: int = WARM_UP) -> Scaler:
    """The scaler of that name; None means "none".

    Raises
    ------
    kinstream.streams.errors.SettingsError
        Unknown name, or a warm-up of fewer than 2 vectors.
    """
    whole("warm_up", warm_up, 2)
    match one_of("scaler", name or "none", NAMES):
        case "zscore":
            return ZScore(warm_up)
        case "minmax":
            return MinMax(warm_up)
        case "unit":
            return UnitLength()
        case _:
            return Scaler()


def scaled_version(algorithm: str, unit: str, scaler: str) -> str:
    """The same algorithm in a unit and behind a scaler, in the present versions of these."""
    name, _, version = algorithm.rpartition("/")
    statistics = scaler in ("zscore", "minmax")
    if unit == PUBLISHED:
        return f"{name}/{int(version) + 5}" if statistics else algorithm
    return f"{name}/{int(version) + (2 if scaler == 'unit' else 6)}"


def followed(unit: str, scaler: str | None) -> str:
    """The unit of a learner whose steps have none: without statistics of features there is nothing to follow."""
    return unit if unit not in UNITS or scaler in ("zscore", "minmax") else PUBLISHED
