"""The same features in several scales: statistics of the first vectors, and what each member sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import LEAST
from kinstream.learners.base.learner import State
from kinstream.learners.base.scaler import WARM_UP, ZScore
from kinstream.learners.kernels.ensembles import views

Rows = NDArray[np.floating[Any]]
Features = NDArray[np.float64]

#: Entries up to this share of the largest offset are what is left of zeros after rounding.
ROUNDING: Final = 1e-9
#: Constraints without a new vector after which a warm-up may end.
OLD: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a member sees of vectors z: (z + offset) * factor, or its direction.

    Parameters
    ----------
    offset, factor : (d,)
    directions : whether vectors are divided by their lengths.
    bounded : (2, d) the least and the largest value of each entry of z, to which others are cut; None for any.
    """

    offset: Features
    factor: Features
    directions: bool = False
    bounded: Features | None = None

    def apply(self, Z: Rows) -> Features:
        """Vectors z (n, d) as the member sees them, float64."""
        with np.errstate(all="ignore"):
            wide = np.asarray(Z, np.float64)
            if self.bounded is not None:
                # What is no number stays none.
                wide = np.clip(wide, *self.bounded)
            scaled = (wide + self.offset) * self.factor
            return self._directions(scaled) if self.directions else scaled

    def seen(self, Z: Rows, dtype: str) -> Rows:
        """As `apply` to rounding, compiled, and of the type that members work in."""
        found = np.empty(Z.shape, dtype)
        bounds = np.full((2, 1), np.inf) * [[-1.0], [1.0]] if self.bounded is None else self.bounded
        low, high = np.ascontiguousarray(np.broadcast_to(bounds, (2, Z.shape[1])))
        if self.directions:
            views.directions(Z, low, high, self.offset, self.factor, self.least, found)
        else:
            views.scaled(Z, low, high, self.offset, self.factor, found)
        return found

    @property
    def least(self) -> float:
        """The largest entry that a vector without a direction may have."""
        return ROUNDING * float(np.abs(self.offset * self.factor).max())

    def _directions(self, rows: Features) -> Features:
        # Dividing by the largest entry first keeps tiny and huge vectors from under- and overflow.
        top = np.abs(rows).max(axis=1, keepdims=True)
        shrunk = np.where(top > self.least, rows / np.where(top > 0.0, top, 1.0), 0.0)
        length = np.linalg.norm(shrunk, axis=1, keepdims=True)
        return np.asarray(shrunk / np.where(length > 0.0, length, 1.0))


class OneScale(ZScore):
    """Vectors less their mean, divided by one number, so that the mean squared length is 1.

    Keeps the least and the largest value of each feature as well, from which the views of all members are made. Mean,
    deviations and ranges are those of the first `warm_up` distinct vectors. Where there are fewer, as in a small set
    that is streamed several times, the warm-up ends once as many constraints as vectors, and 32, have brought no new
    one.
    """

    def __init__(self, warm_up: int = WARM_UP) -> None:
        super().__init__(warm_up)
        self._since = 0

    def observe(self, rows: Features) -> bool:
        held = len(self._buffer)
        near = super().observe(rows)
        if self.ready:
            return near
        self._since = 0 if len(self._buffer) > held else self._since + 1
        if self._since >= max(OLD, len(self._buffer)):
            self.end()
        return near

    @property
    def seen(self) -> int:
        """Distinct vectors of the warm-up, while it lasts."""
        return len(self._buffer)

    def end(self) -> None:
        """End the warm-up with the vectors that there are, at least one."""
        self._finish()

    def state(self) -> State:
        return super().state() | {"since": self._since}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._since = int(state.get("since", 0))

    def _include(
        self, row: Features, statistics: tuple[Features, Features] | None
    ) -> tuple[Features, Features]:
        if statistics is None:
            inner, least, most = None, row, row
        else:
            (mean, squares), (least, most) = statistics
            inner = mean, squares
        return (
            np.stack(super()._include(row, inner)),
            np.stack([np.minimum(least, row), np.maximum(most, row)]),
        )

    def _shift(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        mean, squares = statistics[0]
        with np.errstate(all="ignore"):
            length = float(np.sqrt((squares / self._rows).sum()))
        return mean, np.full(len(mean), length if 0.0 < length < np.inf else 1.0)

    def _middle_and_scale(self, statistics: tuple[Features, Features]) -> tuple[Features, Features]:
        mean, squares = statistics[0]
        return super()._middle_and_scale((mean, squares))

    def views(self) -> dict[str, View]:
        """What members may see, by name.

        - "one-scale": vectors as they are.
        - "zscore": each feature divided by its deviation; "guarded": by at least a sixth of its range.
        - "minmax": each feature divided by its range.
        - "cosine": directions of the features as they came; "zscore-cosine": of z-scored ones.

        All but directions have a mean squared length of 1. A feature that did not vary keeps the one scale. Features
        that are divided by their deviations or ranges are cut one range below the least and above the largest value: a
        scale that a few vectors gave must not make later ones huge.
        """
        assert self._statistics is not None
        (_, squares), (least, most) = self._statistics
        mean, width = self._shift(self._statistics)
        d = len(mean)
        nothing, ones = np.zeros(d), np.ones(d)
        with np.errstate(all="ignore"):
            variance = squares / self._rows / width**2
            deviation = np.sqrt(squares / max(self._rows - 1, 1)) / width
            reach = (most - least) / width
            raw = mean / width
            bounded = np.stack([least - mean - (most - least), most - mean + (most - least)]) / width
        # A feature that did not vary has no range.
        bounded = np.where(most > least, bounded, [[-np.inf], [np.inf]])

        def scaled(by: Features) -> View:
            varies = (by > 0.0) & np.isfinite(by)
            factor = np.where(varies, 1.0 / np.where(varies, by, 1.0), 1.0)
            length = float(np.sqrt((variance * factor**2).sum()))
            return View(nothing, factor / length if 0.0 < length < np.inf else factor, bounded=bounded)

        zscore = scaled(deviation)
        return {
            "one-scale": View(nothing, ones),
            "zscore": zscore,
            "guarded": scaled(np.maximum(deviation, LEAST * reach)),
            "minmax": scaled(reach),
            "cosine": View(np.where(np.isfinite(raw), raw, 0.0), ones, directions=True),
            "zscore-cosine": View(nothing, zscore.factor, directions=True, bounded=bounded),
        }
