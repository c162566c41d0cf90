"""Images of raw vectors under a model, for an index: equal vectors have equal images, near ones stay distinct.

The learned distance is a function of differences, so images of vectors far from the origin are taken about a centre,
before float32 rounds them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.models.export import linear_map
from kinstream.search.index.exact import Mapped
from kinstream.search.index.items import Modalities, features
from kinstream.search.index.scan_kernels import products
from kinstream.search.models.intermediate_model import SteppedModel
from kinstream.search.models.model import Model
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.records.values import Vectors

Matrix = NDArray[np.floating[Any]]

#: Number of rows that a linear map takes at a time.
CHUNK: Final = 4096
#: Number of rows that any other model takes at a time, with the last table filled up: the last bits of a row's image
#: can depend on how many other rows there are.
_TABLE: Final = 32


class Mapping:
    """Images of raw rows under one model, about one centre.

    Parameters
    ----------
    centre : (D,) raw features near the items: the centre's image is subtracted from theirs.
    """

    def __init__(self, model: Model, modalities: Modalities, centre: Vectors) -> None:
        self._model, self._modalities = model, modalities
        self._centre = centre.astype(np.float64).reshape(1, -1)
        self._matrix: NDArray[np.float64] | None = None
        self._unit = False
        if model.learner is None:
            return
        try:
            matrix, _, self._unit = linear(model, centre.size)
        except (SettingsError, CheckpointError):
            self._moved = self._image(self._centre.astype(np.float32))
            return
        self._matrix = np.ascontiguousarray(matrix, np.float64)
        self._lengths = np.linalg.norm(self._matrix, axis=1)
        if self._unit:
            self._centre = divided(self._centre)

    @property
    def width(self) -> int:
        """Length of an image."""
        return int(self(self._centre.astype(np.float32)).shape[1])

    def __call__(self, rows: Vectors) -> Mapped:
        """Images (n, k) float32 of raw rows (n, D): a function of each row alone. The un-learned map returns them
        unchanged."""
        if self._model.learner is None:
            return np.array(rows, np.float32, order="C")
        parts = []
        with np.errstate(over="ignore", invalid="ignore"):
            if self._matrix is None:
                parts = [
                    (self._image(rows[at : at + _TABLE]) - self._moved).astype(np.float32)
                    for at in range(0, len(rows), _TABLE)
                ]
                parts = parts or [np.zeros((0, self._moved.shape[1]), np.float32)]
            else:
                parts = [self._linear(rows[at : at + CHUNK]) for at in range(0, max(1, len(rows)), CHUNK)]
        return np.ascontiguousarray(np.concatenate(parts) if len(parts) > 1 else parts[0])

    def _linear(self, rows: Vectors) -> Mapped:
        """Products in float64, rounded to float32.

        The order of summation depends on the number of rows. If it could change the rounded result, the sum is computed
        again in a fixed order.
        """
        assert self._matrix is not None
        wide = rows.astype(np.float64)
        moved = (divided(wide) if self._unit else wide) - self._centre
        found = moved @ self._matrix.T
        off = (moved.shape[1] + 4) * 2.0**-52 * np.linalg.norm(moved, axis=1)[:, None] * self._lengths
        image = (found - off).astype(np.float32)
        row, column = np.nonzero(image != (found + off).astype(np.float32))
        if len(row):
            again = np.empty(len(row))
            products(np.ascontiguousarray(moved), self._matrix, row, column, again)
            image[row, column] = again
        return np.asarray(image, np.float32)

    def _image(self, rows: Vectors) -> NDArray[np.float64]:
        full = np.zeros((_TABLE, rows.shape[1]), np.float32)
        full[: len(rows)] = rows
        image = self._model.transform(features(full, self._modalities))
        return np.asarray(image, np.float64)[: len(rows)]


def divided(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows (n, d) divided by their length; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def middle(rows: Vectors) -> Vectors:
    """A centre (D,) for items, from their first rows (n, D)."""
    return np.median(rows, axis=0).astype(np.float32)


def linear(model: Model, dimension: int) -> tuple[Matrix, Matrix, bool]:
    """Matrix and offset of a model, and whether vectors have to be divided by their length before.

    Raises
    ------
    SettingsError : the model is not a linear map.
    CheckpointError : it has no dimension yet.
    """
    if model.learner is None:
        return np.eye(dimension), np.zeros(dimension), False
    if isinstance(model, SteppedModel):
        return *model.raw_map(), model.base.scaler == "unit"
    matrix, offset, scaler = linear_map(model.learner)
    return matrix, offset, scaler == "unit"
