"""The latest positive pairs, by whose distances the metrics of OAHU are weighed where distances are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.base.one_modality import Index

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

#: Pairs that are kept: the first ones, then that of every so many triplets.
PAIRS: Final = 64
EVERY: Final = 16
#: Mean squared distances of pairs below this count as this: unit vectors in float32 are no closer than rounding.
_LEAST: Final = 1e-6


class Positives:
    """The last `PAIRS` of some positive pairs (x, x+), as scaled vectors.

    A metric that tells classes apart puts such pairs close together, one that was not learned does not, and both have
    distances of about 1.4 between unrelated vectors. Squared distances over the root mean square of these pairs'
    follow the metrics that tell more, as a vote does whose metrics each count their own nearest rows. Over the mean
    square itself, small sets (glass, breast) err more.

    Parameters
    ----------
    d : number of features.
    """

    def __init__(self, d: int, dtype: str) -> None:
        self._rows: Rows = np.zeros((PAIRS, 2, d), dtype)
        self._count = 0

    def observe(self, X: Rows, index: Index, usable: NDArray[np.bool_], taken: int) -> None:
        """Keep pairs of a batch.

        Parameters
        ----------
        X : (n, d) scaled vectors.
        index : (m, 3) triplets (x, x+, x-) of its rows.
        usable : (m,) which of them are learned.
        taken : number of triplets that were learned before.
        """
        learned = np.flatnonzero(usable)
        number = taken + np.arange(len(learned))
        for row in learned[(number < PAIRS) | (number % EVERY == 0)].tolist():
            self._rows[self._count % PAIRS] = X[index[row, :2]]
            self._count += 1

    def rescale(self, ratio: Vector) -> None:
        """Follow a scaler whose vectors are divided by `ratio` (d,) from now on."""
        self._rows = np.asarray(self._rows / ratio, self._rows.dtype)

    @property
    def pairs(self) -> tuple[Rows, Rows] | None:
        """Both sides (n, d); None while there are too few."""
        return (self._rows[:, 0], self._rows[:, 1]) if self._count >= PAIRS else None

    def state(self) -> State:
        """The pairs, in the order of their places, and how many there were."""
        return {"positives": self._rows.copy(), "positives_count": self._count}

    def restore(self, state: State) -> None:
        """Continue from `state()`; a state without pairs, as older versions wrote it, begins without any."""
        if "positives" not in state:
            return
        rows = np.asarray(state["positives"])
        if rows.shape != self._rows.shape:
            raise ValueError(f"positives should be {self._rows.shape}, the state holds {rows.shape}")
        self._rows, self._count = rows.astype(self._rows.dtype), int(state["positives_count"])


def spread(left: Sequence[Rows], right: Sequence[Rows]) -> Vector:
    """The root mean square distance (E,) of pairs (n, m_e) under each of E metrics."""
    gaps = [(one - other).astype(np.float64) for one, other in zip(left, right, strict=True)]
    return np.sqrt([max(float(np.einsum("ij,ij->i", gap, gap).mean()), _LEAST) for gap in gaps])
