"""SOML-TG: sparse diagonal similarity by truncated gradient (Gao et al. 2014)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import not_negative, one_of, positive_or_none
from kinstream.learners.forms.bilinear import Diagonal
from kinstream.learners.kernels.one_modality import soml
from kinstream.streams.compute.compilation import limit

STARTS: Final = ("identity", "zero")


class SOMLTG(Diagonal):
    r"""A similarity sum_j w_j x_j y_j with few features, learned from triplets by truncated gradient.

    For a triplet (x, x+, x-) with g = x (x+ - x-), entry by entry, and loss l = [1 - w . g]_+, where l > 0:

        w <- S(w + eta g, eta lambda)

    with the soft threshold S(z, t)_j = sign(z_j) max(|z_j| - t, 0).

    Parameters
    ----------
    eta : step size, in the unit 1 / length^4; by default 0.1, or 0.01 in the published unit. For vectors of length 1,
        1e-2 to 1.
    sparsity : lambda, the weight of |w|_1 against the loss; 0 for no threshold. A feature is forgotten if its g does
        not exceed it on average, so its unit is that of g: for vectors of length 1 well below 1 / d, 1e-4 to 1e-3.
    always_shrink : whether a triplet without loss also applies the threshold. It is not known which the authors do.
    start : first w: "identity" (all ones, the plain inner product) or "zero".
    dtype : "float64" or "float32", for w and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d) time and memory. No step needs a guard: w grows at most as the sum of the steps. If g vanishes (x+ = x-, or
    they differ only where x is zero), the triplet is degenerate, and changes w only with `always_shrink`. The state
    then holds w after the last active triplet, and the number of thresholds since; the attribute `w` is up to date.

    References
    ----------
    Gao, Hoi, Zhang, Wan, Li: SOML: Sparse online metric learning with application to image retrieval. AAAI 2014.
    The shape of the step is confirmed by a public port only (whose gradient has the wrong sign); the first w and the
    threshold without loss are our choices.

    Examples
    --------
    The first of 50 features separates two classes.

    >>> import numpy as np
    >>> from kinstream import SOMLTG
    >>> draw = np.random.default_rng(7)
    >>> X = draw.normal(size=(3, 400, 50))
    >>> X[:2, :, 0] += 3.0
    >>> X[2, :, 0] -= 3.0
    >>> model = SOMLTG(eta=0.001, sparsity=2.0, start="zero", unit="published")
    >>> counts = model.learn_triplets(*X).counts()
    >>> counts.mistakes, int(np.argmax(model.w)), int(np.count_nonzero(model.w))
    (3, 0, 7)
    """

    algorithm: ClassVar[str] = "soml-tg/1"
    raw: ClassVar[bool] = True

    def __init__(
        self,
        eta: float | None = None,
        sparsity: float = 1e-3,
        *,
        always_shrink: bool = False,
        start: str = "identity",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._eta = positive_or_none("eta", eta)
        self.sparsity = not_negative("sparsity", sparsity)
        self.always_shrink = one_of("always_shrink", always_shrink, (False, True))
        self.start = one_of("start", start, STARTS)
        self._w: NDArray[Any] = np.empty(0, self.dtype)
        #: Thresholds since the last active triplet.
        self._waiting = 0

    @property
    def w(self) -> Rows:
        self._known()
        by = self._w.dtype.type(self.eta * self.sparsity * self._waiting)
        return np.asarray(self._w - np.clip(self._w, -by, by))

    def _first_margin(self, products: NDArray[np.float64]) -> float:
        return super()._first_margin(products) if self.start == "identity" else 0.0

    @property
    def eta(self) -> float:
        """Step size."""
        return self._by_unit(self._eta, 0.1, 0.01)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        self._w, self._waiting, self._root = np.asarray(self.w * ratio**2, self.dtype), 0, None

    def _begin(self, d: int) -> None:
        self._w = np.full(d, 1.0 if self.start == "identity" else 0.0, self.dtype)
        self._waiting = 0

    def _model(self) -> State:
        return {"w": self._w.copy(), "waiting": self._waiting}

    def _restore_model(self, state: State) -> int:
        self._w, self._waiting = self._of_type(state["w"]), int(state["waiting"])
        return len(self._w)

    def _fit(self, batch: Batch, outcomes: Outcomes) -> None:
        self._waiting = soml.truncated(
            self._w,
            self._waiting,
            self.eta,
            self.eta * self.sparsity,
            self.always_shrink,
            limit(self._w.dtype),
            batch.X,
            batch.index,
            batch.usable,
            outcomes.report(),
            batch.events.judged,
        )
