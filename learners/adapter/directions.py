"""Vectors divided by their lengths in float32, which are most of what the adapter takes in."""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.learners.base.learner import Rows
from kinstream.learners.base.scaler import UnitLength

#: Squared lengths up to which float32 has too few digits for them.
_SMALL: Final = 1e-30


class Directions(UnitLength):
    """Vectors divided by their lengths, in float32 where their squares are numbers of it."""

    def apply(self, X: Rows) -> Rows:
        if X.dtype != np.float32:
            return super().apply(X)
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", X, X)
            found = X / np.sqrt(squares)[:, None]
        odd = ~((squares > _SMALL) & (squares < np.inf))
        if odd.any():
            found[odd] = super().apply(X[odd])
        return np.asarray(found)
