"""OMKS: online multiple kernel similarity learning (Xia et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import write
from kinstream.learners.base.learner import UNDEFINED, Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.several_modalities import Features, MultiModal
from kinstream.learners.base.validation import a_list, one_of, positive, whole
from kinstream.learners.kernels.several_modalities import omks
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError

KERNELS: Final = ("linear", "rbf")
DROPS: Final = ("oldest", "smallest")
#: Eigenvalues of a kernel matrix up to this share of the largest count as zero.
_NOTHING: Final = 1e-10

#: A map, and the points whose kernels are its input; None if vectors are its input.
Root = tuple[NDArray[np.float64], NDArray[np.float64] | None]


class OMKS(MultiModal):
    r"""Online multiple kernel similarity learning: OASIS in the feature space of kernels, and their weights.

    Every kernel k of every modality is an expert e with the similarity

        S_e(x, x') = k(x, x') + sum_t tau_t k(x, x_t) (k(x+_t, x') - k(x-_t, x'))

    over the triplets t of a support set. For a new triplet,

        l_e = [1 - S_e(x, x+) + S_e(x, x-)]_+
        tau_e = min(C, l_e / (k(x, x) (k(x+, x+) - 2 k(x+, x-) + k(x-, x-))))
        theta_e <- theta_e beta^[S_e(x, x+) <= S_e(x, x-)]

    after which theta is divided by its sum, and the triplet joins the support set if a tau is above 0. The fused
    similarity is S = sum_e theta_e S_e. A triplet is a mistake when S(x, x+) <= S(x, x-) before the update; the loss
    is sum_e theta_e l_e.

    Parameters
    ----------
    kernels : "linear", k = x.x', "rbf", k = exp(-|x - x'|^2 / (2 bandwidth^2)), or a list of both; for every modality.
    budget : triplets of the support set at most; cost and memory grow with it.
    drop : which triplet is dropped from a full support set: the "oldest", or that with the "smallest" sum of tau over
        the experts. Of several with the same sum, such as those shortened by C, the oldest is dropped.
    bandwidth : for "rbf", in units of scaled features. By default the mean distance between the first `warm_up`
        distinct vectors in each modality; until then constraints are neither scored nor learned.
    beta : factor of an expert's weight for a mistake, in (0, 1). A weight does not fall below 1e-12 of the best one's.
    aggressiveness : C, the largest tau, above 0; 1 where it is left out, or 0.1 in the published unit.
    dtype : "float64" or "float32", of the support set; sums are float64.
    scaler : None or "none", "zscore", "unit", "minmax", for each modality; part of the model, see
        `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that scales and the bandwidth are measured on. When a modality leaves its scale, the
        support set is emptied: what it holds has no meaning in another one.
    unit : "length" or "published", of each modality; see `kinstream.learners.base.one_modality.SingleModal`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(e B d) time for a constraint with e kernels and a budget of B triplets, O(B d) memory.

    The model is a similarity, and not symmetric: rank by `similarity`. `transform` and `distance` use the nearest
    metric: in feature space the positive semi-definite part of (W + W^T) / 2 with S_e(x, x') = phi(x)^T W phi(x'). For
    the "rbf" kernel they are restricted to the span of the support set, which has at most 3 B coordinates.

    Dropping a triplet removes its whole term; the budget is not from a publication. With the linear kernel and a budget
    that is not reached, this is OASIS.

    References
    ----------
    Xia, Hoi, Jin, Zhao: Online multiple kernel similarity learning for visual search. IEEE Transactions on Pattern
    Analysis and Machine Intelligence 36(3), 2014. Implemented from general knowledge of the method; its published
    variants differ in details that were not confirmed.

    Examples
    --------
    Two rings around each other, which no linear map separates.

    >>> import numpy as np
    >>> from kinstream import OMKS
    >>> draw = np.random.default_rng(7)
    >>> angle, label = draw.uniform(0, 2 * np.pi, 900), np.repeat([0, 1], 450)
    >>> X = ((1 + label) * np.array([np.cos(angle), np.sin(angle)])).T
    >>> anchors, similar, others = X[:225], X[225:450], X[450:675]
    >>> mistakes = OMKS("rbf", bandwidth=0.5).learn_triplets(anchors, similar, others).mistake
    >>> [int(mistakes[rows].sum()) for rows in (slice(0, 25), slice(25, 225))]
    [3, 0]
    """

    algorithm: ClassVar[str] = "omks/11"
    linear: ClassVar[bool] = False

    def __init__(
        self,
        kernels: str | Sequence[str] = "rbf",
        budget: int = 200,
        beta: float = 0.99,
        aggressiveness: float | None = None,
        *,
        drop: str = "oldest",
        bandwidth: float | None = None,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(beta=beta, margin=0.0, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self.kernels = (kernels,) if isinstance(kernels, str) else tuple(a_list("kernels", kernels))
        for name in self.kernels:
            one_of("kernels", name, KERNELS)
        if not self.kernels or len(set(self.kernels)) != len(self.kernels):
            raise SettingsError(
                f"kernels must be one of {', '.join(KERNELS)}, or a list of both, not {kernels!r}"
            )
        self.budget = whole("budget", budget, 1)
        self.drop = one_of("drop", drop, DROPS)
        self.bandwidth = None if bandwidth is None else positive("bandwidth", bandwidth)
        self._aggressiveness = None if aggressiveness is None else positive("aggressiveness", aggressiveness)
        # A linear kernel is a similarity of vectors, not of differences.
        self.centred = "linear" not in self.kernels
        self._waits = "rbf" in self.kernels and bandwidth is None
        #: Bandwidth of each modality; NaN while it is not known.
        self._bandwidths: NDArray[np.float64] = np.zeros(0)
        #: Anchors, positives and negatives (D, B), and tau (experts, B).
        self._support: omks.Support = (self._space(0, 0),) * 4
        #: Triplets in the support set, and the column of the newest.
        self._counts = np.zeros(2, np.int64)
        #: A number for each triplet, larger for newer ones.
        self._born = np.zeros(0, np.int64)
        self._roots: dict[int, Root] = {}

    @property
    def aggressiveness(self) -> float:
        """C, the largest tau."""
        return self._by_unit(self._aggressiveness, 1.0, 0.1)

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the modalities, or MODALITY/KERNEL with several kernels."""
        if len(self.kernels) == 1:
            return super().experts
        return tuple(f"{name}/{kernel}" for name, _ in self.modalities for kernel in self.kernels)

    @property
    def bandwidths(self) -> dict[str, float]:
        """Bandwidths of "rbf" by modality; NaN while not known."""
        return {name: float(b) for (name, _), b in zip(self.modalities, self._bandwidths, strict=True)}

    def similarity(self, X: Features, Y: Features) -> Rows:
        """Fused similarities (n,) of the queries X to the rows of Y, as `transform` takes them."""
        begun = self._begun(X)
        left, right = begun._scaled(X), begun._scaled(Y)
        if [part.shape for part in left] != [part.shape for part in right]:
            raise ValueError("expected two sets of tables of the same shapes")
        found = np.zeros(len(left[0]))
        for e, weight in enumerate(begun._theta):
            x, y = (np.asarray(part[e // len(self.kernels)], np.float64) for part in (left, right))
            found += weight * begun._similarities(e, x, y)
        return found

    def _similarities(self, e: int, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """S_e (n,) of the rows of x to those of y, scaled vectors of expert e's modality."""
        A, P, N, tau = self._terms(e)
        own = np.array([self._kernel(e, x[n : n + 1], y[n : n + 1])[0, 0] for n in range(len(x))])
        terms = tau * self._kernel(e, x, A) * (self._kernel(e, y, P) - self._kernel(e, y, N))
        return np.asarray(own + terms.sum(axis=1))

    def _space(self, *shape: int) -> Rows:
        return np.zeros(shape, self.dtype)

    def _begin(self, sizes: Sequence[int]) -> None:
        D, experts = sum(sizes), len(sizes) * len(self.kernels)
        self._support = (*(self._space(D, self.budget) for _ in range(3)), self._space(experts, self.budget))  # type: ignore[assignment]
        self._counts = np.zeros(2, np.int64)
        self._born = np.zeros(self.budget, np.int64)
        self._bandwidths = np.full(len(sizes), np.nan if self.bandwidth is None else self.bandwidth)
        self._roots = {}

    def _prepare(self, parts: Sequence[NDArray[np.float64]]) -> None:
        self._bandwidths = np.array([mean_distance(part) for part in parts])

    def _model(self) -> State:
        count = int(self._counts[0])
        named = zip(("anchors", "positives", "negatives", "tau"), self._support, strict=True)
        state: State = {name: array[:, :count].T.copy() for name, array in named}
        state |= {"newest": int(self._counts[1]), "bandwidths": self._bandwidths.copy()}
        return state if self.drop == "oldest" else state | {"born": self._born[:count].copy()}

    def _restore_model(self, state: State) -> None:
        self._begin([size for _, size in self.modalities])
        for name, array in zip(("anchors", "positives", "negatives", "tau"), self._support, strict=True):
            found = np.asarray(state[name])
            if found.dtype != self.dtype or len(found) > self.budget:
                raise SettingsError(
                    f"dtype is {self.dtype} and budget {self.budget}, but the state to restore holds "
                    f"{len(found)} triplets of {found.dtype}"
                )
            array[:, : len(found)] = found.T
        self._counts[:] = len(found), int(state["newest"])
        self._born[: len(found)] = state.get("born", 0)
        self._bandwidths = np.array(state["bandwidths"], np.float64)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        assert self._modalities is not None
        self._roots = {}
        modes = np.repeat(np.arange(len(self.modalities)), len(self.kernels))
        kinds = np.array([KERNELS.index(name) for name in self.kernels] * len(self.modalities), np.int64)
        omks.triplets(
            self._support,
            self._counts,
            self._born,
            self._modalities.starts,
            modes,
            kinds,
            self._rates()[modes],
            batch.X,
            batch.index,
            batch.usable,
            self.aggressiveness,
            self.beta,
            self._most,
            DROPS.index(self.drop),
            self._behind,
            self._theta,
            outcomes.report(),
            batch.events.judged,
        )

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        events, rows = batch.events, batch.events.rows
        margins = events.found[rows]
        write(outcomes, rows, margins <= 0.0, events.levels[rows], margins)

    def _rates(self) -> NDArray[np.float64]:
        return np.where(np.isnan(self._bandwidths), 1.0, 0.5 / self._bandwidths**2)

    def _score(self, points: Sequence[NDArray[np.float64]]) -> tuple[int, float, float]:
        if self._waits and np.isnan(self._bandwidths).any():
            return UNDEFINED, 0.0, np.nan
        margin, loss = 0.0, 0.0
        for e, weight in enumerate(self._theta):
            part = points[e // len(self.kernels)]
            near, far = self._kernel(e, part[:1], part[1:])[0]
            margin += float(weight) * float(near - far)
            loss += float(weight) * max(0.0, 1.0 - float(near - far))
        return int(margin <= 0.0), loss, margin

    def _kernel(self, e: int, X: NDArray[np.float64], Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The kernel of expert e between all rows of X and of Y, scaled vectors of its modality."""
        if self.kernels[e % len(self.kernels)] == "linear":
            return np.asarray(X @ Y.T)
        rate = self._rates()[e // len(self.kernels)]
        apart = np.array([np.sum((row - Y) ** 2, axis=1) for row in X]).reshape(len(X), len(Y))
        return np.asarray(np.exp(-rate * apart))

    def _terms(self, e: int) -> tuple[NDArray[np.float64], ...]:
        """Anchors, positives and negatives (c, d) of the support set in expert e's modality, and its tau (c,)."""
        assert self._modalities is not None
        lo, hi = self._modalities.starts[e // len(self.kernels) :][:2]
        *vectors, tau = self._support
        count = int(self._counts[0])
        found = tau[e, :count].astype(np.float64)
        use = found > 0.0
        return *(part[lo:hi, :count].T[use].astype(np.float64) for part in vectors), found[use]

    def _weighed(self, i: int, Z: Rows) -> Rows:
        """The kernels of modality i, one after the other, times the roots of their weights."""
        several = range(i * len(self.kernels), (i + 1) * len(self.kernels))
        mapped = [self._mapped(e, Z) * Z.dtype.type(np.sqrt(self._theta[e])) for e in several]
        return np.concatenate(mapped, axis=1)

    def distance(self, X: Features, Y: Features) -> Rows:
        """Squared distances (n,) between the rows of X and of Y after `transform`."""
        moved = self.transform(X) - self.transform(Y)
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    def _rescale(self, i: int, ratio: NDArray[np.float64]) -> None:
        bandwidths = self._bandwidths
        self._begin([size for _, size in self.modalities])
        self._bandwidths = bandwidths

    def _mapped(self, i: int, Z: Rows) -> Rows:
        """Here i is an expert's number."""
        if i not in self._roots:
            with one_blas_thread():
                self._roots[i] = self._root(i)
        root, points = self._roots[i]
        wide = np.asarray(Z, np.float64)
        values = wide if points is None else self._kernel(i, wide, points)
        return np.asarray(values @ root.T, self.dtype)

    def _root(self, e: int) -> Root:
        """The map of expert e for `_mapped`."""
        A, P, N, tau = self._terms(e)
        d = self.modalities[e // len(self.kernels)][1]
        linear = self.kernels[e % len(self.kernels)] == "linear"
        if linear or len(tau) == 0:
            root = _half(np.eye(d) + A.T @ (tau[:, None] * (P - N)))
            return (root if linear else root * np.sqrt(2.0 * self._rates()[e // len(self.kernels)])), None
        points = np.unique(np.concatenate([A, P, N]), axis=0)
        values, vectors = np.linalg.eigh(self._kernel(e, points, points))
        kept = values > _NOTHING * values[-1]
        basis = (vectors[:, kept] / np.sqrt(values[kept])).T
        a, p, n = (self._kernel(e, part, points) @ basis.T for part in (A, P, N))
        return _half(np.eye(len(basis)) + a.T @ (tau[:, None] * (p - n))) @ basis, points


def _half(W: NDArray[np.float64]) -> NDArray[np.float64]:
    """S with S^T S the positive semi-definite part of (W + W^T) / 2."""
    values, vectors = np.linalg.eigh((W + W.T) / 2.0)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T)


def mean_distance(X: NDArray[np.float64]) -> float:
    """Mean distance between different vectors (n, d); 1 if there are none."""
    total, pairs = 0.0, 0
    for n, row in enumerate(X):
        lengths = np.sqrt(np.sum((X[n + 1 :] - row) ** 2, axis=1))
        total += float(lengths.sum())
        pairs += int(np.count_nonzero(lengths))
    return total / pairs if pairs and np.isfinite(total) else 1.0
