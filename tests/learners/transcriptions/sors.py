"""SORS and AdaSORS, dense (Yao et al. 2015)."""

from __future__ import annotations

import numpy as np

from tests.learners.transcriptions.oasis import judged
from tests.learners.transcriptions.parts import (
    Matrix,
    Report,
    TripletTranscription,
    Vector,
    difference,
    soft,
    zero_difference,
    zero_vector,
)


class SORS(TripletTranscription):
    """State W (d, d). Every accepted constraint shrinks the entries off the diagonal."""

    NAMES = ("W",)

    def __init__(self, d: int, eta: float, sparsity: float) -> None:
        super().__init__()
        self.W: Matrix = np.eye(d)
        self.eta = eta
        self.sparsity = sparsity

    def triplet(self, x: Vector, positive: Vector, negative: Vector) -> Report:
        v = difference(positive, negative)
        found = judged(float(x @ self.W @ v), float(abs(x) @ abs(self.W) @ abs(v)))
        found["degenerate"] = zero_vector(x) or zero_difference(positive, negative)
        found["utilised"] = found["loss"] > 0.0 and not found["degenerate"]
        gradient = -np.outer(x, v) if found["utilised"] else np.zeros_like(self.W)

        def step() -> None:
            self._descend(gradient)

        return self.committed(found, step)

    def _descend(self, gradient: Matrix) -> None:
        self._shrunk(self.W - self.eta * gradient, self.eta * self.sparsity)

    def _shrunk(self, W: Matrix, threshold: Matrix | float) -> None:
        self.reached("W", W)
        self.W = np.where(np.eye(len(W), dtype=bool), W, soft(W, threshold))


class AdaSORS(SORS):
    """State W (d, d) and the root H (d, d) of the sums of squared gradients."""

    HIDDEN = ("H",)

    def __init__(self, d: int, eta: float, sparsity: float, delta: float = 1e-6) -> None:
        super().__init__(d, eta, sparsity)
        self.H: Matrix = np.zeros((d, d))
        self.delta = delta

    def _descend(self, gradient: Matrix) -> None:
        self.H = np.sqrt(self.H**2 + gradient**2)
        S = self.delta + self.H
        self._shrunk(self.W - self.eta * gradient / S, self.eta * self.sparsity / S)
