"""A scaler under which step sizes have no unit, renewed when the features leave its scale.

Scaled vectors have a mean squared length of 1, so unrelated ones have a squared distance of about 2, for any features.
One step size then suits all.

Statistics come from a **window**: `warm_up` distinct vectors, or twice as many constraints (the first: four times).
They are of its vectors within reach of one another (see `first_vectors`), so no single row makes or renews a scale.
Nothing is learned during the first window. Each later one is compared with the window of the scale. If the second
moments of the scaled features have changed by more than `LEFT` of their sum, or the mean squared length by more than
`FACTOR`, the scale is renewed, between two events. No feature counts for more than `MOST` times what it had: one that
hardly varied in the first window may have a thousandfold moment in any later one. That window may also hold old
features, so `SETTLING` is enough in the next one. The model is converted:

- A feature whose factor changes at most `KEPT` times keeps its part in the metric: L_new = L_old D_old D_new^-1.
- For a feature that changes more, its old part in the metric does not apply to the new values. The model then stays
  unchanged in scaled features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.first_vectors import FEW, scales_of, temper, within
from kinstream.learners.base.learner import State
from kinstream.learners.base.scaler import Features, Rows, Scaler
from kinstream.learners.base.validation import whole
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.learners.kernels.ensembles.windows import watch
from kinstream.streams.compute.arrays import plain

#: A deviation counts as at least this share of the range: so features that rarely vary are not amplified.
LEAST: Final = 1.0 / 6.0
#: Distinct vectors for a scale with one factor for all features.
ONE: Final = 32
#: Change of the second moments, as a share of their sum, from which a scale is renewed.
LEFT: Final = 0.75
#: The same in the window after a renewal.
SETTLING: Final = 0.25
#: Most of the change of one feature's second moment that counts, as a multiple of that moment.
MOST: Final = 30.0
#: Change of the mean squared length from which a scale is renewed.
FACTOR: Final = 4.0
#: Change of a feature's factor up to which the metric is preserved.
KEPT: Final = 2.0
#: Most constraints for each distinct vector, of the first window and of others.
_WARMING, _WATCHING = 4, 2
_NOTHING: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Scaled features (x - shift) * factor.

    Parameters
    ----------
    shift, factor : (d,)
    moments : (d,) means of the squares of the scaled features; their sum is 1.
    bounds : (2, d) smallest and largest value of each feature that is used for learning.
    length : root mean square length of the vectors before they were divided by it.
    """

    shift: Features
    factor: Features
    moments: Features
    bounds: Features
    length: float


