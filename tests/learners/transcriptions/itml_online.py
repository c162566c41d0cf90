"""ITML-Online with the step cap that keeps A positive definite (Davis et al. 2007)."""

from __future__ import annotations

import numpy as np

from tests.learners.transcriptions.lego import judged
from tests.learners.transcriptions.parts import (
    Matrix,
    PairTranscription,
    Report,
    Vector,
    apart,
    difference,
    nearest,
    zero_difference,
)


class ITMLOnline(PairTranscription):
    """State G with A = G' G and A^-1 <- A^-1 + eta_t (yhat - y) z z'."""

    NAMES = ("G",)

    def __init__(self, d: int, eta: float, kappa: float = 0.5, loss: str = "hinge") -> None:
        super().__init__()
        self.G: Matrix = np.eye(d)
        self.eta = eta
        self.kappa = kappa
        self.loss = loss
        #: eta_t of the last step.
        self.rate = 0.0

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
        rate = self.eta
        if yhat < target:
            cap = self.kappa / ((target - yhat) * yhat)
            found["edge"] = nearest(found["edge"], apart(cap, rate))
            found["clipped"] = cap < rate
            rate = min(rate, cap)
        self.rate = rate
        rho = 1.0 / (1.0 + rate * (yhat - target) * yhat)
        found["edge"] = nearest(found["edge"], apart(rho, 1e-12))
        found["clipped"] |= rho < 1e-12
        # The square root is LEGO's, and so is its clamp.
        rho = max(rho, 1e-12)
        found["utilised"] = True

        def step() -> None:
            g = self.G.T @ w
            self.G = self.G + (np.sqrt(rho) - 1.0) / yhat * np.outer(w, g)

        return self.committed(found, step)
