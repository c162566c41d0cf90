"""LEGO in the feature space of a kernel (spec 3.1, kernel form)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from learners.base import Outcomes, State
from learners.kernels import kernel_lego
from learners.kernels.compiled import limit
from learners.kernels.threads import one_blas_thread
from learners.lego import TargetLearner
from learners.scaler import WARM_UP
from learners.single import Batch, Rows
from learners.targets import Features, Targets
from learners.validation import one_of, positive, whole
from streams.errors import SettingsError

KERNELS: Final = ("linear", "rbf", "polynomial")
#: Eigenvalues of a kernel matrix up to this share of the largest are nothing.
_NOTHING: Final = 1e-10


class _Targets(Targets):
    """Targets whose percentiles are those of distances in a learner's feature space."""

    def __init__(
        self,
        learner: KernelLEGO,
        source: str,
        y_similar: float | None,
        y_dissimilar: float | None,
        warm_up: int,
    ) -> None:
        super().__init__(source, y_similar, y_dissimilar, warm_up)
        self._learner = learner

    def observe(self, points: Features, scale: Callable[[Features], NDArray[Any]], scaled: bool) -> None:
        super().observe(points, lambda rows: self._learner.coordinates(scale(rows)), scaled)


class KernelLEGO(TargetLearner):
    r"""LEGO in the feature space phi of a kernel k(x, x') = phi(x).phi(x'), over a basis of stored vectors.

    The metric is A = I + Phi S Phi', Phi the basis points phi(b_1), ... as columns, S symmetric and zero at first. With
    K the kernels of the basis and, for a pair (u, v), e = e_u - e_v, h = e + S K e, the pair's squared distance is
    d = e'K h, and the step of `learners.lego.LEGO` becomes

        S <- S - (1 - rho) / d  h h'

    A pair that is to be learned joins the basis with those of its vectors that are not in it yet. The basis never
    holds more than `budget` points: then pairs of other vectors are scored only, and those of basis points are still
    learned. So the model is, at every time and to rounding, that of LEGO over exactly the pairs that were utilised;
    to drop a point would change the metric that the others were learned under.

    Losses, targets and mistakes are those of LEGO, with squared distances in feature space.

    Parameters
    ----------
    eta : step size, above 0, in 1 / squared distance^2; about 0.1 / d^2 for a typical squared distance d in feature
        space. That is of order 1 for "rbf", for which the default is made.
    kernel : "linear", x.x'; "rbf", exp(-|x - x'|^2 / (2 bandwidth^2)); or "polynomial",
        (1 + x.x' / bandwidth^2)^degree.
    budget : most points of the basis; as many as there are distinct vectors in the pairs to learn from, where that is
        affordable.
    bandwidth : in units of scaled features; the root of their number where it is left out, which suits features of
        unit variance.
    degree : of "polynomial", at least 1.
    loss, targets, y_similar, y_dissimilar : as for `learners.lego.LEGO`.
    dtype : "float64" or "float32", of the basis and S; sums are float64.
    scaler : None or "none", "zscore", "unit", "minmax"; part of the model, see `learners.scaler`.
    warm_up : distinct vectors before the scaler and targets that are not given are frozen.

    Attributes
    ----------
    basis, S : copies of the basis (m, d), scaled, and of S (m, m).

    Raises
    ------
    streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(m d + m^2) time for a pair with m points in the basis, O(budget (budget + d)) memory.

    `distance` is exact for all vectors. `transform` cannot be, except with the linear kernel, for the feature space may
    have more dimensions than there are numbers: it gives the coordinates in the span of the basis, and behind them the
    length of the rest. Distances after it are exact where one of the two vectors is in the basis, and otherwise at
    most too small. While the basis is empty it is the kernel to first order.

    References
    ----------
    Jain, Kulis, Dhillon, Grauman: Online metric learning and fast similarity search. NIPS 2008. (Mentions that the
    update can be kernelised; the form used here is derived from it.)

    Examples
    --------
    Two rings around each other, which no linear map tells apart.

    >>> import numpy as np
    >>> from learners.kernel_lego import KernelLEGO
    >>> draw = np.random.default_rng(7)
    >>> angle, label = draw.uniform(0, 2 * np.pi, 60), np.repeat([0, 1], 30)
    >>> X = ((1 + label) * np.array([np.cos(angle), np.sin(angle)])).T
    >>> left, right = draw.integers(0, 60, (2, 1500))
    >>> signs = np.where(label[left] == label[right], 1, -1)
    >>> model = KernelLEGO(1.0, bandwidth=0.5, budget=60, y_similar=0.2, y_dissimilar=1.8)
    >>> mistakes = model.learn_pairs(X[left], X[right], signs).mistake
    >>> [round(float(mistakes[rows].mean()), 2) for rows in (slice(0, 100), slice(1400, 1500))]
    [0.24, 0.0]
    """

    algorithm: ClassVar[str] = "kernel-lego/1"

    def __init__(
        self,
        eta: float = 0.1,
        *,
        kernel: str = "rbf",
        budget: int = 256,
        bandwidth: float | None = None,
        degree: int = 2,
        loss: str = "hinge",
        targets: str = "own",
        y_similar: float | None = None,
        y_dissimilar: float | None = None,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up)
        self._aim(loss, _Targets(self, targets, y_similar, y_dissimilar, warm_up))
        self.eta = positive("eta", eta)
        self.kernel = one_of("kernel", kernel, KERNELS)
        self.budget = whole("budget", budget, 2)
        self.bandwidth = None if bandwidth is None else positive("bandwidth", bandwidth)
        self.degree = whole("degree", degree, 1)
        # In columns and with room for the whole budget.
        self._B: NDArray[Any] = np.zeros((0, 0), self.dtype)
        self._S: NDArray[Any] = np.zeros((0, 0), self.dtype)
        self._count = 0
        self._root: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def basis(self) -> Rows:
        """A copy of the basis (m, d), in the order in which its points joined."""
        return self._B[:, : self._count].T.copy()

    @property
    def S(self) -> Rows:
        """A copy of S (m, m)."""
        return self._S[: self._count, : self._count].copy()

    @property
    def map(self) -> Rows:
        """A map (d, d) of scaled features, for the linear kernel.

        Raises
        ------
        ValueError
            Before the first block.
        SettingsError
            The kernel is another one.
        """
        if self._dimension is None:
            raise ValueError("the map has no dimension yet: learn from a block first")
        if self.kernel != "linear":
            raise SettingsError(f"{self.algorithm} with the {self.kernel} kernel is not a linear map")
        return np.asarray(self._prepared()[0], self.dtype)

    def distance(self, X: Rows, Y: Rows) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, both (n, d) raw features."""
        left, right = self.scale(X), self.scale(Y)
        if left.shape != right.shape:
            raise ValueError(f"expected two tables of the same shape, got {left.shape} and {right.shape}")
        d = left.shape[1]
        B = self._B if self._dimension is not None else np.zeros((d, 0), self.dtype)
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        found = kernel_lego.distances(self._form(d), B, self._S, self._count, left, right)
        return found.astype(self.dtype)

    def coordinates(self, X: Rows) -> NDArray[np.float64]:
        """Vectors (n, r) whose Euclidean distances are those of the rows of X (n, d), scaled, in feature space."""
        wide: NDArray[np.float64] = np.ascontiguousarray(X, np.float64)
        if self.kernel == "linear":
            return wide
        kernel = kernel_lego.against(
            self._form(wide.shape[1]), np.ascontiguousarray(wide.T), len(wide), wide
        )[:, :-1]
        with one_blas_thread():
            values, vectors = np.linalg.eigh(kernel)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    def _form(self, d: int) -> kernel_lego.Kernel:
        """The kernel over d features, for compiled code."""
        rate = 1.0 / (d if self.bandwidth is None else self.bandwidth**2)
        return KERNELS.index(self.kernel), 0.5 * rate if self.kernel == "rbf" else rate, self.degree

    def _begin(self, d: int) -> None:
        self._B = np.zeros((d, self.budget), self.dtype)
        self._S = np.zeros((self.budget, self.budget), self.dtype)
        self._count, self._root = 0, None

    def _model(self) -> State:
        return {"basis": self.basis, "S": self.S}

    def _restore_model(self, state: State) -> int:
        basis, S = np.asarray(state["basis"]), np.asarray(state["S"])
        if basis.dtype != self.dtype or len(basis) > self.budget:
            raise SettingsError(
                f"dtype is {self.dtype} and budget {self.budget}, but the state to restore holds {len(basis)} points "
                f"of {basis.dtype}"
            )
        self._begin(basis.shape[1])
        self._count = len(basis)
        self._B[:, : self._count] = basis.T
        self._S[: self._count, : self._count] = S
        return int(basis.shape[1])

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        self._count = kernel_lego.pairs(
            self._form(len(self._B)),
            self._B,
            self._S,
            self._count,
            batch.X,
            batch.index,
            batch.usable,
            batch.signs,
            batch.targets,
            batch.thresholds,
            batch.group,
            self.loss == "squared",
            self.eta,
            limit(self._S.dtype),
            outcomes.report(),
        )
        self._root = None

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float]:
        form = self._form(points.shape[1])
        squared = [kernel_lego.start(form, points[0], other)[0] for other in points[1:]]
        if len(squared) == 1:
            return self._score_pair(squared[0], sign)
        losses = [self._score_pair(value, s)[1] for value, s in zip(squared, (1, -1), strict=True)]
        return int(squared[0] >= squared[1]), sum(losses)

    def _first_distance(self, z: NDArray[np.float64]) -> float:
        raise NotImplementedError("a kernel takes two vectors, not their difference")

    def _mapped(self, Z: Rows) -> Rows:
        if self._count == 0 and self.kernel != "linear":
            kind, rate, degree = self._form(Z.shape[1])
            return Z * Z.dtype.type(np.sqrt(rate * (2.0 if kind == kernel_lego.RBF else degree)))
        root, span = self._prepared()
        if self.kernel == "linear":
            return np.asarray(Z @ root.T.astype(self.dtype))
        values = kernel_lego.against(self._form(Z.shape[1]), self._B, self._count, np.ascontiguousarray(Z))
        inside = values[:, :-1] @ span.T
        rest = np.maximum(values[:, -1] - np.einsum("ij,ij->i", inside, inside), 0.0)
        return np.column_stack([inside @ root.T, np.sqrt(rest)]).astype(self.dtype)

    def _prepared(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The root of A in orthonormal coordinates of the basis's span, and what makes them of kernels (r, m).

        For the linear kernel, the root of A itself, and nothing.
        """
        if self._root is not None:
            return self._root
        basis, S = self.basis.astype(np.float64), self.S.astype(np.float64)
        with one_blas_thread():
            if self.kernel == "linear":
                span, inside = np.zeros((0, 0)), basis
            else:
                form = self._form(basis.shape[1])
                kernel = kernel_lego.against(form, self._B, self._count, np.ascontiguousarray(self.basis))[
                    :, :-1
                ]
                values, vectors = np.linalg.eigh(kernel)
                kept = values > _NOTHING * values[-1]
                span = (vectors[:, kept] / np.sqrt(values[kept])).T
                inside = kernel @ span.T
            A = np.eye(inside.shape[1]) + inside.T @ S @ inside
            values, vectors = np.linalg.eigh((A + A.T) / 2.0)
            self._root = (vectors * np.sqrt(np.maximum(values, 0.0))).T, span
        return self._root