class Following(Scaler):
    """A scaler whose scaled vectors have a mean squared length of 1; see this module.

    Parameters
    ----------
    name : "none" has one factor for all features. "zscore" divides each by its deviation, or by a sixth of its range if
        that is larger, and "minmax" by its range. A constant feature is divided by the root mean square deviation of
        the others.
    warm_up : distinct vectors of a window; the first one of "none" has at most 32.
    centred : whether features are always shifted to a mean of 0, which does not change distances. Otherwise "none" does
        not shift them, and "minmax" shifts the least value to 0.

    Attributes
    ----------
    renewals : how often the scale was renewed after the warm-up.
    squared : factor from a squared distance under the named scaler to the model's unit.
    """

    def __init__(self, name: str, warm_up: int, *, centred: bool) -> None:
        self.name, self.centred = name, centred
        self.warm_up = whole("warm_up", warm_up, 2)
        self.ready = False
        self.renewals = 0
        self.squared = 1.0
        self._settling = False
        self._scale: Scale | None = None
        #: Vectors of the window, and middle and scale of so many of its first ones.
        self._kept: Features = np.zeros((0, 0))
        self._near: tuple[int, Features, Features] | None = None
        self._open(0)

    def observe(self, rows: Features) -> bool:
        self._take(*self._watched(rows), np.arange(len(rows), dtype=np.int32)[None])
        self._scale = self._made()
        near = bool(self._within(rows).all())
        if self._full:
            self.ready = True
            self.squared = self._scale.length**-2
            self._open(self._sums.shape[1])
        return near

    def within(self, X: Rows) -> NDArray[np.bool_]:
        if not self.ready or self._scale is None:
            return super().within(X)
        with np.errstate(all="ignore"):
            deviations = np.sqrt(self._scale.moments) / self._scale.factor
        return within(X, self._scale.shift, deviations)

    def _within(self, X: Features) -> NDArray[np.bool_]:
        """(n,) vectors (n, d) within reach of those of the first window, as far as it can be told yet."""
        known = int(self._counts[0])
        known = known if self._full else 1 << (known.bit_length() - 1) if known else 0
        if known < FEW or len(self._kept) < known:
            return np.asarray(np.isfinite(X).all(axis=1))
        first = self._near is None
        if self._near is None or self._near[0] != known:
            self._near = known, *scales_of(self._kept[:known])
        if first:
            self.beyond = self._kept[:known][~within(self._kept[:known], *self._near[1:])]
        return within(X, *self._near[1:])

    def follow(self, vectors: Rows, index: NDArray[np.int32]) -> int:
        taken, table = 0, self._watched(vectors)
        while taken < len(index):
            taken += self._take(*table, index[taken:])
            if self._full:
                if self._left:
                    return taken
                self._settling = False
                self._open(self._sums.shape[1])
        return taken

    @property
    def due(self) -> bool:  # type: ignore[override]
        return self.ready and self._full and self._left

    def renew(self) -> Features:
        assert self._scale is not None
        old, self._scale = self._scale, self._made()
        self._open(self._sums.shape[1])
        self.renewals += 1
        self._settling = True
        ratio = old.factor / self._scale.factor
        kept = np.where((ratio <= KEPT) & (ratio >= 1.0 / KEPT), ratio, 1.0)
        self.squared *= float(np.median(kept / ratio)) ** 2
        return kept

    def apply(self, X: Rows) -> Rows:
        if self._scale is None:
            return X
        return np.asarray((X - self._scale.shift) * self._scale.factor, np.float64)

    def cut(self, X: Rows) -> Rows:
        if self._scale is None or self.name == "none":
            return X
        # Values that are not finite stay so: their constraints are rejected.
        return np.where(np.isfinite(X), np.clip(X, *self._scale.bounds), X)

    def spread(self, d: int) -> Features:
        return np.ones(d) if self._scale is None else np.sqrt(self._scale.moments)

    def affine(self) -> tuple[Features, Features] | None:
        return None if self._scale is None else (self._scale.shift.copy(), self._scale.factor.copy())

    def state(self) -> State:
        state: State = {"ready": self.ready, "renewals": self.renewals, "squared": self.squared}
        state["settling"] = self._settling
        state |= {"counts": self._counts.copy(), "sums": self._sums.copy(), "seen": self._seen.copy()}
        state["kept"] = self._kept.copy()
        if self._scale is not None and self.ready:
            one = self._scale
            state["scale"] = np.stack([one.shift, one.factor, one.moments, *one.bounds])
            state["length"] = one.length
        return state

    def restore(self, state: State) -> None:
        self.ready, self.renewals = bool(state["ready"]), int(state["renewals"])
        self.squared, self._settling = float(state["squared"]), bool(state["settling"])
        self._scale = None
        self._sums = np.array(state["sums"], np.float64)
        self._seen, self._counts = np.array(state["seen"], np.uint64), np.array(state["counts"], np.int64)
        d = self._sums.shape[1]
        # A window that an earlier version began has its sums alone.
        unknown = np.zeros((0 if self._counts[0] else len(self._seen), d))
        self._kept, self._near = np.array(state.get("kept", unknown), np.float64), None
        if "scale" in state:
            shift, factor, moments, *bounds = np.array(state["scale"], np.float64)
            self._scale = Scale(shift, factor, moments, np.stack(bounds), float(state["length"]))
        elif self._counts[0]:
            self._scale = self._made()

    def _open(self, d: int) -> None:
        """Begin a window."""
        rows = min(self.warm_up, ONE) if self.name == "none" and not self.ready else self.warm_up
        self._seen = np.zeros(rows, np.uint64)
        self._counts = np.zeros(2, np.int64)
        self._sums = np.repeat([[0.0], [0.0], [np.inf], [-np.inf]], d, axis=1)
        self._kept, self._near = np.zeros((rows, d)), None

    @property
    def _full(self) -> bool:
        rows, constraints = self._counts
        return bool(rows == len(self._seen) or constraints >= self._most)

    @property
    def _most(self) -> int:
        return (_WATCHING if self.ready else _WARMING) * len(self._seen)

    def _watched(self, vectors: Rows) -> tuple[Rows, NDArray[np.uint64], NDArray[np.bool_]]:
        """A table (n, d) for windows: with hashes, and which vectors are finite."""
        if self._sums.shape[1] != vectors.shape[1]:
            self._open(vectors.shape[1])
        # Kernels are compiled for writable arrays.
        X = plain(vectors)
        with np.errstate(all="ignore"):
            own = hashes(np.ascontiguousarray(X, np.float32).view(np.uint32))
        return X, own, np.asarray(np.isfinite(X).all(axis=1))

    def _take(
        self, X: Rows, own: NDArray[np.uint64], finite: NDArray[np.bool_], index: NDArray[np.int32]
    ) -> int:
        with np.errstate(all="ignore"):
            rows = np.ascontiguousarray(index)
            kept = self._kept
            found: int = watch(X, own, finite, rows, self._most, self._seen, self._counts, self._sums, kept)
        if self._full:
            temper(self._kept[: self._counts[0]], self._sums)
        return found

    def _made(self) -> Scale:
        """The scale of the window's vectors."""
        mean, squares, least, most = self._sums
        rows = float(self._counts[0])
        with np.errstate(all="ignore"):
            variance, reach = squares / rows, most - least
            varies = (reach > _NOTHING * np.abs(mean)) & np.isfinite(variance)
            one = float(np.sqrt(variance[varies].mean())) if varies.any() else 1.0
            match self.name:
                case "zscore":
                    width = np.maximum(np.sqrt(squares / max(rows - 1.0, 1.0)), LEAST * reach)
                case "minmax":
                    width = reach
                case _:
                    width = np.ones(len(mean))
            if self.name != "none":
                width = np.where(varies, width, one)
            shift = mean.copy() if self.centred or self.name == "zscore" else np.zeros(len(mean))
            if self.name == "minmax" and not self.centred:
                shift = least.copy()
            second = (variance + (mean - shift) ** 2) / width**2
            length = float(np.sqrt(second.sum()))
            # Zeros, or lengths whose squares are not finite, define no unit.
            length = length if 0.0 < length < np.inf else 1.0
            bounds = np.where(varies, np.stack([least - reach, most + reach]), [[-np.inf], [np.inf]])
        return Scale(shift, 1.0 / (width * length), second / length**2, bounds, length)

    @property
    def _left(self) -> bool:
        """Whether the vectors of the window have left the scale."""
        assert self._scale is not None
        mean, squares = self._sums[:2]
        with np.errstate(all="ignore"):
            variance = squares / float(self._counts[0])
            found = (variance + (mean - self._scale.shift) ** 2) * self._scale.factor**2
            moments = self._scale.moments
            total, before = float(found.sum()), float(moments.sum())
            if not (np.isfinite(total) and total > 0.0 < before):
                return False
            if self.name == "none":
                return not 1.0 / FACTOR <= total / before <= FACTOR
            change = float(np.minimum(np.abs(found - moments), MOST * moments).sum())
            return total < before / FACTOR or change > (SETTLING if self._settling else LEFT) * before


def rescaled(matrix: Rows, ratio: Features) -> Rows:
    """A bilinear matrix (d, d) of scaled vectors, converted for vectors divided by `ratio` (d,); its type is kept."""
    with np.errstate(over="ignore"):
        return np.asarray(matrix * ratio[:, None] * ratio, matrix.dtype, order="C")
