"""RDML, with the eigenvector-free step and with the exact projection (Jin et al. 2009)."""

from __future__ import annotations

import numpy as np

from tests.learners.transcriptions.parts import (
    EPS,
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

#: Eigenvalues relative to the largest below `OUTSIDE` are zero; between it and `INSIDE` a conjugate gradient method
#: and an eigendecomposition may disagree on what the range of A is.
OUTSIDE, INSIDE = 1e-13, 1e-6


class RDML(PairTranscription):
    """State A (d, d), positive semi-definite; it changes on mistakes only."""

    NAMES = ("A",)

    def __init__(self, d: int, learning_rate: float, psd: str = "paper", start: str = "zero") -> None:
        super().__init__()
        self.A: Matrix = np.eye(d) if start == "identity" else np.zeros((d, d))
        self.learning_rate = learning_rate
        self.psd = psd

    def distance(self, u: Vector, v: Vector) -> float:
        z = difference(u, v)
        return float(z @ self.A @ z)

    def pair(
        self, u: Vector, v: Vector, sign: int, target: float | None = None, threshold: float | None = None
    ) -> Report:
        z = difference(u, v)
        yhat = self.distance(u, v)
        mistake = sign * (1.0 - yhat) <= 0.0
        found = report(mistake, max(0.0, -sign * (1.0 - yhat)), 1.0 + yhat, self.beside(yhat, 1.0, z))
        found["degenerate"] = zero_difference(u, v)
        if not mistake or found["degenerate"]:
            return found
        rate = self.learning_rate
        if sign > 0 and self.psd == "paper":
            boundary, clear = self.boundary(z)
            found["edge"] = nearest(found["edge"], apart(rate, boundary), 1.0 if clear else EPS)
            found["clipped"] = boundary < rate
            rate = min(rate, boundary)
        if rate == 0.0:
            return found
        found["utilised"] = True

        def step() -> None:
            A = self.A - rate * sign * np.outer(z, z)
            self.reached("A", self.A, A)
            self.A = psd(A) if self.psd == "exact" else A

        return self.committed(found, step)

    def boundary(self, z: Vector) -> tuple[float, bool]:
        """Largest step along -z z' that keeps A positive semi-definite, and whether it is beyond numerical doubt.

        1 / (z' A^+ z) for z in the range of A, otherwise 0.
        """
        e, V = np.linalg.eigh(self.A)
        top = float(e[-1])
        if top <= 0.0:
            return 0.0, True
        parts = (V.T @ z) ** 2
        inside = e > OUTSIDE * top
        doubtful = inside & (e < INSIDE * top)
        outside = float(parts[~inside].sum())
        in_range = outside <= 1e-16 * float(z @ z)
        clear = not doubtful.any() and (outside <= 1e-24 * float(z @ z) or outside >= 1e-6 * float(z @ z))
        return (1.0 / float((parts[inside] / e[inside]).sum()) if in_range else 0.0), clear
