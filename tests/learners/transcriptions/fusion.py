"""Fusion of a learner of one modality over several (Wu et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.learners.transcriptions.parts import PairTranscription, Report, Vector

Vectors = Mapping[str, Vector]


class Concatenated:
    """Q-C: one learner of all modalities side by side."""

    def __init__(self, dimensions: Mapping[str, int], make: Callable[[int], Any]) -> None:
        self.names = tuple(dimensions)
        self.learner: Any = make(sum(dimensions.values()))

    def triplet(self, x: Vectors, positive: Vectors, negative: Vectors) -> Report:
        """One step."""
        found: Report = self.learner.triplet(*(self._joined(v) for v in (x, positive, negative)))
        return found

    def distance(self, u: Vectors, v: Vectors) -> float:
        """Learned squared distance of all modalities together."""
        return float(self.learner.distance(self._joined(u), self._joined(v)))

    def _joined(self, vectors: Vectors) -> Vector:
        return np.concatenate([vectors[name] for name in self.names])


class Uniform:
    """Q-U: a learner for each modality, each with its own steps; distances (similarities) are added."""

    def __init__(self, dimensions: Mapping[str, int], make: Callable[[int], Any]) -> None:
        self.learners: dict[str, Any] = {name: make(d) for name, d in dimensions.items()}

    def triplet(self, x: Vectors, positive: Vectors, negative: Vectors) -> dict[str, Report]:
        """One step of each; reports by modality."""
        return {
            name: learner.triplet(x[name], positive[name], negative[name])
            for name, learner in self.learners.items()
        }

    def distance(self, u: Vectors, v: Vectors) -> float:
        """Sum of the learned squared distances."""
        return float(sum(learner.distance(u[name], v[name]) for name, learner in self.learners.items()))

    def mistake(self, x: Vectors, positive: Vectors, negative: Vectors) -> bool:
        """Whether the sum ranks a triplet wrongly."""
        return self.distance(x, positive) >= self.distance(x, negative)


class Euclidean(PairTranscription):
    """Learns nothing."""

    def __init__(self, d: int) -> None:
        self.d = d

    def distance(self, u: Vector, v: Vector) -> float:
        return float((u - v) @ (u - v))
