"""LEGO (Jain et al. 2008), in its explicit form and in its kernel form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.learners.transcriptions.parts import (
    Matrix,
    PairTranscription,
    Report,
    Vector,
    apart,
    difference,
    nearest,
    report,
    zero_difference,
)


def judged(yhat: float, sign: int, target: float, threshold: float | None, loss: str) -> tuple[Report, bool]:
    """Report by the state before the step, and whether the loss is active."""
    gap = sign * (yhat - target)
    active = gap > 0.0 if loss == "hinge" else yhat != target
    mistake: bool | None = None
    edges = [apart(yhat, target)]
    if threshold is not None and np.isfinite(threshold):
        mistake = yhat > threshold if sign > 0 else yhat <= threshold
        edges.append(apart(yhat, threshold))
    value = 0.5 * (max(gap, 0.0) if loss == "hinge" else gap) ** 2
    return report(mistake, value, (yhat + target) ** 2, nearest(*edges)), active


def factor(yhat: float, target: float, eta: float) -> float:
    """rho = ybar / yhat of step 3, not yet clamped."""
    k = 1.0 - eta * target * yhat
    q = np.sqrt(k**2 + 4.0 * eta * yhat**2)
    return float(2.0 / (k + q) if k >= 0.0 else (q - k) / (2.0 * eta * yhat**2))


class LEGO(PairTranscription):
    """State G with A = G' G."""

    NAMES = ("G",)

    def __init__(self, d: int, eta: float, loss: str = "hinge") -> None:
        super().__init__()
        self.G: Matrix = np.eye(d)
        self.eta = eta
        self.loss = loss

    def distance(self, u: Vector, v: Vector) -> float:
        w = self.G @ difference(u, v)
        return float(w @ w)

    def pair(
        self, u: Vector, v: Vector, sign: int, target: float | None = None, threshold: float | None = None
    ) -> Report:
        assert target is not None
        z = difference(u, v)
        w = self.G @ z
        yhat = float(w @ w)
        found, active = judged(yhat, sign, target, threshold, self.loss)
        found["degenerate"] = zero_difference(u, v)
        if not active or found["degenerate"] or yhat < 1e-300:
            return found
        rho = factor(yhat, target, self.eta)
        clamped = min(max(rho, 1e-12), 1e12)
        found["clipped"] = clamped != rho
        found["edge"] = nearest(found["edge"], apart(rho, 1e-12), apart(rho, 1e12))
        found["utilised"] = True

        def step() -> None:
            g = self.G.T @ w
            self.G = self.G + (np.sqrt(clamped) - 1.0) / yhat * np.outer(w, g)

        return self.committed(found, step)


class KernelLEGO:
    """A = I + X S X' in feature space, X the stored points; S (m, m) grows with them."""

    def __init__(self, kernel: Callable[[Vector, Vector], float], eta: float, loss: str = "hinge") -> None:
        self.kernel = kernel
        self.eta = eta
        self.loss = loss
        self.points: list[Vector] = []
        self.S: Matrix = np.zeros((0, 0))

    def distance(self, u: Vector, v: Vector) -> float:
        """Learned squared distance of any two points."""
        k = self.kernel
        difference = self._column(u) - self._column(v)
        return float(k(u, u) + k(v, v) - 2.0 * k(u, v) + difference @ self.S @ difference)

    def pair(self, u: Vector, v: Vector, sign: int, target: float, threshold: float | None = None) -> Report:
        """One step; both points join the basis."""
        e = np.zeros(len(self.points) + 2)
        e[-2:] = 1.0, -1.0
        self.points += [u, v]
        self.S = np.pad(self.S, (0, 2))
        K = np.array([[self.kernel(p, q) for q in self.points] for p in self.points])
        h = e + self.S @ K @ e
        yhat = float(e @ K @ h)
        found, active = judged(yhat, sign, target, threshold, self.loss)
        found["degenerate"] = zero_difference(u, v)
        if not active or found["degenerate"] or yhat < 1e-300:
            return found
        rho = min(max(factor(yhat, target, self.eta), 1e-12), 1e12)
        self.S = self.S - (1.0 - rho) / yhat * np.outer(h, h)
        found["utilised"] = True
        return found

    def _column(self, point: Vector) -> Vector:
        return np.array([self.kernel(point, other) for other in self.points])
