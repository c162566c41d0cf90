"""POLA: pseudo-metric online learning (Shalev-Shwartz et al. 2004)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import positive
from kinstream.learners.forms.psd_matrix import PsdMatrix
from kinstream.learners.kernels.matrices import eigenpair
from kinstream.learners.kernels.one_modality import pola
from kinstream.streams.compute.compilation import limit


class POLA(PsdMatrix):
    r"""Pseudo-metric online learning from pairs, by projections.

    The model is a positive semi-definite A, at first zero, and a threshold b >= 1, at first 1. For a pair with
    difference z and sign s, +1 similar and -1 dissimilar, the loss

        l = max(0, s (z'Az - b) + 1)

    asks for distances of at most b - 1 for similar pairs and of at least b + 1 for dissimilar ones. If it is above
    zero, (A, b) moves to the nearest point without loss, and then to the nearest allowed one:

        alpha = l / (|z|^4 + 1),   A <- psd(A - s alpha z z'),   b <- max(1, b + s alpha)

    psd sets negative eigenvalues to zero; there is at most one, after a similar pair. A pair is a mistake when it is on
    the wrong side of b before the update, dissimilar ones also at b.

    Parameters
    ----------
    cap : largest alpha, None for no limit; steps that it shortens are counted as clipped. It makes the learner more
        careful with noisy pairs. alpha has the unit 1 / |z|^4 if |z| is above 1; for z-scored features of d dimensions
        0.1 / d^2 to 1 / d^2 is a good range.
    dtype : "float64" or "float32", for the matrix and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Attributes
    ----------
    A : a copy of the matrix, for scaled features.
    b : the threshold.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) time for a pair, O(k d^2) for a similar one with a loss, where k <= d products with A find the negative
    eigenvalue and its vector to rounding: all d for d <= 20, and 30 to 50 above that in most streams. O(d^2) memory. A
    zero difference teaches nothing and is counted as degenerate.

    References
    ----------
    Shalev-Shwartz, Singer, Ng: Online and batch learning of pseudo-metrics. ICML 2004. The steps are confirmed by a
    survey and an independent text; the first values of A and b, and the cap, are not from the paper.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import POLA
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 800)
    >>> X = np.column_stack([label + 0.2 * draw.normal(size=800), 3.0 * draw.normal(size=800)])
    >>> left, right = X[:400], X[400:]
    >>> signs = np.where(label[:400] == label[400:], 1, -1).astype(np.int8)
    >>> model = POLA(unit="published")
    >>> early, late = (
    ...     model.learn_pairs(left[rows], right[rows], signs[rows]).counts()
    ...     for rows in (slice(0, 100), slice(100, 400))
    ... )
    >>> round(early.mistakes / early.scored, 2), round(late.mistakes / late.scored, 2)
    (0.25, 0.15)
    """

    algorithm: ClassVar[str] = "pola/1"

    def __init__(
        self,
        cap: float | None = None,
        *,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(zero=True, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self.cap = None if cap is None else positive("cap", cap)
        self.b = 1.0

    def _begin(self, d: int) -> None:
        super()._begin(d)
        self.b = 1.0

    def _model(self) -> State:
        return super()._model() | {"b": self.b}

    def _restore_model(self, state: State) -> int:
        self.b = float(state["b"])
        return super()._restore_model(state)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        self.b = pola.pairs(
            self._A,
            self.b,
            batch.X,
            batch.index,
            batch.usable,
            batch.signs,
            batch.group,
            np.inf if self.cap is None else self.cap,
            limit(self._A.dtype),
            eigenpair.work(len(self._A), self._A.dtype),
            outcomes.report(),
            batch.events.judged,
        )
        if outcomes.utilised.any():
            self._touched()

    def _score_pairs(
        self, squared: NDArray[np.float64], signs: NDArray[np.int8], batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        beyond = squared - batch.events.levels[rows]
        return (beyond > 0.0) == (signs > 0), np.maximum(signs * beyond + 1.0, 0.0)

    def _score_pair(self, squared: float, sign: int) -> tuple[int, float]:
        return int((squared > 1.0) == (sign > 0)), max(0.0, sign * (squared - 1.0) + 1.0)
