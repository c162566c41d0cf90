"""AdaSORS: SORS with a step size for each entry (Yao et al. 2015)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import rescaled
from kinstream.learners.base.learner import State
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import positive
from kinstream.learners.kernels.one_modality import sors
from kinstream.learners.one_modality.sors import SORS


class AdaSORS(SORS):
    r"""SORS with a step size for each entry, which shrinks as the entry is updated.

    With the gradient G = -[l > 0] x v^T of a triplet, starting from H = 0, for each entry:

        H <- sqrt(H^2 + G^2),   s = delta + H
        W <- S(W - eta G / s, eta lambda / s)

    Parameters
    ----------
    eta : step size, in the unit of W: no entry changes by more than that in one step. By default 0.03, or 0.1 in the
        published unit.
    sparsity : lambda, as for `SORS`.
    delta : keeps s from zero, in the unit of an entry of x v^T. An entry with H = 0 has the threshold
        eta lambda / delta: with penalty="all", diagonal entries of features that are always zero vanish at once.
    penalty, dtype, scaler, warm_up, unit : as for `SORS`.

    Notes
    -----
    As for `SORS`, with H as a second matrix. The first step of an entry has nearly the size eta for any triplet, so
    AdaSORS depends little on the scale of the features, and learns from noise at once.

    References
    ----------
    As for `SORS`; delta is that of the port.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import AdaSORS
    >>> draw = np.random.default_rng(7)
    >>> X = draw.normal(size=(3, 400, 10))
    >>> X[:2, :, 0] += 2.0
    >>> X[2, :, 0] -= 2.0
    >>> model = AdaSORS(eta=0.01, sparsity=0.2, unit="published")
    >>> counts = model.learn_triplets(*X).counts()
    >>> counts.mistakes, bool(model.W[0, 0] == model.W.max()), int(np.count_nonzero(model.W))
    (34, True, 45)
    """

    algorithm: ClassVar[str] = "adasors/1"

    def __init__(
        self,
        eta: float | None = None,
        sparsity: float = 1e-4,
        *,
        delta: float = 1e-6,
        penalty: str = "off-diagonal",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(
            eta, sparsity, penalty=penalty, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit
        )
        self.delta = positive("delta", delta)

    @property
    def _rule(self) -> sors.Rule:
        return self.eta, self.eta * self.sparsity, self.delta, self.penalty == "off-diagonal"

    def _begin(self, d: int) -> None:
        super()._begin(d)
        self._H = np.zeros((d, d), self.dtype)

    @property
    def eta(self) -> float:
        """Step size."""
        return self._by_unit(self._eta, 0.03, 0.1)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        super()._rescale(ratio)
        if self._H is not None:
            self._H = rescaled(self._H, 1.0 / ratio)

    def _model(self) -> State:
        state = super()._model()
        return state if self._H is None else state | {"H": self._H.copy()}

    def _restore_model(self, state: State) -> int:
        self._H = self._of_type(state["H"])
        return super()._restore_model(state)
