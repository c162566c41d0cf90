"""The labelled rows of a crash run: five spaces of different sizes, dimensions and label types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Name, share of the rows, dimension, classes, rows of the first class alone at the beginning. By murmur2, the five
#: lie on all of three partitions.
SPACES = (
    ("markets", 0.38, 8, 12, 5),
    ("faces", 0.25, 32, 40, 0),
    ("shop", 0.18, 64, 10, 1),
    ("toys", 0.12, 5, 3, 90),
    ("wines", 0.07, 13, 6, 200),
)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of one space, in the order in which they are sent.

    Parameters
    ----------
    vectors : (n, d) float32, all different.
    labels : (n,) int64 or strings.
    """

    space: str
    vectors: NDArray[np.float32]
    labels: NDArray[np.int64] | NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.labels)

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.space}.npz"
        np.savez(path, X=self.vectors, y=self.labels)
        return path


def make(total: int, seed: int) -> list[Rows]:
    """Rows of all spaces, about `total`: a class may appear late, and some spaces begin with one class alone."""
    return [
        _space(np.random.default_rng([seed, number]), name, int(total * share), d, classes, alone)
        for number, (name, share, d, classes, alone) in enumerate(SPACES)
    ]


def _space(rng: np.random.Generator, name: str, rows: int, d: int, classes: int, alone: int) -> Rows:
    # The later a row, the more classes it may come from.
    known = 2 + np.arange(rows) * (classes - 2) // max(1, rows // 2)
    numbers = rng.integers(0, np.minimum(known, classes))
    numbers[:alone] = 0
    # Classes overlap, and distances are alike in every dimension: all models learn, and none runs away.
    centres = 0.5 * rng.normal(size=(classes, d))
    points = (centres[numbers] + 0.7 * rng.normal(size=(rows, d))) * 2.0 / np.sqrt(d)
    vectors = points.astype(np.float32)
    labels = numbers.astype(np.int64) * 7 - 3 if d % 2 else np.array([f"class {n}" for n in numbers])
    return Rows(name, vectors, labels)
