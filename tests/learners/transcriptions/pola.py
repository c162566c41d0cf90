"""POLA: two orthogonal projections (Shalev-Shwartz et al. 2004)."""

from __future__ import annotations

import numpy as np

from tests.learners.transcriptions.parts import (
    Matrix,
    PairTranscription,
    Report,
    Vector,
    apart,
    difference,
    nearest,
    psd,
    report,
    zero_difference,
)


class POLA(PairTranscription):
    """State A (d, d), b >= 1. `cap` bounds alpha, as in passive-aggressive learning I; None for the hard version."""

    NAMES = ("A", "b")

    def __init__(self, d: int, cap: float | None = None) -> None:
        super().__init__()
        self.A: Matrix = np.zeros((d, d))
        self.b = 1.0
        self.cap = cap

    def distance(self, u: Vector, v: Vector) -> float:
        z = difference(u, v)
        return float(z @ self.A @ z)

    def pair(
        self, u: Vector, v: Vector, sign: int, target: float | None = None, threshold: float | None = None
    ) -> Report:
        z = difference(u, v)
        yhat, b = self.distance(u, v), self.b
        loss = max(0.0, sign * (yhat - b) + 1.0)
        found = report(
            yhat > b if sign > 0 else yhat <= b,
            loss,
            abs(yhat) + b + 1.0,
            nearest(self.beside(yhat, b, z), self.beside(yhat, b - sign, z)),
        )
        found["degenerate"] = zero_difference(u, v)
        if loss <= 0.0 or found["degenerate"]:
            return found
        zz = float(z @ z)
        alpha = loss / (zz**2 + 1.0)
        if self.cap is not None:
            found["clipped"] = alpha > self.cap
            found["edge"] = nearest(found["edge"], apart(alpha, self.cap))
            alpha = min(self.cap, alpha)
        found["utilised"] = True

        def step() -> None:
            A = self.A - sign * alpha * np.outer(z, z)
            self.reached("A", self.A, A)
            self.A = psd(A) if sign > 0 else A
            self.reached("b", b + sign * alpha)
            self.b = max(1.0, b + sign * alpha)

        return self.committed(found, step)
