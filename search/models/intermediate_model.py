"""A model between two announced ones: the map of a learner, moved by its update records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.one_modality import SingleModal
from kinstream.search.models.model import UNLEARNED, Features, Model, Name, Rows

Matrix = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class SteppedModel(Model):
    """The announced model that it began with, and its current map (k, d) of scaled features.

    Its scaler is the announced model's: updates are published after the scaler is fixed.
    """

    at: Name = UNLEARNED
    map: Matrix | None = None

    @property
    def name(self) -> Name:
        return self.at

    @property
    def base(self) -> SingleModal:
        """The announced learner."""
        return cast(SingleModal, self.learner)

    def transform(self, X: Features) -> Rows:
        assert self.map is not None
        return np.asarray(self.base.scale(cast(Rows, X)) @ self.map.T)

    def distance(self, X: Features, Y: Features) -> Rows:
        moved = self.transform(X) - self.transform(Y)
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    def raw_map(self) -> tuple[Matrix, Matrix]:
        """Matrix (k, d) and offset (k,) for raw features; for vectors of length 1 if that is the scaler."""
        assert self.map is not None
        scaling = self.base.affine()
        if scaling is None:
            return self.map, np.zeros(len(self.map))
        shift, factor = scaling
        folded = self.map.astype(np.float64) * factor
        return folded, -(folded @ shift)

    def raw_step(self, V: Matrix) -> Matrix:
        """The factor V (r, d) of a step of the map, for raw features: (r, d + 1), the last column moves the offset."""
        scaling = self.base.affine()
        if scaling is None:
            return np.column_stack([V, np.zeros(len(V))])
        shift, factor = scaling
        folded = V.astype(np.float64) * factor
        return np.column_stack([folded, -(folded @ shift)])
