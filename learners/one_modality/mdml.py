"""MDML: mirror descent for metric learning (Kunapuli and Shavlik 2012)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import rescaled
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import not_negative, one_of, positive_or_none
from kinstream.learners.forms.psd_matrix import PsdMatrix, Spectrum
from kinstream.learners.kernels.matrices import rank_one
from kinstream.learners.kernels.one_modality import mdml
from kinstream.streams.compute.blas_threads import one_blas_thread

LOSSES: Final = {
    "hinge": mdml.HINGE,
    "squared-hinge": mdml.SQUARED,
    "exponential": mdml.EXPONENTIAL,
    "logistic": mdml.LOGISTIC,
}
DIVERGENCES: Final = {"frobenius": mdml.FROBENIUS, "von-neumann": mdml.VON_NEUMANN, "burg": mdml.BURG}
SHRINKAGES: Final = ("soft", "hard")
GUARDS: Final = ("clip", "raw")


class MDML(PsdMatrix):
    r"""Mirror descent for metric learning from pairs, with eigenvalues that can become zero.

    The model is M = V diag(e) V', at first the identity, and a threshold mu >= 1, at first 1. The t-th pair, with
    difference z and sign s, +1 similar and -1 dissimilar, has the margin m = s (mu - z'Mz). With a = s g(m), g minus
    the derivative of the loss, and eta_t = eta / sqrt(t), a step is one of

        frobenius    M - eta_t a z z'                          mu + eta_t a
        von-neumann  exp(log M - eta_t a z z') on M's range     mu exp(eta_t a)
        burg         (M^{-1} + eta_t a z z')^{-1} there         1 / (1 / mu - eta_t a)

    with mu at least 1, and then the eigenvalues shrink. A pair is a mistake when it is on the wrong side of mu before
    the update, dissimilar ones also at mu.

    Parameters
    ----------
    eta : step size, by default 1. Its unit is 1 / (squared distance)^2 (Frobenius) or 1 / squared distance (the
        others), so it depends on the scale of the features. 0.1 to 1 is a good range for z-scored features, with
        Frobenius at its upper end; with much less, it never leaves the start, where all distances are above mu.
    rho : strength of the shrinkage, 0 for none. It gives the map a low rank: 1e-3 to 1e-1 with Frobenius, at most 1e-2
        with the others, whose steps are proportional to eigenvalues.
    loss : "hinge" max(0, 1 - m), "squared-hinge" half its square, "exponential" exp(-m), "logistic" log(1 + exp(-m)).
    divergence : which of the three. von Neumann and Burg never raise an eigenvalue that is zero.
    shrinkage : "soft", e <- max(e - eta_t rho, 0), as published; "hard", e <- 0 where e < rho, as the authors' code.
    guard : "clip" keeps eigenvalues and mu below 10^18, continues the exponential loss by its tangent below a margin
        of -20, and lets Burg's step for a dissimilar pair at most double its distance (eta_t |a| z'Mz <= 1/2).
        Each is counted as clipped. "raw" is the published algorithm, where a step without these limits may not be
        defined or finite; such a pair is rejected.
    dtype : "float64" or "float32", of the eigenvectors and of all work with them; eigenvalues are float64.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Attributes
    ----------
    A, V, e : copies of the matrix M, for scaled features, of its eigenvectors (columns) and of its eigenvalues.
    mu : the threshold.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    All three steps are a change of rank one of the eigenvalues, of their logarithms, or of M. O(d^2) time for a pair
    without a step; for one with a step O(d k^2), k the number of eigenvectors that change: at most one more than the
    rank of M, since all eigenvectors of one eigenvalue count as one. Memory 4 d^2, state d^2.

    The index t counts all pairs except the rejected; a triplet counts as two.

    References
    ----------
    Kunapuli, Shavlik: Mirror descent for metric learning: a unified approach. ECML PKDD 2012. Steps and signs are those
    of the authors' MATLAB code.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import MDML
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 800)
    >>> X = np.column_stack([label + 0.2 * draw.normal(size=800), 3.0 * draw.normal(size=800)])
    >>> left, right = X[:400], X[400:]
    >>> signs = np.where(label[:400] == label[400:], 1, -1).astype(np.int8)
    >>> model = MDML(eta=0.3, rho=1e-2, divergence="burg", unit="published")
    >>> early, late = (
    ...     model.learn_pairs(left[rows], right[rows], signs[rows]).counts()
    ...     for rows in (slice(0, 100), slice(100, 400))
    ... )
    >>> round(early.mistakes / early.scored, 2), round(late.mistakes / late.scored, 2)
    (0.14, 0.06)
    """

    algorithm: ClassVar[str] = "mdml/1"

    def __init__(
        self,
        eta: float | None = None,
        rho: float = 1e-3,
        *,
        loss: str = "hinge",
        divergence: str = "frobenius",
        shrinkage: str = "soft",
        guard: str = "clip",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(zero=False, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._eta = positive_or_none("eta", eta)
        self.rho = not_negative("rho", rho)
        self.loss = one_of("loss", loss, LOSSES)
        self.divergence = one_of("divergence", divergence, DIVERGENCES)
        self.shrinkage = one_of("shrinkage", shrinkage, SHRINKAGES)
        self.guard = one_of("guard", guard, GUARDS)
        # Eigenvectors in rows; threshold, pairs and updates so far.
        self._E: NDArray[Any] = np.empty((0, 0), self.dtype)
        self._e: NDArray[np.float64] = np.empty(0)
        self._counters = np.array([1.0, 0.0, 0.0])

    @property
    def A(self) -> Rows:
        self._known()
        with one_blas_thread():
            return np.asarray((self._E.T * self._e) @ self._E).astype(self.dtype)

    @property
    def V(self) -> Rows:
        """A copy of the eigenvectors, the columns of a matrix (d, d)."""
        return self._E.T.copy()

    @property
    def e(self) -> NDArray[np.float64]:
        """A copy of the eigenvalues (d,)."""
        return self._e.copy()

    @property
    def mu(self) -> float:
        """The threshold."""
        return float(self._counters[0])

    @property
    def eta(self) -> float:
        """Step size."""
        return self._by_unit(self._eta, 1.0, 1.0)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        M = rescaled((self._E.T.astype(np.float64) * self._e) @ self._E, ratio)
        with one_blas_thread():
            values, vectors = np.linalg.eigh(M)
        # Eigenvalues that were zero stay zero: rounding must not change them.
        known = values > np.finfo(self._E.dtype).eps * len(values) * max(float(values[-1]), 0.0)
        self._e = np.where(known, values, 0.0)
        self._E = np.asarray(vectors.T, self.dtype, order="C")
        self._touched()

    def _begin(self, d: int) -> None:
        self._E, self._e = np.eye(d, dtype=self.dtype), np.ones(d)
        self._counters = np.array([1.0, 0.0, 0.0])
        self._touched()

    def _model(self) -> State:
        mu, pairs, updates = self._counters
        return {"V": self.V, "e": self.e, "mu": float(mu), "pairs": int(pairs), "updates": int(updates)}

    def _restore_model(self, state: State) -> int:
        self._E = self._of_type(np.asarray(state["V"]).T)
        self._e = np.array(state["e"], np.float64)
        self._counters = np.array([float(state[name]) for name in ("mu", "pairs", "updates")])
        self._touched()
        return len(self._E)

    def _spectrum(self) -> Spectrum:
        return self._E.astype(np.float64), self._e

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        with one_blas_thread():
            mdml.pairs(
                self._E,
                self._e,
                self._counters,
                batch.X,
                batch.index,
                batch.usable,
                batch.signs,
                batch.group,
                self.eta,
                self.rho,
                LOSSES[self.loss],
                DIVERGENCES[self.divergence],
                self.shrinkage == "soft",
                self.guard == "clip",
                rank_one.work(len(self._E), self._E.dtype),
                outcomes.report(),
                batch.events.judged,
            )
        if outcomes.utilised.any():
            self._touched()

    def _score_pairs(
        self, squared: NDArray[np.float64], signs: NDArray[np.int8], batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        below = batch.events.levels[rows] - squared
        found = mdml.losses(LOSSES[self.loss], signs * below, self.guard == "clip")
        return (below < 0.0) == (signs > 0), found

    def _score_pair(self, squared: float, sign: int) -> tuple[int, float]:
        loss, _, _ = mdml.slope(LOSSES[self.loss], sign * (1.0 - squared), True)
        return int((squared > 1.0) == (sign > 0)), loss
