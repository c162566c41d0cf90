"""The base of learners of a bilinear similarity."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, SingleModal
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind

#: The map excludes eigenvalues up to this share of the largest one.
NOTHING: Final = 1e-12


class Bilinear(SingleModal):
    """A model that is a similarity x^T W y of scaled vectors, learned from triplets; W need not be symmetric.

    For a triplet (x, x+, x-) with v = x+ - x-, the margin is x^T W v and the loss [1 - x^T W v]_+. A triplet is a
    mistake when the margin is not above zero. It counts as degenerate if x or v vanishes.

    The learned ranking is by `similarity`, largest first. An inner product favours long vectors: with
    scaler="zscore" rank vectors of about the same length, or use scaler="unit". `map`, `transform` and `distance` give
    **another ranking**: they use the positive semi-definite part of (W + W^T) / 2 as the matrix of a squared distance,
    so methods for Euclidean distances work with this model too. Calculating that part takes O(d^3) once after a change.
    """

    centred: ClassVar[bool] = False
    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET

    def __init__(self, *, dtype: str, scaler: str | None, warm_up: int, unit: str) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._root: Rows | None = None

    @property
    @abstractmethod
    def W(self) -> Rows:
        """A copy of the similarity matrix (d, d), for scaled features.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """

    def similarity(self, X: Rows, Y: Rows) -> Rows:
        """Learned similarity (n,) of the rows of X to those of Y, both (n, d) raw features; larger is more similar.

        For verification, the mean of `similarity(X, Y)` and `similarity(Y, X)` does not depend on the order.

        Raises
        ------
        ValueError
            X and Y are not of one shape (n, d).
        """
        left, right = self.scale(X), self.scale(Y)
        if left.shape != right.shape:
            raise ValueError(f"expected two tables of the same shape, got {left.shape} and {right.shape}")
        return np.asarray(np.einsum("ij,ij->i", self._begun(left.shape[1])._weighted(left), right))

    def similarities(self, X: Rows, Y: Rows) -> Rows:
        """Learned similarity (n, k) of every row of X (n, d) to every row of Y (k, d), raw features.

        Raises
        ------
        ValueError
            X or Y is not of d features.
        """
        left, right = self.scale(X), self.scale(Y)
        if left.shape[1] != right.shape[1]:
            raise ValueError(f"expected tables of the same features, got {left.shape} and {right.shape}")
        return np.asarray(self._begun(left.shape[1])._weighted(left) @ right.T)

    @property
    def map(self) -> Rows:
        """A map M (k, d) whose M^T M is the positive semi-definite part of (W + W^T) / 2, for scaled features.

        |M (x - y)|^2 gives another ranking than x^T W y. Rows of eigenvalues up to 1e-12 of the largest are omitted; if
        no eigenvalue is positive, the map is one row of zeros.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """
        return self._factor().copy()

    def restore(self, state: State) -> None:
        self._root = None
        super().restore(state)

    def _mapped(self, Z: Rows) -> Rows:
        return np.asarray(Z @ self._factor().T)

    def _factor(self) -> Rows:
        if self._root is None:
            self._root = self._positive_part().astype(self.dtype)
        return self._root

    def _positive_part(self) -> NDArray[np.float64]:
        """The map, from the largest eigenvalue to the smallest."""
        W = self.W.astype(np.float64)
        with one_blas_thread():
            values, vectors = np.linalg.eigh((W + W.T) / 2.0)
        values, vectors = values[::-1], vectors.T[::-1]
        kept = values > NOTHING * max(float(values[0]), 0.0)
        return np.sqrt(values[kept])[:, None] * vectors[kept] if kept.any() else np.zeros((1, len(values)))

    def _weighted(self, rows: Rows) -> Rows:
        """x^T W of scaled rows (n, d)."""
        return np.asarray(rows @ self.W)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        self._root = None
        self._fit(batch, outcomes)

    @abstractmethod
    def _fit(self, batch: Batch, outcomes: Outcomes) -> None:
        """Learn the rows of the batch in order, and fill the outcomes (m,) in."""

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        margin = self._first_margin(points[0] * (points[1] - points[2]))
        return int(margin <= 0.0), max(0.0, 1.0 - margin), margin

    def _first_margin(self, products: NDArray[np.float64]) -> float:
        """Margin of a triplet with these x_j v_j (d,) under the initial model, the identity."""
        return float(products.sum())

    def _known(self) -> None:
        if self._dimension is None:
            raise ValueError("the similarity has no dimension yet: learn from a block first")

    def _of_type(self, found: Any) -> NDArray[Any]:
        """A C-contiguous copy of what a state holds, if it is of the learner's type."""
        array = np.asarray(found)
        if array.dtype != self.dtype:
            raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {array.dtype}")
        return np.array(array, order="C")


class Diagonal(Bilinear):
    """A similarity sum_j w_j x_j y_j: W = diag(w). Every operation is O(d), and the map needs no eigenvectors."""

    @property
    @abstractmethod
    def w(self) -> Rows:
        """A copy of the weights (d,) of the scaled features.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """

    @property
    def W(self) -> Rows:
        return np.diag(self.w)

    def _weighted(self, rows: Rows) -> Rows:
        return rows * self.w

    def _positive_part(self) -> NDArray[np.float64]:
        w = self.w.astype(np.float64)
        kept = np.flatnonzero(w > NOTHING * max(float(w.max()), 0.0))
        root = np.zeros((max(len(kept), 1), len(w)))
        root[np.arange(len(kept)), kept] = np.sqrt(w[kept])
        return root
