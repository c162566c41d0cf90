"""The base of learners of a positive semi-definite matrix."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.adaptive_scaler import rescaled
from kinstream.learners.base.learner import Rows, State
from kinstream.learners.forms.pairs import PairLearner
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError

#: The map excludes eigenvalues up to this share of the largest one.
_NOTHING: Final = 1e-12

Spectrum = tuple[NDArray[np.float64], NDArray[np.float64]]


class PsdMatrix(PairLearner):
    """A model that is a symmetric positive semi-definite matrix A (d, d), with squared distance z'Az.

    The map is computed from the eigenvectors of A on use, in O(d^3), and kept until A changes: a subclass calls
    `_touched` whenever A may have changed.

    Parameters
    ----------
    zero : whether A is zero at first; otherwise it is the identity.
    """

    def __init__(self, *, zero: bool, dtype: str, scaler: str | None, warm_up: int, unit: str) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._zero = zero
        self._A: NDArray[Any] = np.empty((0, 0), self.dtype)
        self._factor: Rows | None = None

    @property
    def A(self) -> Rows:
        """A copy of the matrix (d, d), for scaled features.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """
        self._known()
        return self._A.copy()

    @property
    def map(self) -> Rows:
        return self._root().copy()

    def _first_distance(self, z: NDArray[np.float64]) -> float:
        return 0.0 if self._zero else float(z @ z)

    def _mapped(self, Z: Rows) -> Rows:
        return np.asarray(Z @ self._root().T)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        self._A = rescaled(self._A, ratio)
        self._touched()

    def _begin(self, d: int) -> None:
        self._A = np.zeros((d, d), self.dtype) if self._zero else np.eye(d, dtype=self.dtype)
        self._touched()

    def _model(self) -> State:
        return {"A": self._A.copy()}

    def _restore_model(self, state: State) -> int:
        self._A = self._of_type(np.asarray(state["A"]))
        self._touched()
        return len(self._A)

    def _of_type(self, found: NDArray[Any]) -> NDArray[Any]:
        """A C-contiguous copy, or an error if the state is of another type than the learner."""
        if found.dtype != self.dtype:
            raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        return np.array(found, order="C")

    def _touched(self) -> None:
        self._factor = None

    def _known(self) -> None:
        if self._dimension is None:
            raise ValueError("the matrix has no dimension yet: learn from a block first")

    def _spectrum(self) -> Spectrum:
        """Unit eigenvectors, as the rows of a matrix (d, d), and eigenvalues (d,)."""
        values, vectors = np.linalg.eigh(self._A.astype(np.float64))
        return vectors.T, values

    def _root(self) -> Rows:
        """diag(sqrt(e)) V', (k, d), without the rows of eigenvalues that count as zero; one row of zeros if all do."""
        if self._factor is None:
            self._known()
            with one_blas_thread():
                vectors, values = self._spectrum()
            kept = values > _NOTHING * max(float(values.max()), 0.0)
            root = (
                np.sqrt(values[kept])[:, None] * vectors[kept] if kept.any() else np.zeros((1, len(values)))
            )
            self._factor = root.astype(self.dtype)
        return self._factor
