"""Equal vectors, which must have equal images to the last bit.

A matrix product may sum a row in another order at another place: how many rows are left over for the last tile decides,
and the BLAS. Rounding would then tell equal vectors apart, and a rule that divides by their distance would learn it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def first_equal(X: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """For each row of X (n, d) the place (n,) of the first row that is equal to it; 0 and -0 are equal.

    >>> first_equal(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]])).tolist()
    [0, 1, 0]
    """
    places: dict[bytes, int] = {}
    rows = X + X.dtype.type(0)
    return np.array([places.setdefault(row.tobytes(), n) for n, row in enumerate(rows)], np.intp)
