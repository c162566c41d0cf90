"""OASIS: online similarity learning with passive-aggressive steps (Chechik et al. 2010)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import rescaled
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import one_of, positive_or_none
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.kernels.one_modality import oasis, oasis_blocks
from kinstream.streams.compute.compilation import limit

KERNELS: Final = ("auto", "sequential", "blocked")


class OASIS(Bilinear):
    r"""A bilinear similarity x^T W y, learned from triplets by passive-aggressive steps.

    For a triplet (x, x+, x-) with v = x+ - x- and loss l = [1 - x^T W v]_+, from W = I:

        W <- W + tau x v^T,   tau = min(C, l / (|x|^2 |v|^2))

    where l > 0. Below the cap C this is the smallest change of W that brings the margin to 1; the loss of the triplet
    afterwards is l - tau |x|^2 |v|^2.

    Parameters
    ----------
    aggressiveness : the cap C of tau, in the unit 1 / length^4; by default 0.1. For vectors of length 1 use 1e-3 to 1
        (|x|^2 |v|^2 is then at most 4), and less for noisier triplets. For long vectors, such as z-scored ones, only
        the second term matters.
    dtype : "float64" or "float32", for W and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.
    kernel : "sequential", "blocked", or "auto" by dimension and by how many entries of the anchors are zero. Both give
        the same result to rounding, not to the bit.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) time and memory; the sequential way takes O(nnz(x) d), or O(nnz(x) nnz(v)) for sparse v. No step needs a
    guard: the sum of the squares of W's entries never exceeds d + 2 C t after t triplets. The cap belongs to the
    algorithm, so a capped step does not count as clipped. W is not symmetrised, and not made positive semi-definite.

    References
    ----------
    Chechik, Sharma, Shalit, Bengio: Large scale online learning of image similarity through ranking. JMLR 11, 2010.
    The step is also in Wu et al., Online multi-modal distance metric learning (2016), and in a public port of the
    authors' MATLAB code, from which the default of C is taken; it was not compared with the paper itself.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import OASIS
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 600)
    >>> X = np.column_stack([2.0 * label - 1.0 + 0.5 * draw.normal(size=600), 3.0 * draw.normal(size=600)])
    >>> same, other = X[label == 0], X[label == 1]
    >>> n = min(len(same), len(other)) - 1
    >>> model = OASIS(unit="published")
    >>> early, late = (
    ...     model.learn_triplets(same[rows], same[rows.start + 1 : rows.stop + 1], other[rows]).counts()
    ...     for rows in (slice(0, 20), slice(20, n))
    ... )
    >>> round(early.mistakes / early.scored, 2), round(late.mistakes / late.scored, 2)
    (0.15, 0.07)
    """

    algorithm: ClassVar[str] = "oasis/1"

    def __init__(
        self,
        aggressiveness: float | None = None,
        *,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
        kernel: str = "auto",
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._aggressiveness = positive_or_none("aggressiveness", aggressiveness)
        self.kernel = one_of("kernel", kernel, KERNELS)
        # An upper bound of W's entries, -1 for unknown. It only saves work and is not part of the state.
        self._W: NDArray[Any] = np.empty((0, 0), self.dtype)
        self._bound = -1.0

    @property
    def aggressiveness(self) -> float:
        """The cap C of tau."""
        return self._by_unit(self._aggressiveness, 0.1, 0.1)

    @property
    def W(self) -> Rows:
        self._known()
        return self._W.copy()

    def _weighted(self, rows: Rows) -> Rows:
        return rows if self._dimension is None else np.asarray(rows @ self._W)

    def _begin(self, d: int) -> None:
        self._W, self._bound = np.eye(d, dtype=self.dtype), -1.0

    def _model(self) -> State:
        return {"W": self._W.copy()}

    def _restore_model(self, state: State) -> int:
        self._W, self._bound = self._of_type(state["W"]), -1.0
        return len(self._W)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        self._W, self._bound, self._root = rescaled(self._W, ratio), -1.0, None

    def _fit(self, batch: Batch, outcomes: Outcomes) -> None:
        W = self._W
        arguments = (W, batch.X, batch.index, batch.usable, self.aggressiveness, limit(W.dtype))
        wide = len(W) >= oasis_blocks.CROSSOVER[W.dtype]
        if self.kernel == "blocked" or (self.kernel == "auto" and wide):
            full = self.kernel == "blocked"
            self._bound = oasis_blocks.triplets(
                *arguments, self._bound, full, outcomes.report(), batch.events.judged
            )
        else:
            self._bound = oasis.triplets(
                *arguments, self._bound, outcomes.report(), batch.events.judged, 0, len(batch)
            )
