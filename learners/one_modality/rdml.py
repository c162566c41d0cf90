"""RDML: regularised distance metric learning, online (Jin et al. 2009)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import one_of, positive_or_none
from kinstream.learners.forms.psd_matrix import PsdMatrix
from kinstream.learners.kernels.matrices import eigenpair
from kinstream.learners.kernels.one_modality import rdml
from kinstream.streams.compute.compilation import limit

WAYS: Final = ("paper", "exact")
STARTS: Final = ("zero", "identity")


class RDML(PsdMatrix):
    r"""Regularised distance metric learning from pairs, a step for every mistake.

    The model is a positive semi-definite A. A pair with difference z and sign s, +1 similar and -1 dissimilar, is a
    mistake when s (1 - z'Az) <= 0: similar pairs belong below 1, dissimilar ones above. Every mistake changes A by

        A <- A - rate s z z'

    kept positive semi-definite in one of two ways. The reported loss is max(0, s (z'Az - 1)).

    Parameters
    ----------
    learning_rate : rate above; by default 0.01, or 0.1 in the published unit. Its unit is 1 / (squared distance)^2, so
        there it depends on the scale of the features: 1e-3 to 1 for vectors of unit length, 0.01 / d^2 to 1 / d^2 for
        z-scored features of d dimensions.
    psd : what a similar mistake does if the step would leave the cone.

        - "paper" goes up to the border: rate <= 1 / (z'A+ z) if z lies in the range of A, and no step otherwise.
          Shortened steps are counted as clipped.
        - "exact" takes the whole step and sets the eigenvalue that became negative to zero.
    start : "zero", or "identity" to begin with Euclidean distance. From zero, the first pair learned must be a
        dissimilar one.
    dtype : "float64" or "float32", for the matrix and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Attributes
    ----------
    A : a copy of the matrix, for scaled features.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    After a step up to the border A is singular, and psd="paper" learns from a similar pair only within the range of A,
    that is nothing, until dissimilar mistakes have extended the range. In many dimensions most similar mistakes then
    have no effect (they are not utilised); "exact" does not have this problem.

    O(d^2) time for a pair. With "paper", a similar mistake costs some more products with A, by conjugate gradients, or
    none if it is far from orthogonal to the last null vector found; that vector is part of the state. With "exact" it
    costs as much as in `kinstream.learners.one_modality.pola.POLA`. O(d^2) memory.

    References
    ----------
    Jin, Wang, Zhou: Regularized distance metric learning: theory and algorithm. NIPS 2009. Known here through two
    independent ports and a survey. start="identity" is not from the paper.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import RDML
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 800)
    >>> X = np.column_stack([label + 0.2 * draw.normal(size=800), 3.0 * draw.normal(size=800)])
    >>> left, right = X[:400], X[400:]
    >>> signs = np.where(label[:400] == label[400:], 1, -1).astype(np.int8)
    >>> model = RDML(psd="exact", unit="published")
    >>> early, late = (
    ...     model.learn_pairs(left[rows], right[rows], signs[rows]).counts()
    ...     for rows in (slice(0, 100), slice(100, 400))
    ... )
    >>> round(early.mistakes / early.scored, 2), round(late.mistakes / late.scored, 2)
    (0.33, 0.24)
    """

    algorithm: ClassVar[str] = "rdml/1"

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        psd: str = "paper",
        start: str = "zero",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(zero=start == "zero", dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._learning_rate = positive_or_none("learning_rate", learning_rate)
        self.psd = one_of("psd", psd, WAYS)
        self.start = one_of("start", start, STARTS)
        # A null vector of A, or zero; with psd="paper" only.
        self._null: Rows = np.empty(0, self.dtype)

    @property
    def learning_rate(self) -> float:
        """Rate of a step."""
        return self._by_unit(self._learning_rate, 0.01, 0.1)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        super()._rescale(ratio)
        self._null = np.zeros_like(self._null)

    def _begin(self, d: int) -> None:
        super()._begin(d)
        self._null = np.zeros(d, self.dtype)

    def _model(self) -> State:
        model = super()._model()
        return model | {"null": self._null.copy()} if self.psd == "paper" else model

    def _restore_model(self, state: State) -> int:
        if self.psd == "paper":
            self._null = self._of_type(np.asarray(state["null"]))
        return super()._restore_model(state)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        constraints = (batch.X, batch.index, batch.usable, batch.signs, batch.group)
        rate, most = self.learning_rate, limit(self._A.dtype)
        report = outcomes.report(), batch.events.judged
        if self.psd == "exact":
            space = eigenpair.work(len(self._A), self._A.dtype)
            rdml.exact(self._A, *constraints, rate, most, space, *report)
        else:
            rdml.capped(self._A, self._null, *constraints, rate, most, *report)
        if outcomes.utilised.any():
            self._touched()

    def _score_pairs(
        self, squared: NDArray[np.float64], signs: NDArray[np.int8], batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        beyond = signs * (squared - 1.0)
        return beyond >= 0.0, np.maximum(beyond, 0.0)

    def _score_pair(self, squared: float, sign: int) -> tuple[int, float]:
        return int(sign * (1.0 - squared) <= 0.0), max(0.0, sign * (squared - 1.0))
