"""The scale of a portfolio's members: vectors of mean squared length 1, for any features."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import State
from kinstream.learners.shared.scaler import Scaler

Features = NDArray[np.float64]

#: Number of vectors, in the order of constraints, that define the unit.
MEASURED: Final = 96


class Unit(Scaler):
    """A scaler, followed by division by the root mean squared length of the first 96 vectors after its warm-up.

    A step size depends on the scale of the vectors. In this unit two unrelated vectors have a squared distance of about
    2, so one step size suits all features.

    Parameters
    ----------
    inner : the scaler.

    Attributes
    ----------
    sample : (k, d) the vectors so far, scaled by `inner`, and in the unit once it is known.
    """

    def __init__(self, inner: Scaler) -> None:
        self.inner = inner
        self.ready = False
        self._vectors: Features = np.empty((0, 0))
        self._factor = 1.0

    @property
    def sample(self) -> Features:
        return self._vectors * self._factor

    def observe(self, rows: Features) -> None:
        if not self.inner.ready:
            self.inner.observe(rows)
            return
        scaled = np.asarray(self.inner.apply(rows), np.float64)
        kept = self._vectors if len(self._vectors) else np.empty((0, scaled.shape[1]))
        self._vectors = np.concatenate([kept, scaled])[:MEASURED]
        self._close()

    def apply(self, X: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        scaled = self.inner.apply(X)
        return np.asarray(scaled * self._factor, np.float64) if self.ready else scaled

    def affine(self) -> tuple[Features, Features] | None:
        found = self.inner.affine()
        if found is None and type(self.inner) is Scaler and len(self._vectors):
            d = self._vectors.shape[1]
            found = np.zeros(d), np.ones(d)
        return None if found is None else (found[0], found[1] * self._factor)

    @property
    def factor(self) -> float:
        """Factor of vectors after `inner`."""
        return self._factor

    def state(self) -> State:
        found = self.inner.state() | {"sampled": len(self._vectors)}
        return found | ({"sample": self._vectors.copy()} if len(self._vectors) else {})

    def restore(self, state: State) -> None:
        self.inner.restore(
            {name: value for name, value in state.items() if name not in ("sample", "sampled")}
        )
        self._vectors = np.array(state.get("sample", np.empty((0, 0))), np.float64)
        self._close()

    def _close(self) -> None:
        self.ready = len(self._vectors) == MEASURED
        if self.ready:
            with np.errstate(all="ignore"):
                mean = float(np.einsum("ij,ij->", self._vectors, self._vectors)) / MEASURED
            # Zeros, or lengths whose squares are not finite, define no unit.
            self._factor = 1.0 / np.sqrt(mean) if 0.0 < mean < np.inf else 1.0
