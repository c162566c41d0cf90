"""The latest constraints of a stream, for models that are fitted again at intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, State
from kinstream.learners.base.one_modality import Batch
from kinstream.streams.errors import SettingsError


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The input of a fit.

    Parameters
    ----------
    X : (n, d) float64, the distinct vectors in the order in which constraints name them.
    index : (m, 2) rows of X. A triplet is (x, x+) and (x, x-).
    signs : (m,) int8, +1 similar and -1 dissimilar.
    """

    X: NDArray[np.float64]
    index: NDArray[np.intp]
    signs: NDArray[np.int8]


class ConstraintWindow:
    """A ring of constraints: pairs, triplets, or both.

    Parameters
    ----------
    size : constraints to keep.
    d : number of features.
    dtype : type of the vectors kept.
    """

    def __init__(self, size: int, d: int, dtype: str) -> None:
        self.size = size
        # Two vectors a constraint until the first triplet comes.
        self._vectors = np.zeros((size, 2, d), dtype)
        self._signs = np.zeros(size, np.int8)
        self._put = 0

    def __len__(self) -> int:
        return min(self._put, self.size)

    def add(self, batch: Batch, outcomes: Outcomes, rows: slice) -> None:
        """Keep the rows that were not rejected and have a direction to learn from.

        Parameters
        ----------
        outcomes : of the batch. With pairs of triplets, the first of two rows stands for both.
        rows : whole triplets.
        """
        index, signs = batch.index[rows], batch.signs[rows]
        good = ~(outcomes.rejected[rows] | outcomes.degenerate[rows])
        if batch.group == 2:
            index = np.column_stack([index[::2], index[1::2, 1]])
            good = good[::2]
            signs = np.zeros(len(index), np.int8)
            self._widen()
        kept = np.flatnonzero(good)
        self._put += len(kept)
        kept = kept[-self.size :]
        places = np.arange(self._put - len(kept), self._put) % self.size
        width = index.shape[1]
        # Adding zero makes -0 and 0 one value.
        self._vectors[places, :width] = batch.X[index[kept]] + batch.X.dtype.type(0)
        self._vectors[places, width:] = 0
        self._signs[places] = signs[kept]

    def pairs(self) -> Pairs:
        """The constraints as pairs of distinct vectors, oldest first."""
        vectors, signs = self._in_order()
        used = np.ones(vectors.shape[:2], np.bool_)
        used[signs != 0, 2:] = False
        number: dict[bytes, int] = {}
        rows = vectors[used]
        numbers = np.zeros(used.shape, np.intp)
        numbers[used] = [number.setdefault(row.tobytes(), len(number)) for row in rows]
        first = np.unique(numbers[used], return_index=True)[1]
        as_pairs = np.stack([numbers[:, [0, 1]], numbers[:, [0, -1]]], axis=1)
        both = np.stack([np.where(signs == 0, 1, signs), np.full(len(signs), -1)], axis=1)
        real = np.stack([np.ones(len(signs), np.bool_), signs == 0], axis=1)
        return Pairs(rows[first].astype(np.float64), as_pairs[real], both[real].astype(np.int8))

    def state(self) -> State:
        """The constraints, oldest first; a sign of 0 is a triplet's."""
        vectors, signs = self._in_order()
        return {"vectors": vectors, "signs": signs}

    def restore(self, state: State) -> None:
        """Continue from `state()`.

        Raises
        ------
        SettingsError
            The vectors are of another type, or more than this window keeps.
        """
        vectors, signs = np.asarray(state["vectors"]), np.asarray(state["signs"])
        if vectors.dtype != self._vectors.dtype or len(vectors) > self.size:
            raise SettingsError(
                f"the state to restore holds {len(vectors)} constraints of type {vectors.dtype}, "
                f"and this learner keeps {self.size} of type {self._vectors.dtype}"
            )
        if vectors.shape[1] == 3:
            self._widen()
        self._put = len(vectors)
        self._vectors[: self._put] = vectors
        self._signs[: self._put] = signs

    def _widen(self) -> None:
        size, width, d = self._vectors.shape
        if width == 2:
            two = self._vectors
            self._vectors = np.zeros((size, 3, d), two.dtype)
            self._vectors[: len(self), :2] = two[: len(self)]

    def _in_order(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.int8]]:
        """Copies, oldest first."""
        places = np.arange(self._put - len(self), self._put) % self.size
        return self._vectors[places], self._signs[places]
