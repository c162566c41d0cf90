"""LOMDML: online multi-modal distance metric learning with maps of low rank (Wu et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.removed import Removed, always
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.base.validation import one_of, positive, whole
from kinstream.learners.kernels.several_modalities import lomdml
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.compute.compilation import limit
from kinstream.streams.errors import SettingsError

INITS: Final = ("orthogonal", "pca", "identity")
GUARDS: Final = ("clip", "raw")


class LOMDML(MultiModal):
    r"""Online multi-modal distance metric learning with a map of low rank for each modality, and their weights.

    As `kinstream.OMDML` with M_i = W_i^T W_i, W_i of r_i = min(rank, d_i) rows. With p = W_i a_i, q =
    W_i b_i,

        f_i = |p|^2 - |q|^2,    f = sum_i theta_i f_i

    and whenever f + margin > 0, for every modality:

        theta_i <- theta_i beta^[f_i > 0]
        W_i <- W_i - 2 eta (p a_i^T - q b_i^T)    where f_i + 1 > 0

    after which theta is divided by its sum. A triplet is a mistake when f >= 0 before the update; the loss is
    [f + margin]_+.

    Parameters
    ----------
    rank : rows of a map at most; modalities with fewer features keep all of theirs.
    eta : step size, above 0; 0.02 by default, 1e-3 in the published unit. The published unit is 1 / squared distance:
        for features scaled to [0, 1], 1e-4 to 1e-2.
    beta, margin : as for `OMDML`.
    init : the first maps.

        - "orthogonal": rows of a random orthogonal matrix times sqrt(d_i / r_i), which preserves mean squared
          distances.
        - "pca": the directions in which the first `warm_up` distinct vectors vary most. Until then constraints are
          scored by Euclidean distance and not learned.
        - "identity": the first r_i rows of the identity; the other features have no effect until a step includes them.
    seed : for "orthogonal", at least 0.
    own_hinge : whether a modality with a margin of 1 takes no step, by the gradient of its own loss. If false, every
        modality takes every step, as in the printed algorithm.
    guard : "clip" shortens a step to eta |a_i|^2 = 0.5, because a longer one could raise f_i, and scales the whole map
        down when its Frobenius norm would exceed 1e6; both count as clipped. "raw" is the published algorithm.
    dtype : "float64" or "float32", for the maps and all calculations with them.
    scaler : None or "none", "zscore", "unit", "minmax", for each modality; part of the model, see
        `kinstream.learners.base.scaler`. The paper scales every feature to [0, 1], which is "minmax".
    warm_up : distinct vectors that scales are measured on, and for "pca".
    unit : "length" or "published", of each modality; see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(sum_i r_i d_i) time and memory. A constraint whose vectors differ in no modality is degenerate.

    The paper states neither the first maps nor the case of a modality with fewer features than `rank`.

    References
    ----------
    Wu, Hoi, Zhao, Miao, Liu: Online multi-modal distance metric learning with application to image retrieval. IEEE
    Transactions on Knowledge and Data Engineering 28(2), 2016, Algorithm 2.

    Examples
    --------
    Two modalities, of which the second is independent of the class.

    >>> import numpy as np
    >>> from kinstream import LOMDML
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 600)
    >>> shape = label[:, None] + 0.3 * draw.normal(size=(600, 5))
    >>> noise = draw.normal(size=(600, 3))
    >>> same, other = np.flatnonzero(label == 0), np.flatnonzero(label == 1)
    >>> n = min(len(same), len(other)) - 1
    >>> triplet = [{"shape": shape[k], "noise": noise[k]} for k in (same[:n], same[1 : n + 1], other[:n])]
    >>> model = LOMDML(rank=2, beta=0.9, margin=1.0)
    >>> outcomes = model.learn_triplets(*triplet)
    >>> {name: round(weight, 2) for name, weight in model.weights.items()}
    {'shape': 0.84, 'noise': 0.16}
    >>> model.transform({"shape": shape[:1], "noise": noise[:1]}).shape
    (1, 4)
    """

    algorithm: ClassVar[str] = "lomdml/12"
    removed: ClassVar[dict[str, Removed]] = {"norm_cap": always(1e6)}

    #: Largest Frobenius norm of a map under "clip", which keeps numbers finite with contradictory triplets.
    norm_cap: ClassVar[float] = 1e6

    def __init__(
        self,
        rank: int = 50,
        eta: float | None = None,
        beta: float = 0.99,
        margin: float = 0.0,
        *,
        init: str = "orthogonal",
        seed: int = 0,
        own_hinge: bool = True,
        guard: str = "clip",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(beta=beta, margin=margin, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self.rank = whole("rank", rank, 1)
        self._eta = None if eta is None else positive("eta", eta)
        self.init = one_of("init", init, INITS)
        self.seed = whole("seed", seed, 0)
        self.own_hinge = one_of("own_hinge", own_hinge, (True, False))
        self.guard = one_of("guard", guard, GUARDS)
        self._waits = init == "pca"
        self._ranks: NDArray[np.int64] = np.zeros(0, np.int64)
        #: The transposed maps (d, r) of all modalities, one after the other; empty until the warm-up of "pca" is over.
        self._T: Rows = np.zeros(0, self.dtype)
        # An upper bound of the norms, -1 for unknown. It only saves work and is not part of the state.
        self._bound: NDArray[np.float64] = np.zeros(0)

    @property
    def eta(self) -> float:
        """The step size."""
        return self._by_unit(self._eta, 0.02, 1e-3)

    @property
    def matrices(self) -> dict[str, Rows]:
        """Copies of W_i (r_i, d_i) by modality, for scaled features; none before they begin."""
        if len(self._T) == 0:
            return {}
        return {name: self._transposed(i).T.copy() for i, (name, _) in enumerate(self.modalities)}

    def _transposed(self, i: int) -> Rows:
        sizes = [size for _, size in self.modalities]
        at = int(np.dot(sizes[:i], self._ranks[:i]))
        return self._T[at : at + sizes[i] * int(self._ranks[i])].reshape(sizes[i], -1)

    def _begin(self, sizes: Sequence[int]) -> None:
        if self.init == "pca":
            self._T = np.zeros(0, self.dtype)
            return
        maps = []
        for i, d in enumerate(sizes):
            r = min(self.rank, d)
            maps.append(np.eye(r, d) if self.init == "identity" else orthogonal(r, d, (self.seed, i)))
        self._set(maps)

    def _prepare(self, parts: Sequence[NDArray[np.float64]]) -> None:
        self._set([principal(min(self.rank, part.shape[1]), part) for part in parts])

    def _set(self, maps: Sequence[Rows]) -> None:
        self._ranks = np.array([len(W) for W in maps], np.int64)
        self._T = np.concatenate([W.T.astype(self.dtype).reshape(-1) for W in maps])
        self._bound = np.full(len(maps), -1.0)

    def _model(self) -> State:
        return {f"W.{name}": W for name, W in self.matrices.items()}

    def _restore_model(self, state: State) -> None:
        maps = [np.asarray(state[f"W.{name}"]) for name, _ in self.modalities]
        for found in maps:
            if found.dtype != self.dtype:
                raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        self._set(maps)

    def _rescale(self, i: int, ratio: NDArray[np.float64]) -> None:
        self._transposed(i)[:] *= ratio.astype(self.dtype)[:, None]
        self._bound[i] = -1.0

    def _mapped(self, i: int, Z: Rows) -> Rows:
        return np.asarray(Z @ self._transposed(i)) if len(self._T) else Z

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        assert self._modalities is not None
        guarded = self.guard == "clip"
        safe, cap = (lomdml.SAFE, self.norm_cap) if guarded else (np.inf, np.inf)
        lomdml.triplets(
            self._T,
            self._modalities.starts,
            self._ranks,
            batch.X,
            batch.index,
            batch.usable,
            self.eta,
            safe,
            cap,
            self.own_hinge,
            self.beta,
            self._most,
            self.margin,
            self._behind,
            self._theta,
            self._bound,
            limit(self._T.dtype),
            outcomes.report(),
            batch.events.judged,
            0,
            len(batch),
        )


def orthogonal(r: int, d: int, seed: tuple[int, int]) -> NDArray[np.float64]:
    """r rows of a random orthogonal (d, d) matrix, scaled so that mean squared distances are preserved."""
    draws = np.random.default_rng(seed).normal(size=(d, r))
    with one_blas_thread():
        Q, R = np.linalg.qr(draws)
    signs = np.where(np.diagonal(R) < 0.0, -1.0, 1.0)
    return np.asarray((Q * signs).T * np.sqrt(d / r))


def principal(r: int, X: NDArray[np.float64]) -> NDArray[np.float64]:
    """The r directions (r, d) in which the vectors X (n, d) vary most."""
    with one_blas_thread():
        _, _, rows = np.linalg.svd(X - X.mean(axis=0), full_matrices=True)
    # The library chooses the sign of a direction: make it deterministic.
    top = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    return np.asarray((rows * np.where(top < 0.0, -1.0, 1.0))[:r])
