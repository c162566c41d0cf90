"""The base of learners of a square linear map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Rows, State
from kinstream.learners.base.one_modality import SingleModal
from kinstream.streams.errors import SettingsError


class LinearMap(SingleModal):
    """A model that is a map (d, d), stored transposed for the kernels.

    Attributes
    ----------
    letter : name of the map in the state, as in the algorithm's source.
    """

    letter = "L"

    def __init__(self, *, dtype: str, scaler: str | None, warm_up: int, unit: str) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        # An upper bound of the map's entries, -1 for unknown. It only saves work and is not part of the state.
        self._T: NDArray[Any] = np.empty((0, 0), self.dtype)
        self._bound = -1.0

    @property
    def map(self) -> Rows:
        if self._dimension is None:
            raise ValueError("the map has no dimension yet: learn from a block first")
        return self._T.T.copy()

    def _mapped(self, Z: Rows) -> Rows:
        return np.asarray(Z @ self._T)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        self._T, self._bound = np.asarray(self._T * ratio[:, None], self.dtype), -1.0

    def _begin(self, d: int) -> None:
        self._T, self._bound = np.eye(d, dtype=self.dtype), -1.0

    def _model(self) -> State:
        return {self.letter: self._T.T.copy()}

    def _restore_model(self, state: State) -> int:
        found = np.asarray(state[self.letter])
        if found.dtype != self.dtype:
            raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        self._T, self._bound = np.array(found.T, order="C"), -1.0
        return len(self._T)
