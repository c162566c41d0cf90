"""LEGO in the feature space of a kernel (Jain et al. 2008)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.removed import Removed, always
from kinstream.learners.base.scaler import LENGTH, PUBLISHED, WARM_UP
from kinstream.learners.base.targets import Features, Targets
from kinstream.learners.base.validation import one_of, positive, whole
from kinstream.learners.kernels.one_modality import kernel_lego
from kinstream.learners.one_modality.lego import TargetLearner
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.compute.compilation import limit
from kinstream.streams.errors import SettingsError

KERNELS: Final = ("linear", "rbf", "polynomial")


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

    def observe(self, points: Features, scale: Callable[[Features], NDArray[Any]], scaled: bool) -> bool:
        return super().observe(points, lambda rows: self._learner.coordinates(scale(rows)), scaled)


class KernelLEGO(TargetLearner):
    r"""LEGO in the feature space phi of a kernel k(x, x') = phi(x).phi(x'), over a basis of stored vectors.

    The metric is A = I + Phi S Phi', where the columns of Phi are the basis points phi(b_1), ... Within their span the
    metric is a map G in orthonormal coordinates, at first the identity; outside the span A remains the identity. With L
    L' the kernels of the basis, and a = L^-1 (k(u) - k(v)) the coordinates of a pair (u, v), its squared distance is

        d = |G a|^2 + (k(u, u) - 2 k(u, v) + k(v, v) - |a|^2)

    and a pair within the span is learned as by `kinstream.LEGO`, with a instead of z. So a pair's vectors join the
    basis, unless they, or their difference, are already within the span.

    The basis never holds more than `budget` points. With a full basis, pairs within its span are still learned, and
    others are only scored. So the model is always that of LEGO over exactly the utilised pairs; dropping a point would
    change the metric under which the others were learned.

    Losses, targets and mistakes are those of LEGO, with squared distances in feature space.

    Parameters
    ----------
    eta : step size, above 0, in 1 / squared distance^2; about 0.1 / d^2 for a typical squared distance d in feature
        space. That is of order 1 for "rbf", which the default suits.
    kernel : "linear", x.x'; "rbf", exp(-|x - x'|^2 / (2 bandwidth^2)); or "polynomial",
        (1 + x.x' / bandwidth^2)^2.
    budget : most points of the basis. The linear kernel needs no more than there are features, "rbf" as many as there
        are distinct vectors in the pairs to learn from, where that is affordable.
    bandwidth : in units of scaled features; by default the root of their number, which suits features of unit variance.
    loss, targets, y_similar, y_dissimilar : as for `kinstream.LEGO`; percentiles are those of distances
        in feature space.
    dtype : "float64" or "float32", of the basis, and of what `transform` and `distance` give; G is float64.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale, and targets that are not given, are computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.

    Attributes
    ----------
    basis, G : copies of the basis (m, d), scaled, and of the map (m, m).

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(m d + m^2) time for a pair with m points in the basis, O(budget (budget + d)) memory.

    A vector does not become a basis point if less than 1e-10 of its squared length lies outside the span. A pair counts
    as within the span if less than 1e-6 of its squared distance lies outside. So nearly equal vectors may only be
    scored.

    `distance` is exact for all vectors. `transform` cannot be, except with the linear kernel, because the feature space
    may have too many dimensions: it gives G a(x), followed by the length of the part outside the span. Distances after
    it are exact if one of the two vectors is in the basis, and otherwise never too large. While the basis is empty, it
    is the kernel to first order.

    References
    ----------
    Jain, Kulis, Dhillon, Grauman: Online metric learning and fast similarity search. NIPS 2008. (Mentions that the
    update can be kernelised; the form used here is derived from it.)

    Examples
    --------
    Two rings around each other, which no linear map separates.

    >>> import numpy as np
    >>> from kinstream import KernelLEGO
    >>> draw = np.random.default_rng(7)
    >>> angle, label = draw.uniform(0, 2 * np.pi, 60), np.repeat([0, 1], 30)
    >>> X = ((1 + label) * np.array([np.cos(angle), np.sin(angle)])).T
    >>> left, right = draw.integers(0, 60, (2, 1500))
    >>> signs = np.where(label[left] == label[right], 1, -1)
    >>> model = KernelLEGO(1.0, bandwidth=0.5, budget=60, y_similar=0.2, y_dissimilar=1.8, unit="published")
    >>> mistakes = model.learn_pairs(X[left], X[right], signs).mistake
    >>> [round(float(mistakes[rows].mean()), 2) for rows in (slice(0, 100), slice(1400, 1500))]
    [0.24, 0.0]
    """

    algorithm: ClassVar[str] = "kernel-lego/11"
    removed: ClassVar[dict[str, Removed]] = {"degree": always(2)}

    #: Of the polynomial kernel.
    degree: ClassVar[int] = 2

    def __init__(
        self,
        eta: float = 0.1,
        *,
        kernel: str = "rbf",
        budget: int = 256,
        bandwidth: float | None = None,
        loss: str = "hinge",
        targets: str = "own",
        y_similar: float | None = None,
        y_dissimilar: float | None = None,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._aim(loss, _Targets(self, targets, y_similar, y_dissimilar, warm_up))
        self.eta = positive("eta", eta)
        self.kernel = one_of("kernel", kernel, KERNELS)
        self.budget = whole("budget", budget, 2)
        self.bandwidth = None if bandwidth is None else positive("bandwidth", bandwidth)
        self._points: kernel_lego.Model = self._room(0, 0)
        self._count = 0

    @property
    def basis(self) -> Rows:
        """A copy of the basis (m, d), in the order in which its points joined."""
        return self._points[0][:, : self._count].T.copy()

    @property
    def G(self) -> NDArray[np.float64]:
        """A copy of the map (m, m) for coordinates in the span of the basis."""
        return self._points[2][: self._count, : self._count].T.copy()

    @property
    def map(self) -> Rows:
        """A map (k, d) of scaled features, for the linear kernel.

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
        within = self._embedded(np.eye(self._dimension, dtype=self.dtype))[:, :-1].T
        mapped = np.einsum("ij,jk->ik", self.G, within)
        if len(within) == self._dimension:
            return np.asarray(mapped, self.dtype)
        without = np.eye(self._dimension) - np.einsum("ji,jk->ik", within, within)
        return np.concatenate([mapped, without]).astype(self.dtype)

    def distance(self, X: Rows, Y: Rows) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, both (n, d) raw features."""
        left, right = self.scale(X), self.scale(Y)
        if left.shape != right.shape:
            raise ValueError(f"expected two tables of the same shape, got {left.shape} and {right.shape}")
        d = left.shape[1]
        points = self._points if self._dimension is not None else self._room(d, 0)
        found = kernel_lego.distances(self._form(d), points, self._count, _rows(left), _rows(right))
        return found.astype(self.dtype)

    def coordinates(self, X: Rows) -> NDArray[np.float64]:
        """Vectors (n, r) whose Euclidean distances are those of the rows of X (n, d), scaled, in feature space."""
        wide: NDArray[np.float64] = np.asarray(X, np.float64)
        if self.kernel == "linear":
            return wide
        kind, rate, degree = self._form(wide.shape[1])
        with one_blas_thread():
            if kind == kernel_lego.RBF:
                kernel = np.exp(-rate * np.array([np.sum((wide - row) ** 2, axis=1) for row in wide]))
            else:
                kernel = (1.0 + rate * (wide @ wide.T)) ** degree
            values, vectors = np.linalg.eigh(kernel)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    def _form(self, d: int) -> kernel_lego.Kernel:
        """The kernel over d features, for compiled code."""
        usual = 1.0 if self.unit != PUBLISHED else float(d)
        rate = 1.0 / (usual if self.bandwidth is None else self.bandwidth**2)
        return KERNELS.index(self.kernel), 0.5 * rate if self.kernel == "rbf" else rate, self.degree

    def _room(self, d: int, budget: int) -> kernel_lego.Model:
        return np.zeros((d, budget), self.dtype), np.zeros((budget, budget)), np.zeros((budget, budget))

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        """Begin again: the kernels of the basis belong to the old features."""
        self._begin(self._points[0].shape[0])

    def _begin(self, d: int) -> None:
        self._points, self._count = self._room(d, self.budget), 0

    def _model(self) -> State:
        return {"basis": self.basis, "G": self.G}

    def _restore_model(self, state: State) -> int:
        basis, G = np.require(state["basis"], None, ["C_CONTIGUOUS"]), np.asarray(state["G"])
        if basis.dtype != self.dtype or len(basis) > self.budget:
            raise SettingsError(
                f"dtype is {self.dtype} and budget {self.budget}, but the state to restore holds {len(basis)} points "
                f"of {basis.dtype}"
            )
        d: int = basis.shape[1]
        self._begin(d)
        form, room = self._form(d), np.empty(self.budget)
        # The same steps on the same numbers as when they joined.
        for point in basis:
            self._count = kernel_lego.join(form, self._points, self._count, point, room)
        if self._count != len(basis):
            raise SettingsError(f"the basis of the state to restore is none under this {self.kernel} kernel")
        self._points[2][: self._count, : self._count] = G.T
        return d

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        self._count = kernel_lego.pairs(
            self._form(batch.X.shape[1]),
            self._points,
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
            limit(np.dtype(np.float64)),
            outcomes.report(),
            batch.events.judged,
        )

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        form = self._form(points.shape[1])
        return self._score_squared(
            [kernel_lego.start(form, points[0], other)[0] for other in points[1:]], sign
        )

    def _first_distance(self, z: NDArray[np.float64]) -> float:
        raise NotImplementedError("a kernel takes two vectors, not their difference")

    def _embedded(self, Z: Rows) -> NDArray[np.float64]:
        """Coordinates (n, m) of scaled vectors in the span, followed by the length of the part outside it."""
        return kernel_lego.embed(self._form(Z.shape[1]), self._points, self._count, _rows(Z))

    def _mapped(self, Z: Rows) -> Rows:
        if self.kernel == "linear":
            return np.asarray(Z @ self.map.T)
        if self._count == 0:
            kind, rate, degree = self._form(Z.shape[1])
            return Z * Z.dtype.type(np.sqrt(rate * (2.0 if kind == kernel_lego.RBF else degree)))
        found = self._embedded(Z)
        found[:, :-1] = np.einsum("ij,kj->ik", found[:, :-1], self.G)
        return found.astype(self.dtype)


def _rows(X: Rows) -> Rows:
    return np.require(X, None, ["C_CONTIGUOUS"])
