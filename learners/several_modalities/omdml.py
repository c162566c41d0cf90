"""OMDML: online multi-modal distance metric learning with full matrices (Wu et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import rescaled
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.base.validation import positive, whole
from kinstream.learners.kernels.several_modalities import omdml
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.compute.compilation import limit
from kinstream.streams.errors import SettingsError


class OMDML(MultiModal):
    r"""Online multi-modal distance metric learning: a full metric for each modality, and their weights.

    For a triplet (x, x+, x-) let a_i = x_i - x+_i and b_i = x_i - x-_i in modality i, V_i = a_i a_i^T - b_i b_i^T,

        f_i = a_i^T M_i a_i - b_i^T M_i b_i,    f = sum_i theta_i f_i

    If f + margin > 0, then for every modality:

        theta_i <- theta_i beta^[f_i > 0]
        tau_i = min(C, [f_i + 1]_+ / |V_i|_F^2)
        M_i <- psd(M_i - tau_i V_i)

    with psd the projection on the positive semi-definite matrices, and theta is divided by its sum. M_i begins as the
    identity and theta as uniform. A triplet is a mistake when f >= 0 before the update; the loss is [f + margin]_+.

    Parameters
    ----------
    beta : factor of a modality's weight for a mistake, in (0, 1). In theory sqrt(T) / (sqrt(T) + sqrt(ln m)) for T
        triplets of m modalities; 0.5 to 0.99 are usual. A weight does not fall below 1e-12 of the best one's.
    aggressiveness : C, the largest step, above 0, 0.1 where it is left out. In the published unit it
        belongs to a scale of the features, for it has the unit 1 / squared distance; 1e-4 to 1 are usual.
    margin : of the fused score, at least 0; 0, 0.1 and 1 are usual. A modality's own margin is always 1.
    psd_every : 1 projects after every step, with one eigenpair. With k > 1 a matrix is projected after every k steps,
        by a full eigendecomposition; in between it may be indefinite.
    dtype : "float64" or "float32", for the matrices and all calculations with them.
    scaler : None or "none", "zscore", "unit", "minmax", for each modality; part of the model, see
        `kinstream.learners.base.scaler`. The paper scales every feature to [0, 1], which is "minmax".
    warm_up : distinct vectors that scales are measured on.
    unit : "length" or "published", of each modality; see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    Time is O(sum_i d_i^2) for products and steps, and an eigenpair for each active modality: M_i - tau_i V_i has at
    most one negative eigenvalue, and a bound on the eigenvalues shows when there is none. The pair takes O(d_i^3) up to
    d_i = 100 and a few dozen products O(d_i^2) above. Memory is O(sum_i d_i^2).

    C belongs to the algorithm, so a step that it shortens does not count as clipped. A constraint whose vectors differ
    in no modality (a_i = b_i or a_i = -b_i in all) is degenerate. Vectors that are equal to twelve digits count as
    equal.

    References
    ----------
    Wu, Hoi, Zhao, Miao, Liu: Online multi-modal distance metric learning with application to image retrieval. IEEE
    Transactions on Knowledge and Data Engineering 28(2), 2016, Algorithm 1. The step size is the printed one, with
    |V|_F^2.

    Examples
    --------
    Two modalities, of which the second is independent of the class.

    >>> import numpy as np
    >>> from kinstream import OMDML
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 600)
    >>> shape = label[:, None] + 0.3 * draw.normal(size=(600, 2))
    >>> noise = draw.normal(size=(600, 3))
    >>> same, other = np.flatnonzero(label == 0), np.flatnonzero(label == 1)
    >>> n = min(len(same), len(other)) - 1
    >>> triplet = [{"shape": shape[k], "noise": noise[k]} for k in (same[:n], same[1 : n + 1], other[:n])]
    >>> model = OMDML(beta=0.9, margin=1.0)
    >>> counts = model.learn_triplets(*triplet).counts()
    >>> {name: round(weight, 2) for name, weight in model.weights.items()}
    {'shape': 0.78, 'noise': 0.22}
    >>> round(counts.mistakes / counts.scored, 2)
    0.04
    """

    algorithm: ClassVar[str] = "omdml/1"

    def __init__(
        self,
        beta: float = 0.99,
        aggressiveness: float | None = None,
        margin: float = 0.0,
        *,
        psd_every: int = 1,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(beta=beta, margin=margin, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._aggressiveness = None if aggressiveness is None else positive("aggressiveness", aggressiveness)
        self.psd_every = whole("psd_every", psd_every, 1)
        self._sizes: tuple[int, ...] = ()
        #: All matrices, row by row, one after the other, and work space for the next ones.
        self._M: Rows = np.zeros(0, self.dtype)
        self._next: Rows = self._M
        #: Steps of each matrix since its last projection.
        self._pending: NDArray[np.int64] = np.zeros(0, np.int64)
        # An upper bound of the entries, -1 for unknown. It only saves work and is not part of the state.
        self._bound: NDArray[np.float64] = np.zeros(0)
        self._roots: dict[int, Rows] = {}

    @property
    def aggressiveness(self) -> float:
        """C, the largest step."""
        return self._by_unit(self._aggressiveness, 0.1, 0.1)

    @property
    def matrices(self) -> dict[str, Rows]:
        """Copies of M_i by modality, for scaled features; they can be indefinite only between projections."""
        return {name: self._matrix(i).copy() for i, (name, _) in enumerate(self.modalities)}

    def _matrix(self, i: int) -> Rows:
        at = sum(size * size for size in self._sizes[:i])
        n = self._sizes[i]
        return self._M[at : at + n * n].reshape(n, n)

    def _begin(self, sizes: Sequence[int]) -> None:
        self._set(sizes, [np.eye(n, dtype=self.dtype) for n in sizes])
        self._pending = np.zeros(len(sizes), np.int64)

    def _set(self, sizes: Sequence[int], matrices: Sequence[Rows]) -> None:
        self._sizes = tuple(sizes)
        self._M = np.concatenate([np.ascontiguousarray(matrix).reshape(-1) for matrix in matrices])
        self._next = np.empty_like(self._M)
        self._bound, self._roots = np.full(len(sizes), -1.0), {}

    def _model(self) -> State:
        state: State = {f"M.{name}": matrix for name, matrix in self.matrices.items()}
        return state if self.psd_every == 1 else state | {"pending": self._pending.copy()}

    def _restore_model(self, state: State) -> None:
        matrices = [np.asarray(state[f"M.{name}"]) for name, _ in self.modalities]
        for found in matrices:
            if found.dtype != self.dtype:
                raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        self._set([len(matrix) for matrix in matrices], matrices)
        self._pending = np.array(state.get("pending", np.zeros(len(matrices))), np.int64)

    def _rescale(self, i: int, ratio: NDArray[np.float64]) -> None:
        self._matrix(i)[:] = rescaled(self._matrix(i), ratio)
        self._bound[i] = -1.0
        self._roots = {}

    def _mapped(self, i: int, Z: Rows) -> Rows:
        if i not in self._roots:
            self._roots[i] = root(self._matrix(i))
        return np.asarray(Z @ self._roots[i].T)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        self._roots = {}
        with one_blas_thread():
            omdml.triplets(
                self._M,
                self._next,
                np.cumsum([0, *self._sizes]),
                batch.X,
                batch.index,
                batch.usable,
                self.beta,
                self._most,
                self.aggressiveness,
                self.margin,
                self._every,
                self._pulled,
                self._behind,
                self._theta,
                self._pending,
                self._bound,
                limit(self._M.dtype),
                outcomes.report(),
                batch.events.judged,
            )

    @property
    def _every(self) -> int:
        """Steps of a matrix before it is projected; 0 for a projection of all after each triplet."""
        return self.psd_every

    @property
    def _pulled(self) -> Rows:
        """The amount subtracted from the matrices before projection, in their layout; nothing if empty."""
        return self._M[:0]


def root(matrix: Rows) -> Rows:
    """S with S^T S = psd(matrix)."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T, matrix.dtype)
