"""SOML-DA: sparse diagonal similarity by dual averaging (Gao et al. 2014, Xiao 2010)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import not_negative, one_of, positive_or_none
from kinstream.learners.forms.bilinear import Diagonal
from kinstream.learners.kernels.one_modality import soml
from kinstream.streams.compute.compilation import limit


class SOMLDA(Diagonal):
    r"""A similarity sum_j w_j x_j y_j with few features, learned from triplets by regularised dual averaging.

    For a triplet (x, x+, x-) with g = x (x+ - x-), entry by entry, and loss l = [1 - w . g]_+, round t adds -g to the
    sum u of the subgradients if l > 0, and then sets

        w = w_0 - (sqrt(t) / kappa) S(u / t, lambda)

    with the soft threshold S(z, b)_j = sign(z_j) max(|z_j| - b, 0). That is the minimiser of the mean of the linearised
    losses, plus lambda |w - w_0|_1 + kappa / (2 sqrt(t)) |w - w_0|^2. Every triplet is a round, with or without a loss.

    Parameters
    ----------
    kappa : how strongly w is held at w_0, in the unit length^4: a larger value makes smaller steps. By default 0.3, or
        1 in the published unit. For vectors of length 1, 1e-2 to 1.
    sparsity : lambda, 0 for none; a feature whose mean subgradient does not exceed it has the weight of w_0. Its unit
        is that of g: for vectors of length 1, 1e-5 to 1e-3.
    centre : whether w_0 is all ones, the plain inner product, so the change is sparse; otherwise w_0 = 0 and w is
        sparse. Before the first round w is all ones in both cases.
    dtype : "float64" or "float32", for u and w and all calculations with them.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d) time and memory. The state holds u and the number of rounds, and w is a function of both. So a triplet without
    loss changes w but not u, and does not count as utilised. Triplets whose g vanishes are degenerate; they count as
    rounds.

    References
    ----------
    Gao, Hoi, Zhang, Wan, Li: SOML: Sparse online metric learning with application to image retrieval. AAAI 2014, with
    the closed form of Xiao: Dual averaging methods for regularized stochastic learning and online optimization. JMLR
    11, 2010. This implementation follows the second; it was not confirmed that the first has the same constants, counts
    all rounds and starts in the same way. `centre` is an addition.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import SOMLDA
    >>> draw = np.random.default_rng(7)
    >>> X = draw.normal(size=(3, 400, 50))
    >>> X[:2, :, 0] += 3.0
    >>> X[2, :, 0] -= 3.0
    >>> model = SOMLDA(kappa=10.0, sparsity=0.5, centre=False, unit="published")
    >>> counts = model.learn_triplets(*X).counts()
    >>> counts.mistakes, int(np.argmax(model.w)), int(np.count_nonzero(model.w))
    (3, 0, 1)
    """

    algorithm: ClassVar[str] = "soml-da/1"
    raw: ClassVar[bool] = True

    def __init__(
        self,
        kappa: float | None = None,
        sparsity: float = 1e-4,
        *,
        centre: bool = True,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._kappa = positive_or_none("kappa", kappa)
        self.sparsity = not_negative("sparsity", sparsity)
        self.centre = one_of("centre", centre, (False, True))
        self._u: NDArray[Any] = np.empty(0, self.dtype)
        #: Triplets that were neither rejected nor part of the scaler's warm-up.
        self.rounds = 0

    @property
    def w(self) -> Rows:
        self._known()
        w = np.empty_like(self._u)
        soml.averaged(self._u, self.rounds, float(self.centre), self.kappa, self.sparsity, w)
        return w

    @property
    def kappa(self) -> float:
        """How strongly w is held at its start."""
        return self._by_unit(self._kappa, 0.3, 1.0)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        """w is not a function of u times a factor, so it stays as it is for scaled features."""

    def _begin(self, d: int) -> None:
        self._u, self.rounds = np.zeros(d, self.dtype), 0

    def _model(self) -> State:
        return {"u": self._u.copy(), "rounds": self.rounds}

    def _restore_model(self, state: State) -> int:
        self._u, self.rounds = self._of_type(state["u"]), int(state["rounds"])
        return len(self._u)

    def _fit(self, batch: Batch, outcomes: Outcomes) -> None:
        self.rounds = soml.dual_averaging(
            self._u,
            self.rounds,
            float(self.centre),
            self.kappa,
            self.sparsity,
            limit(self._u.dtype),
            batch.X,
            batch.index,
            batch.usable,
            outcomes.report(),
            batch.events.judged,
        )
