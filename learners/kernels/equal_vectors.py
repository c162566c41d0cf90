"""Equal vectors of a triplet, whose images must be equal to the last bit.

The order of a sum in a matrix product can depend on the row's place, through the number of rows in the last tile and
the BLAS. Rounding would then separate equal vectors, and a rule that divides by their distance would learn it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

#: Squared relative length, and squared length, below which a difference of vectors counts as zero.
NO_DIFFERENCE: Final = 1e-24
TINY: Final = 1e-300


@compiled
def first_equal(X: NDArray[np.floating[Any]], index: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each place of triplets (n, 3) of rows of X (m, d), the triplet's first place with an equal vector, (n, 3).

    >>> X = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]])
    >>> first_equal(X, np.array([[0, 1, 2], [1, 1, 0]], np.int32)).tolist()
    [[0, 1, 0], [0, 0, 2]]
    """
    found = np.empty((len(index), 3), np.int64)
    for t in range(len(index)):
        for place in range(3):
            found[t, place] = place
            for before in range(place):
                if found[t, before] == before and _equal(X, index[t, before], index[t, place]):
                    found[t, place] = before
                    break
    return found


@compiled
def _equal(X: NDArray[np.floating[Any]], row: int, other: int) -> bool:
    if row != other:
        for j in range(X.shape[1]):
            if X[row, j] != X[other, j]:
                return False
    return True
