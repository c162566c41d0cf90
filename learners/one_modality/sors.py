"""SORS: sparse online relative similarity (Yao et al. 2015)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import rescaled
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import not_negative, one_of, positive_or_none
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.kernels.one_modality import sors
from kinstream.streams.compute.compilation import limit

PENALTIES: Final = ("off-diagonal", "all")


class SORS(Bilinear):
    r"""A sparse bilinear similarity x^T W y, learned from triplets by gradient steps and thresholds.

    For a triplet (x, x+, x-) with v = x+ - x- and loss l = [1 - x^T W v]_+, from W = I, a step is

        W <- S(W + eta [l > 0] x v^T, eta lambda)

    with the soft threshold S(z, t) = sign(z) max(|z| - t, 0) of the entries off the diagonal. Every triplet applies the
    threshold, with or without a loss.

    Parameters
    ----------
    eta : step size, in the unit 1 / length^4; by default 0.1. For vectors of length 1, 1e-2 to 1.
    sparsity : lambda, the weight of the sum of |W_ij| against the loss, 0 for no threshold. The threshold acts with
        every triplet and the step only with those that have a loss: a pair of features must gain more than lambda on
        average over all. So its unit is that of an entry of x v^T: for vectors of length 1 well below 1 / d, 1e-5 to
        1e-3.
    penalty : "off-diagonal", or "all" for a threshold of the diagonal as well.
    dtype : "float64" or "float32", for W and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) time and memory, in one pass over W for a triplet. Only rows with x_i != 0 are visited, and for sparse v only
    O(nnz(x) nnz(v)) entries. An entry catches up with missed thresholds when it is next visited, so the state holds W
    as last written, with the step of that (`rows`, and `since` after a sparse v). The attribute `W` is up to date. A
    triplet without loss writes nothing, and does not count as utilised.

    No step needs a guard: a step adds at most eta |x| |v| to the norm of W, and a threshold adds nothing.

    References
    ----------
    Yao, Zhao, Liu, Sun: Sparse online relative similarity learning. ICDM 2015. Known here through a public port, and
    through the statement in Gao et al., Self-adaptive metric learning on the fly, that the penalty leaves out the
    diagonal; not compared with the paper itself.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import SORS
    >>> draw = np.random.default_rng(7)
    >>> X = draw.normal(size=(3, 400, 10))
    >>> X[:2, :, 0] += 2.0
    >>> X[2, :, 0] -= 2.0
    >>> model = SORS(eta=0.01, sparsity=0.2, unit="published")
    >>> counts = model.learn_triplets(*X).counts()
    >>> counts.mistakes, bool(model.W[0, 0] == model.W.max()), int(np.count_nonzero(model.W))
    (22, True, 47)
    """

    algorithm: ClassVar[str] = "sors/1"

    def __init__(
        self,
        eta: float | None = None,
        sparsity: float = 1e-4,
        *,
        penalty: str = "off-diagonal",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._eta = positive_or_none("eta", eta)
        self.sparsity = not_negative("sparsity", sparsity)
        self.penalty = one_of("penalty", penalty, PENALTIES)
        #: Triplets that were neither rejected nor part of the scaler's warm-up (and see `sors.MOST_STEPS`).
        self._steps = 0
        self._W: NDArray[Any] = np.empty((0, 0), self.dtype)
        self._H: NDArray[Any] | None = None
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._since: NDArray[np.int32] = np.empty((0, 0), np.int32)
        self._mixed: NDArray[np.bool_] = np.empty(0, np.bool_)
        # Upper bounds of the entries, -1 for unknown. They only save work and are not part of the state.
        self._bounds = np.full(2, -1.0)

    @property
    def W(self) -> Rows:
        self._known()
        W = self._W.copy()
        row = np.empty(len(W), W.dtype)
        for i in range(len(W)):
            sors.up_to_date(self._W, self._H, self._ages, self._rule, i, self._steps, row)
            W[i] = row
        return W

    @property
    def _ages(self) -> sors.Ages:
        return self._rows, self._since, self._mixed

    @property
    def _rule(self) -> sors.Rule:
        return self.eta, self.eta * self.sparsity, 0.0, self.penalty == "off-diagonal"

    @property
    def eta(self) -> float:
        """Step size."""
        return self._by_unit(self._eta, 0.1, 0.1)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        self._W, steps = rescaled(self.W, ratio), self._steps
        self._forget(len(self._W))
        self._steps = steps
        self._rows[:] = steps
        self._root = None

    def _begin(self, d: int) -> None:
        self._W = np.eye(d, dtype=self.dtype)
        self._forget(d)

    def _forget(self, d: int) -> None:
        """Set the ages as if every entry had been written in the last step."""
        self._steps, self._rows = 0, np.zeros(d, np.int64)
        # Memory pages that are never written cost nothing.
        self._since, self._mixed = np.zeros((d, d), np.int32), np.zeros(d, np.bool_)
        self._bounds[:] = -1.0

    def _model(self) -> State:
        state: State = {"W": self._W.copy(), "steps": self._steps, "rows": self._rows.copy()}
        if self._mixed.any():
            # Older entries are not used; the stored state must not depend on how long ago they were.
            state["since"] = np.where(self._since > self._rows[:, None], self._since, 0).astype(np.int32)
        return state

    def _restore_model(self, state: State) -> int:
        self._W = self._of_type(state["W"])
        self._forget(len(self._W))
        self._steps, self._rows = int(state["steps"]), np.array(state["rows"], np.int64)
        if "since" in state:
            self._since = np.array(state["since"], np.int32, order="C")
            self._mixed = np.asarray((self._since > self._rows[:, None]).any(axis=1))
        return len(self._W)

    def _fit(self, batch: Batch, outcomes: Outcomes) -> None:
        self._steps = sors.triplets(
            self._W,
            self._H,
            self._ages,
            self._rule,
            self._steps,
            self._bounds,
            limit(self._W.dtype),
            batch.X,
            batch.index,
            batch.usable,
            outcomes.report(),
            batch.events.judged,
        )
