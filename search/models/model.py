"""One version of a learned metric. It never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner
from kinstream.streams.records.values import ModelVersion

Rows = NDArray[np.floating[Any]]
#: Raw features (n, d) of one modality, or of several by name.
Features = Rows | Mapping[str, Rows]


class Name(NamedTuple):
    """The order of the versions of one space and learner: the greater one is newer."""

    generation: int
    epoch: int
    step: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.epoch}.{self.step}"


#: The name of the un-learned map before any model; below every other name.
UNLEARNED: Final = Name(0, -1, 0)


def name_of(version: ModelVersion) -> Name:
    """The name of an announced version."""
    return Name(version.generation, version.epoch, version.step)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A version of a metric. `transform` and `distance` are thread-safe.

    Before the first model, and in a space that was deleted or reset, nothing is learned and the un-learned map serves:
    raw features unchanged, of any dimension, and squared Euclidean distance.

    Parameters
    ----------
    version : the origin of the model; None before the first one.
    learner : the learner; None for the un-learned map. It must not be changed: it is shared.
    """

    version: ModelVersion | None = None
    learner: Learner | None = None

    @property
    def name(self) -> Name:
        """(generation, epoch, step), also of the un-learned map of an epoch without learning."""
        return UNLEARNED if self.version is None else name_of(self.version)

    @property
    def learned(self) -> bool:
        """Whether this is a learned map."""
        return self.learner is not None

    @property
    def modalities(self) -> tuple[tuple[str, int], ...]:
        """Name and number of features of each, of a learner of several modalities; otherwise empty."""
        return tuple(getattr(self.learner, "modalities", ()))

    @property
    def dimension(self) -> int | None:
        """Number of features that `transform` takes, of all modalities together; None if it takes any."""
        if self.modalities:
            return sum(size for _, size in self.modalities)
        found: int | None = getattr(self.learner, "dimension", None)
        return found

    def transform(self, X: Features) -> Rows:
        """Map raw features so that squared Euclidean distance is the learned one.

        Parameters
        ----------
        X : (n, d); or modality -> (n, d) for a learner of several. The un-learned map accepts either, and puts
            modalities side by side in the order of their names.

        Returns
        -------
        (n, k)

        Raises
        ------
        ValueError
            X has another shape, or other modalities.
        """
        return raw(X) if self.learner is None else self.learner.transform(X)  # type: ignore[arg-type]

    def distance(self, X: Features, Y: Features) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, both as `transform` takes them."""
        if self.learner is not None:
            return self.learner.distance(X, Y)  # type: ignore[arg-type]
        left, right = raw(X), raw(Y)
        if left.shape != right.shape:
            raise ValueError(f"expected two tables of the same shape, got {left.shape} and {right.shape}")
        moved = left - right
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    def __repr__(self) -> str:
        if self.version is None:
            return "Model(un-learned)"
        kind = self.version.algorithm if self.learned else "un-learned"
        return f"Model({self.version.space}/{self.version.learner} {self.name}, {kind})"


def raw(X: Features) -> Rows:
    """The un-learned map: a copy of the features (n, d); of several modalities all of them, by name.

    Raises
    ------
    ValueError
        A table is not (n, d), or they differ in their number of rows.
    """
    tables = [np.asarray(X[name]) for name in sorted(X)] if isinstance(X, Mapping) else [np.asarray(X)]
    shapes = [table.shape for table in tables]
    if not tables or any(len(shape) != 2 for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
        raise ValueError(f"expected features of shape (n, d), got {shapes}")
    dtype = np.result_type(*tables, np.float32) if tables else np.dtype(np.float64)
    return np.concatenate(tables, axis=1, dtype=dtype)
