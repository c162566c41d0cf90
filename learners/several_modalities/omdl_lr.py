"""OMDL-LR-like: multi-modal metric learning on kernel embeddings with a graph Laplacian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.several_modalities import Features
from kinstream.learners.base.validation import not_negative, positive, whole
from kinstream.learners.kernels.several_modalities import nystroem
from kinstream.learners.several_modalities.omdml import OMDML
from kinstream.learners.several_modalities.omks import mean_distance
from kinstream.streams.compute.blas_threads import one_blas_thread

#: Eigenvalues of a kernel matrix up to this share of the largest count as zero.
_NOTHING: Final = 1e-10
_WIDE: Final = ("landmarks", "factor", "pull")


class OMDLLR(OMDML):
    r"""A reconstruction of low-rank online multi-modal metric learning with kernels, as a baseline.

    **This is not the published algorithm**, of which only the parameters are known; its figures must not be compared
    with published ones. It combines known parts:

    1. The first `warm_up` distinct vectors of each modality are its landmarks. A vector becomes e_i(x) in R^r, its
       coordinates in the span of the landmarks under a Gaussian kernel (Nystroem), whose bandwidth is the mean
       distance between landmarks.
    2. OMDML on e_i, with matrices M_i (r, r) and the step's cap C1.
    3. After each triplet that opens the gate, M_i <- psd(M_i - eta C2 E_i Lap_i E_i^T), with E_i the landmarks'
       coordinates as columns and Lap_i the Laplacian of the graph that connects each landmark with its nearest ones:
       neighbours move closer together.
    4. Weights of the modalities as in OMDML.

    Parameters
    ----------
    rank : largest number of coordinates of an embedding; fewer if the landmarks span less.
    aggressiveness : C1, as of `OMDML`.
    smoothness : C2, at least 0; 0 leaves the Laplacian out. The Laplacian sums over all edges of the graph, so its
        pull grows with `warm_up` and `neighbours`.
    eta : factor of the pull, above 0.
    neighbours : nearest landmarks that each landmark is connected with; it is also connected with those that count it
        among theirs.
    beta, margin, dtype : as of `OMDML`.
    scaler : None or "none", "zscore", "unit", "minmax", for each modality; part of the model, see
        `kinstream.learners.base.scaler`.
    warm_up : landmarks, and distinct vectors that scales are measured on. Until then constraints are scored by
        Euclidean distance and not learned. When a modality leaves its scale, landmarks and matrices stay as they are in
        scaled features.
    unit : "length" or "published", of each modality; see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(warm_up d_i) time for a vector, and a whole eigendecomposition O(r^3) for each modality and active triplet.

    References
    ----------
    Named in table 6 of Wu, Hoi, Zhao, Miao, Liu: Online multi-modal distance metric learning with application to image
    retrieval. IEEE Transactions on Knowledge and Data Engineering 28(2), 2016. The rest is a reconstruction.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import OMDLLR
    >>> draw = np.random.default_rng(7)
    >>> angle, label = draw.uniform(0, 2 * np.pi, 900), np.repeat([0, 1], 450)
    >>> X = ((1 + label) * np.array([np.cos(angle), np.sin(angle)])).T
    >>> anchors, similar, others = X[:225], X[225:450], X[450:675]
    >>> mistakes = OMDLLR(rank=20, warm_up=60, margin=1.0).learn_triplets(anchors, similar, others).mistake
    >>> [round(float(mistakes[rows].mean()), 2) for rows in (slice(0, 20), slice(125, 225))]
    [0.15, 0.01]
    """

    algorithm: ClassVar[str] = "omdl-lr-like/11"
    linear: ClassVar[bool] = False

    def __init__(
        self,
        rank: int = 50,
        aggressiveness: float | None = None,
        smoothness: float = 1e-3,
        eta: float = 1e-2,
        beta: float = 0.99,
        margin: float = 0.0,
        *,
        neighbours: int = 5,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(beta, aggressiveness, margin, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self.rank = whole("rank", rank, 1)
        self.smoothness = not_negative("smoothness", smoothness)
        self.eta = positive("eta", eta)
        self.neighbours = whole("neighbours", neighbours, 1)
        self._waits = True
        #: For each modality: landmarks (d, l) in columns, the factor from kernels to coordinates (l, r), the
        #: Laplacian's part of a step (r, r), and the factor of -|x - y|^2.
        self._landmarks: list[NDArray[np.float64]] = []
        self._factor: list[NDArray[np.float64]] = []
        self._pull: list[NDArray[np.float64]] = []
        self._rate: NDArray[np.float64] = np.zeros(0)

    def distance(self, X: Features, Y: Features) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, as `transform` takes them."""
        moved = self.transform(X) - self.transform(Y)
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    def _begin(self, sizes: Sequence[int]) -> None:
        self._landmarks, self._factor, self._pull = [], [], []
        self._sizes = ()

    def _prepare(self, parts: Sequence[NDArray[np.float64]]) -> None:
        self._rate = np.array([0.5 / mean_distance(part) ** 2 for part in parts])
        self._landmarks, self._factor, self._pull = [], [], []
        with one_blas_thread():
            for part, rate in zip(parts, self._rate, strict=True):
                kernel = np.exp(-rate * squared(part))
                factor = coordinates(kernel, self.rank)
                E = kernel @ factor
                self._landmarks.append(np.ascontiguousarray(part.T))
                self._factor.append(factor)
                pull = E.T @ laplacian(part, self.neighbours) @ E
                self._pull.append(self.eta * self.smoothness * (pull + pull.T) / 2.0)
        super()._begin([factor.shape[1] for factor in self._factor])

    def _model(self) -> State:
        state = super()._model() | {"rate": self._rate.copy()}
        for name, arrays in zip(_WIDE, (self._landmarks, self._factor, self._pull), strict=True):
            state |= {
                f"{name}.{m}": array.copy() for (m, _), array in zip(self.modalities, arrays, strict=True)
            }
        return state

    def _restore_model(self, state: State) -> None:
        super()._restore_model(state)
        self._rate = np.array(state["rate"], np.float64)
        self._landmarks, self._factor, self._pull = (
            [np.array(state[f"{name}.{m}"], np.float64) for m, _ in self.modalities] for name in _WIDE
        )

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        assert self._modalities is not None
        X = np.empty((len(batch.X), sum(self._sizes)), self.dtype)
        ends = np.cumsum([0, *self._sizes])
        for i, lo in enumerate(self._modalities.starts[:-1]):
            self._embed(i, batch.X, int(lo), X, int(ends[i]))
        super()._update(replace(batch, X=X), outcomes)

    @property
    def _every(self) -> int:
        return 0

    @property
    def _pulled(self) -> Rows:
        return np.concatenate([pull.ravel() for pull in self._pull]).astype(self.dtype)

    def _rescale(self, i: int, ratio: NDArray[np.float64]) -> None:
        """Landmarks and matrices stay."""

    def _mapped(self, i: int, Z: Rows) -> Rows:
        if not self._sizes:
            return Z
        X = np.empty((len(Z), self._sizes[i]), self.dtype)
        self._embed(i, np.ascontiguousarray(Z), 0, X, 0)
        return super()._mapped(i, X)

    def _embed(self, i: int, X: Rows, lo: int, out: Rows, at: int) -> None:
        nystroem.embed(X, lo, self._landmarks[i], float(self._rate[i]), self._factor[i], out, at)


def squared(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances (n, n) between the rows of X."""
    return np.array([np.sum((X - row) ** 2, axis=1) for row in X])


def coordinates(kernel: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """F (n, r) such that F^T k(x) are the coordinates of x along the r largest axes of the kernel matrix (n, n)."""
    values, vectors = np.linalg.eigh(kernel)
    kept = np.flatnonzero(values > _NOTHING * values[-1])[::-1][:rank]
    signs = np.where(np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], 0) < 0.0, -1.0, 1.0)
    return np.ascontiguousarray((vectors * signs)[:, kept] / np.sqrt(values[kept]))


def laplacian(X: NDArray[np.float64], neighbours: int) -> NDArray[np.float64]:
    """Degrees less adjacency (n, n) of the graph that connects each row of X with its nearest others."""
    apart = squared(X)
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1, kind="stable")[:, : min(neighbours, len(X) - 1)]
    joined = np.zeros(apart.shape, np.bool_)
    np.put_along_axis(joined, near, True, axis=1)
    adjacency = (joined | joined.T).astype(np.float64)
    return np.asarray(np.diag(adjacency.sum(axis=1)) - adjacency)
