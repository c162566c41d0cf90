"""Euclidean distance as a learner that learns nothing."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, SingleModal
from kinstream.learners.base.scaler import WARM_UP
from kinstream.learners.base.targets import Targets
from kinstream.learners.kernels import scores
from kinstream.streams.records.values import ConstraintBlock, Kind

_NEVER = 2**62


class Euclidean(SingleModal):
    r"""Squared Euclidean distance |x - y|^2 of the scaled features: the baseline that a learner must beat.

    It scores every constraint and utilises none. A triplet is a mistake when |x - x+|^2 >= |x - x-|^2, and its loss is
    [1 + |x - x+|^2 - |x - x-|^2]_+. A similar pair is a mistake above the threshold, a dissimilar one up to it; the
    loss is how far the squared distance lies on the wrong side.

    Parameters
    ----------
    y_similar, y_dissimilar : squared distances whose mean is the threshold of pairs. By default, the 5th and 95th
        percentile over the warm-up, see `kinstream.learners.base.targets`; until then the mistake of a pair is
        undefined.
    dtype : "float64" or "float32", for all calculations.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors before scaler and threshold are frozen.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d) time and, after the warm-up, O(d) memory.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import Euclidean
    >>> draw = np.random.default_rng(7)
    >>> x, similar = draw.normal(size=(2, 900, 5))
    >>> dissimilar = draw.normal(size=(900, 5)) + 1.0
    >>> counts = Euclidean().learn_triplets(x, similar, dissimilar).counts()
    >>> counts.utilised, round(counts.mistakes / counts.scored, 2)
    (0, 0.31)
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.PAIR, Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.PAIR
    algorithm: ClassVar[str] = "euclidean/3"

    def _split(self, block: ConstraintBlock) -> NDArray[np.bool_]:
        # Pairs change only the threshold, never the ranking of triplets.
        return block.split(Kind.TRIPLET)

    def __init__(
        self,
        *,
        y_similar: float | None = None,
        y_dissimilar: float | None = None,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up)
        self._pair_targets = Targets("own", y_similar, y_dissimilar, warm_up)
        self._targets = self._pair_targets
        # The transposed map; empty while it is the identity.
        self._T: NDArray[Any] = np.empty((0, 0), self.dtype)

    @property
    def threshold(self) -> float:
        """Squared distance above which a pair counts as dissimilar; NaN while it is not known."""
        return (self._pair_targets.similar + self._pair_targets.dissimilar) / 2.0

    @property
    def map(self) -> Rows:
        if self._dimension is None:
            raise ValueError("the map has no dimension yet: learn from a block first")
        return self._T.T.copy() if len(self._T) else np.eye(self._dimension, dtype=self.dtype)

    def _mapped(self, Z: Rows) -> Rows:
        return np.asarray(Z @ self._T) if len(self._T) else Z

    def _begin(self, d: int) -> None:
        self._T = np.empty((0, 0), self.dtype)

    def _model(self) -> State:
        return {"dimension": int(self._dimension or 0)}

    def _restore_model(self, state: State) -> int:
        return int(state["dimension"])

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        self._scored(batch, outcomes, 0, 0, _NEVER)

    def _twin(self) -> Self:
        twin = super()._twin()
        if twin._targets is not None:
            twin._pair_targets = twin._targets
        return twin

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """The map has not changed since the event began, or `_update` has judged the event."""

    def _scored(
        self, batch: Batch, outcomes: Outcomes, first: int, since: int, every: int
    ) -> tuple[int, int, bool]:
        """See `kinstream.learners.kernels.scores.constraints`."""
        return scores.constraints(
            self._T,
            batch.X,
            batch.index,
            batch.usable,
            batch.signs,
            self.threshold,
            batch.group,
            first,
            since,
            every,
            outcomes.report(),
        )

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        squared = [float(difference @ difference) for difference in points[0] - points[1:]]
        if len(squared) == 2:
            near, far = squared
            return int(near >= far), max(0.0, 1.0 + (near - far)), far - near
        if np.isnan(self.threshold):
            return -1, 0.0, np.nan
        beyond = sign * (squared[0] - self.threshold)
        return int((squared[0] > self.threshold) == (sign > 0)), max(0.0, beyond), np.nan
