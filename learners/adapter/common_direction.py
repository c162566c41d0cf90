"""The direction that all vectors of an encoder have in common, which says nothing of any."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]

#: Mean cosine of remembered items from which the direction that all vectors have in common is taken out. Encoders
#: differ: that of all-MiniLM-L6-v2 is below .2, and others put all texts within .5 to .9.
COMMON: Final = 0.25
#: Items in memory from which that is told, and the least share that differs.
TOLD: Final = 64
DIFFERS: Final = 0.01


def common_direction(H: Matrix, squares: float) -> tuple[float, Matrix | None]:
    """The mean cosine of two of some items (n, d), and the direction (d,) they have in common; 0 and None for none.

    Parameters
    ----------
    squares : mean squared length of the items.
    """
    n, mean = len(H), H.mean(axis=0)
    square = float(mean @ mean)
    # Without what each item has in common with itself.
    cosine = (n * square / squares - 1.0) / (n - 1.0)
    if n < TOLD or not COMMON < cosine < np.inf:
        return 0.0, None
    return min(cosine, 1.0 - DIFFERS), mean / mean.dtype.type(np.sqrt(square))
