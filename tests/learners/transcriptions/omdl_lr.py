"""OMDL-LR-like: OMDML on kernel embeddings, with a graph regulariser."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.learners.transcriptions.omdml import OMDML
from tests.learners.transcriptions.parts import Matrix, Report, Vector, psd


def squared_distances(X: Matrix, Y: Matrix) -> Matrix:
    """Of all rows."""
    return np.asarray(((X[:, None] - Y[None]) ** 2).sum(axis=2))


class Nystroem:
    """Embedding of a Gaussian kernel by its r leading directions on landmarks (m, d).

    exp(-|p - q|^2 / (2 h^2)) with h the mean distance between distinct landmarks.
    """

    def __init__(self, landmarks: Matrix, rank: int) -> None:
        squared = squared_distances(landmarks, landmarks)
        off = ~np.eye(len(landmarks), dtype=bool)
        self.landmarks = landmarks
        self.bandwidth = float(np.sqrt(squared[off]).mean())
        e, V = np.linalg.eigh(np.exp(-squared / (2.0 * self.bandwidth**2)))
        keep = np.argsort(e)[::-1][:rank]
        self.projection = V[:, keep] / np.sqrt(e[keep])

    def __call__(self, X: Matrix) -> Matrix:
        kernel = np.exp(-squared_distances(X, self.landmarks) / (2.0 * self.bandwidth**2))
        return np.asarray(kernel @ self.projection)


def laplacian(X: Matrix, neighbours: int) -> Matrix:
    """D - W of the symmetric graph that joins each row to its nearest others."""
    squared = squared_distances(X, X)
    np.fill_diagonal(squared, np.inf)
    W = np.zeros_like(squared)
    for i, row in enumerate(squared):
        W[i, np.argsort(row, kind="stable")[:neighbours]] = 1.0
    W = np.maximum(W, W.T)
    return np.asarray(np.diag(W.sum(axis=1)) - W)


class OMDLLRLike:
    """OMDML on e_i(x), then M_i <- psd(M_i - eta C2 E_i Lap_i E_i') in every step that opens the gate and has
    a direction."""

    def __init__(
        self,
        landmarks: Mapping[str, Matrix],
        pool: Mapping[str, Matrix],
        rank: int,
        neighbours: int,
        beta: float,
        c1: float,
        c2: float,
        eta: float,
        margin: float,
    ) -> None:
        self.embeddings = {name: Nystroem(rows, rank) for name, rows in landmarks.items()}
        #: eta C2 E_i Lap_i E_i', (r, r).
        self.smoothing = {
            name: eta * c2 * (E := self.embeddings[name](rows)).T @ laplacian(rows, neighbours) @ E
            for name, rows in pool.items()
        }
        dimensions = {name: e.projection.shape[1] for name, e in self.embeddings.items()}
        self.learner = OMDML(dimensions, beta, c1, margin)

    def triplet(
        self, x: Mapping[str, Vector], positive: Mapping[str, Vector], negative: Mapping[str, Vector]
    ) -> Report:
        """One step."""
        found = self.learner.triplet(*(self._embedded(v) for v in (x, positive, negative)))
        if found["loss"] == 0.0 or found["degenerate"]:
            return found
        for name, G in self.smoothing.items():
            self.learner.matrices[name] = psd(self.learner.matrices[name] - G)
        return found

    def distance(self, u: Mapping[str, Vector], v: Mapping[str, Vector]) -> float:
        """Fused squared distance."""
        p, q = self._embedded(u), self._embedded(v)
        own = [self.learner.squared(name, p[name] - q[name]) for name in self.embeddings]
        return float(self.learner.theta @ np.array(own))

    def _embedded(self, vectors: Mapping[str, Vector]) -> dict[str, Vector]:
        return {name: e(vectors[name][None])[0] for name, e in self.embeddings.items()}
