"""The input of OAHU's network, and the un-learned metrics that vote beside it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.base.one_modality import Index

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

#: Number of vectors, in the order of constraints, before the mean squared length is frozen.
MEASURED: Final = 512
#: Un-learned metrics, all with distances of about 1.4 between unrelated vectors: Euclidean distance over the root mean
#: squared length; that of directions; and that of directions of (x, c).
ANCHORS: Final = ("euclidean", "cosine", "lifted")
_CHUNK: Final = 256


class Lift:
    """Appends a constant c to every vector, so that a network that only sees directions can distinguish lengths.

    c^2 is `kappa` times the mean squared length of the vectors so far, up to the first 512.

    Parameters
    ----------
    kappa : 0 for no such entry.
    """

    def __init__(self, kappa: float) -> None:
        self.kappa = kappa
        self._count = 0
        self._sum = 0.0

    @property
    def missing(self) -> int:
        """Number of vectors until the mean is final."""
        return max(MEASURED - self._count, 0)

    @property
    def mean(self) -> float:
        """Mean squared length; 1 before the first vector, or if all are zero."""
        return self._sum / self._count if self._count and self._sum > 0.0 else 1.0

    def observe(self, squares: Vector) -> Vector:
        """Include the squared lengths (m, k) of the vectors of m constraints; returns the mean (m,) after each."""
        flat = np.concatenate([[self._sum], squares.ravel()])
        # One sum after the other, so that block boundaries have no effect.
        sums = np.cumsum(flat)[1:].reshape(squares.shape)
        counts = self._count + np.arange(1, squares.size + 1).reshape(squares.shape)
        self._count, self._sum = int(counts[-1, -1]), float(sums[-1, -1])
        means = sums[:, -1] / counts[:, -1]
        return np.where(sums[:, -1] > 0.0, means, 1.0)

    def with_more(self, sums: Vector, counts: Vector) -> Vector:
        """The mean (m,) with more sums and counts of squared lengths; this object does not change."""
        total = self._sum + sums
        return np.where(total > 0.0, total / (self._count + counts), 1.0)

    def apply(self, X: Rows, mean: float | Vector) -> Rows:
        """(n, d) scaled vectors as inputs (n, d + 1), or unchanged without lift."""
        if self.kappa == 0.0:
            return X
        constant = np.broadcast_to(np.sqrt(self.kappa * np.asarray(mean)), len(X))
        return np.concatenate([X, constant[:, None].astype(X.dtype)], axis=1)

    def state(self) -> State:
        """Factor, and count and sum of squared lengths."""
        return {"lift": self.kappa, "lift_count": self._count, "lift_sum": self._sum}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._count, self._sum = int(state["lift_count"]), float(state["lift_sum"])


def anchored(name: str, X: Rows, mean: float | Vector, lift: Lift) -> Rows:
    """Vectors (n, d) whose Euclidean distance is that of an un-learned metric, one of `ANCHORS`."""
    if name == "euclidean":
        return np.asarray(X / np.sqrt(np.broadcast_to(mean, len(X)))[:, None].astype(X.dtype))
    inputs = lift.apply(X, mean) if name == "lifted" else X
    wide = inputs.astype(np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    return np.asarray(wide / np.where(length > 0.0, length, 1.0), X.dtype)


def margins(names: tuple[str, ...], X: Rows, index: Index, means: Vector, lift: Lift) -> Vector:
    """D(x, x+) - D(x, x-) (m,), the mean of that over several un-learned metrics; zeros without any.

    Parameters
    ----------
    X : (n, d) scaled vectors.
    index : (m, 3).
    means : (m,) mean squared length by triplet.
    """
    found = np.zeros(len(index))
    for name in names:
        for start in range(0, len(index), _CHUNK):
            rows = slice(start, start + _CHUNK)
            x, y, z = (anchored(name, X[index[rows, s]], means[rows], lift) for s in range(3))
            near, far = (x - y).astype(np.float64), (x - z).astype(np.float64)
            gaps = [np.sqrt(np.einsum("ij,ij->i", gap, gap)) for gap in (near, far)]
            found[rows] += (gaps[0] - gaps[1]) / len(names)
    return found
