"""The base of a learner of your own: one rule for one triplet, in plain numpy."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, SingleModal
from kinstream.learners.base.scaler import WARM_UP
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind

Vector = NDArray[np.float64]


class TripletRule(SingleModal):
    r"""A learner of triplets of one modality, defined by its initial parameters, its map, and its step.

    With the map M, the margin of a triplet (x, x+, x-) is |M (x - x-)|^2 - |M (x - x+)|^2. It is a mistake if the
    margin is at most 0, and its loss is max(0, 1 - margin). Every triplet with a loss is passed to `step`. This class
    handles scaling, checks of the input, the state, and the order in which events are judged and learned.

    A subclass sets `algorithm`, a name and a version such as "own/1", and defines the three methods. The arguments of
    its constructor are its settings in `kinstream.toml`; it passes `scaler` and `warm_up` on.

    Parameters
    ----------
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors before "zscore" and "minmax" are frozen.

    Attributes
    ----------
    parameters : a copy of the parameters, an array shaped as that of `begin`; ValueError before the first block.

    Notes
    -----
    Rows are learned one by one in Python, about ten thousand a second with few features. A learner that needs more
    derives from `kinstream.learners.base.one_modality.SingleModal` and compiles its loop.

    Examples
    --------
    >>> import numpy as np
    >>> class Weights(TripletRule):
    ...     algorithm = "weights/1"
    ...     def begin(self, d):
    ...         return np.ones(d)
    ...     def map_of(self, parameters):
    ...         return np.diag(np.sqrt(parameters))
    ...     def step(self, parameters, near, far):
    ...         return np.maximum(parameters + 0.01 * (far**2 - near**2), 0.0)
    >>> draw = np.random.default_rng(7)
    >>> x, other = draw.normal(size=(2, 200, 2))
    >>> model = Weights()
    >>> _ = model.learn_triplets(x, x + draw.normal(size=x.shape) * (0.1, 2.0), other)
    >>> model.parameters.round(1).tolist()
    [1.3, 0.0]
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET

    def __init__(self, *, scaler: str | None = None, warm_up: int = WARM_UP) -> None:
        super().__init__(dtype="float64", scaler=scaler, warm_up=warm_up)
        self._parameters: NDArray[Any] = np.empty(0)

    @abstractmethod
    def begin(self, d: int) -> NDArray[Any]:
        """The parameters for d features before the first triplet: a new array of any shape, float64."""

    @abstractmethod
    def map_of(self, parameters: NDArray[Any]) -> Rows:
        """The map M (k, d) for scaled features that the parameters define."""

    @abstractmethod
    def step(self, parameters: NDArray[Any], near: Vector, far: Vector) -> NDArray[Any] | None:
        """The parameters after a triplet with a loss, in a new array; None for no change.

        Parameters
        ----------
        parameters : before the triplet; must not be changed.
        near, far : (d,) the differences x - x+ and x - x-, of scaled features.
        """

    @property
    def parameters(self) -> NDArray[Any]:
        if self._dimension is None:
            raise ValueError("there are no parameters yet: learn from a block first")
        return self._parameters.copy()

    @property
    def map(self) -> Rows:
        return np.array(self.map_of(self.parameters), np.float64)

    def _begin(self, d: int) -> None:
        self._parameters = np.array(self.begin(d), np.float64)

    def _model(self) -> State:
        return {"parameters": self._parameters.copy(), "dimension": int(self._dimension or 0)}

    def _restore_model(self, state: State) -> int:
        found = np.asarray(state["parameters"])
        if found.dtype != np.float64:
            raise SettingsError(f"the state to restore holds {found.dtype}, not float64")
        self._parameters = np.array(found, order="C")
        return int(state["dimension"])

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        ends, before, _ = batch.events.judged
        M = self.map
        for t, usable in enumerate(batch.usable):
            if len(ends) and ends[t]:
                # All rows of an event are judged by the map from before its first row.
                for row in range(t, ends[t]):
                    before[row] = self._margin(M, batch, row) if batch.usable[row] else np.nan
            margin = self._margin(M, batch, t) if usable else np.nan
            if not np.isfinite(margin):
                outcomes.rejected[t] = True
                continue
            outcomes.margin[t] = margin
            x, positive, negative = batch.X[batch.index[t]]
            if np.array_equal(positive, negative):
                outcomes.mistake[t], outcomes.loss[t], outcomes.degenerate[t] = 1, 1.0, True
                continue
            outcomes.mistake[t], outcomes.loss[t] = margin <= 0.0, max(0.0, 1.0 - margin)
            if outcomes.loss[t] == 0.0:
                continue
            after = self.step(self._parameters.copy(), x - positive, x - negative)
            if after is None or np.array_equal(after, self._parameters):
                continue
            if np.shape(after) != self._parameters.shape or not np.isfinite(after).all():
                outcomes.rejected[t], outcomes.mistake[t], outcomes.loss[t] = True, -1, 0.0
                continue
            self._parameters = np.array(after, np.float64)
            outcomes.utilised[t] = True
            M = self.map

    @staticmethod
    def _margin(M: Rows, batch: Batch, t: int) -> float:
        x, positive, negative = batch.X[batch.index[t]]
        # The difference is taken before the map, so that equal vectors are equally far.
        with np.errstate(all="ignore"):
            near, far = M @ (x - positive), M @ (x - negative)
            return float(far @ far - near @ near)

    def _score(self, points: Vector, sign: int) -> tuple[int, float, float]:
        near, far = points[0] - points[1], points[0] - points[2]
        M = self.map_of(self.begin(points.shape[1]))
        near, far = M @ near, M @ far
        margin = float(far @ far - near @ near)
        return int(margin <= 0.0), max(0.0, 1.0 - margin), margin
