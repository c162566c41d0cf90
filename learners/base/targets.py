"""Target distances of pairs: at most y_S for similar ones, at least y_D for dissimilar ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.first_vectors import Buffer
from kinstream.learners.base.learner import State
from kinstream.learners.base.validation import one_of, positive, whole
from kinstream.streams.errors import BadRecord, Reason, SettingsError

SOURCES: Final = ("own", "block")
#: Percentiles of the squared distances between the warm-up's vectors that become y_S and y_D.
PERCENTILES: Final = (5.0, 95.0)

Features = NDArray[np.float64]


class Targets:
    """Turns signs into targets; it is part of a model, because a target depends on the scale of the features.

    Parameters
    ----------
    source : where targets come from.

        - "own": the same two numbers for all pairs: `y_similar` and `y_dissimilar`, or by default the 5th and 95th
          percentile of all positive squared distances between the distinct vectors of a warm-up, after the learner's
          scaling, then frozen. If both are equal, y_S is half of y_D.
        - "block": those of the constraint blocks, squared distances of raw features.
    y_similar, y_dissimilar : squared distances, y_similar < y_dissimilar; both or neither, and only with "own".
    warm_up : distinct vectors before the targets are frozen; the warm-up also ends after four times as many
        constraints, once it has seen two vectors that differ.

    Raises
    ------
    SettingsError
        A setting is out of range, or two settings contradict each other.
    """

    def __init__(
        self, source: str, y_similar: float | None, y_dissimilar: float | None, warm_up: int
    ) -> None:
        self.source = one_of("targets", source, SOURCES)
        self.warm_up = whole("warm_up", warm_up, 2)
        if (y_similar is None) != (y_dissimilar is None):
            raise SettingsError("y_similar and y_dissimilar go together: give both or neither")
        self._fixed = y_similar is not None and y_dissimilar is not None
        #: y_S and y_D, NaN while they are not known. With "block", those of the last pair of each sign.
        self.similar, self.dissimilar = np.nan, np.nan
        if y_similar is not None and y_dissimilar is not None:
            if source == "block":
                raise SettingsError('y_similar and y_dissimilar are of no use with targets = "block"')
            self.similar = positive("y_similar", y_similar)
            self.dissimilar = positive("y_dissimilar", y_dissimilar)
            if self.similar >= self.dissimilar:
                raise SettingsError(
                    f"y_similar must be below y_dissimilar, not {y_similar!r} and {y_dissimilar!r}"
                )
        self._buffer = Buffer(self.warm_up)

    @property
    def ready(self) -> bool:
        """Whether constraints have targets."""
        return self.source == "block" or not np.isnan(self.similar)

    def observe(self, points: Features, scale: Callable[[Features], NDArray[Any]], scaled: bool) -> bool:
        """Take the raw vectors (2 or 3, d) of a constraint of the warm-up, and freeze the targets at its end.

        Returns whether they are within reach of those before, as far as it can be told yet; targets are those of such.

        Parameters
        ----------
        scale : the learner's scaler, whose statistics are final if `scaled`.
        """
        self._buffer.take(points)
        near = bool(self._buffer.within(points).all())
        if not scaled or not self._buffer.full:
            return near
        X = np.asarray(scale(self._buffer.rows), np.float64)
        squared = np.concatenate([((X[n + 1 :] - row) ** 2).sum(axis=1) for n, row in enumerate(X)])
        squared = squared[(squared > 0.0) & np.isfinite(squared)]
        if squared.size == 0:
            return near
        low, high = np.percentile(squared, PERCENTILES)
        self.similar, self.dissimilar = float(low if low < high else high / 2.0), float(high)
        self._buffer.clear()
        return near

    def of(self, signs: NDArray[np.int8], given: NDArray[np.float32] | None) -> tuple[Features, Features]:
        """Target and threshold (y_S + y_D) / 2 of each pair, (m,) both.

        Parameters
        ----------
        signs : (m,) +1 or -1.
        given : (m,) targets of the block, or None.

        Returns
        -------
        tuple
            A target is NaN if the block's is not a number of at least 0; a threshold is NaN while it is not known.

        Raises
        ------
        BadRecord
            The block has no targets, with "block".
        """
        if self.source == "own":
            targets = np.where(signs > 0, self.similar, self.dissimilar)
            return targets, np.full(len(signs), (self.similar + self.dissimilar) / 2.0)
        if given is None or given.shape != signs.shape:
            raise BadRecord(
                Reason.BAD_SHAPE,
                'this learner takes targets = "block", and the block has no target for each constraint',
            )
        targets, known = _usable(given)
        similar = _latest(targets, known & (signs > 0), self.similar)
        dissimilar = _latest(targets, known & (signs < 0), self.dissimilar)
        if len(targets):
            self.similar, self.dissimilar = float(similar[-1]), float(dissimilar[-1])
        return targets, (similar + dissimilar) / 2.0

    def before(
        self,
        signs: NDArray[np.int8],
        given: NDArray[np.float32] | None,
        begun: Callable[[], NDArray[np.int64]],
    ) -> Features:
        """The threshold of each pair (m,) without the pairs of its event; call this before `of`.

        Parameters
        ----------
        signs, given : see `of`.
        begun : returns (m,) the first row of each pair's event.
        """
        if self.source == "own" or given is None or given.shape != signs.shape:
            return np.full(len(signs), (self.similar + self.dissimilar) / 2.0)
        targets, known = _usable(given)
        found, firsts = np.zeros(len(signs)), begun()
        for sign, start in ((1, self.similar), (-1, self.dissimilar)):
            at = known & (signs == sign)
            earlier = np.append(start, _latest(targets, at, start))[firsts]
            found += np.where(at, targets, earlier)
        return found / 2.0

    def state(self) -> State:
        """The known targets, and the warm-up's vectors while it lasts."""
        if self._fixed:
            return {}
        state: State = {"similar": float(self.similar), "dissimilar": float(self.dissimilar)}
        if self.source == "own":
            kept = self._buffer.state()
            state["constraints"] = kept["constraints"]
            if "rows" in kept:
                state["vectors"] = kept["rows"]
        return state

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        if self._fixed:
            return
        self.similar, self.dissimilar = float(state["similar"]), float(state["dissimilar"])
        self._buffer = Buffer(self.warm_up)
        vectors = np.asarray(state.get("vectors", np.empty((0, 0))))
        self._buffer.restore({"constraints": int(state.get("constraints", 0)), "rows": vectors})


def _usable(given: NDArray[np.float32]) -> tuple[Features, NDArray[np.bool_]]:
    """The targets of a block, NaN for invalid ones (not a number of at least 0), and which are valid."""
    targets = given.astype(np.float64)
    targets[~(np.isfinite(targets) & (targets >= 0.0))] = np.nan
    return targets, ~np.isnan(targets)


def _latest(values: Features, at: NDArray[np.bool_], before: float) -> Features:
    """(m,) the newest selected value up to each place; `before` if there was none."""
    places = np.maximum.accumulate(np.where(at, np.arange(len(values)), -1))
    return np.where(places >= 0, values[places], before)
