"""MDML: mirror descent with three divergences (Kunapuli and Shavlik 2012)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    report,
    zero_difference,
)

#: Where the product's default guards begin, which the paper does not have: reported as an edge.
LEAST_MARGIN, MOST = -20.0, 1e18


def loss_of(name: str, margin: float) -> tuple[float, float]:
    """Loss of a margin, and its slope downwards g = -dloss/dmargin."""
    if name == "hinge":
        return max(0.0, 1.0 - margin), 1.0 if margin < 1.0 else 0.0
    if name == "squared-hinge":
        return 0.5 * max(0.0, 1.0 - margin) ** 2, max(0.0, 1.0 - margin)
    if name == "exponential":
        return float(np.exp(-margin)), float(np.exp(-margin))
    assert name == "logistic"
    return float(np.logaddexp(0.0, -margin)), float(np.exp(-np.logaddexp(0.0, margin)))


class MDML(PairTranscription):
    """State M = V diag(e) V', the threshold mu >= 1 and the number t of constraints so far."""

    NAMES = ("V", "e", "mu")
    HIDDEN = ("t",)

    def __init__(
        self,
        d: int,
        eta: float,
        rho: float,
        loss: str = "hinge",
        divergence: str = "frobenius",
        shrinkage: str = "soft",
    ) -> None:
        super().__init__()
        self.V: Matrix = np.eye(d)
        self.e: Vector = np.ones(d)
        self.mu = 1.0
        self.t = 0
        self.eta = eta
        self.rho = rho
        self.loss = loss
        self.divergence = divergence
        self.shrinkage = shrinkage

    @property
    def M(self) -> Matrix:
        """The metric."""
        return np.asarray((self.V * self.e) @ self.V.T)

    def comparable(self, state: Mapping[str, Any]) -> dict[str, Matrix]:
        V, e = np.asarray(state["V"], np.float64), np.asarray(state["e"], np.float64)
        return {"M": (V * e) @ V.T, "mu": np.asarray(state["mu"], np.float64)}

    def distance(self, u: Vector, v: Vector) -> float:
        z = difference(u, v)
        return float(z @ self.M @ z)

    def pair(
        self, u: Vector, v: Vector, sign: int, target: float | None = None, threshold: float | None = None
    ) -> Report:
        self.t += 1
        z = difference(u, v)
        yhat = self.distance(u, v)
        margin = sign * (self.mu - yhat)
        value, g = loss_of(self.loss, margin)
        found = report(
            yhat > self.mu if sign > 0 else yhat <= self.mu,
            value,
            (1.0 + self.mu + yhat) * max(1.0, g),
            nearest(self.beside(yhat, self.mu, z), self.beside(yhat, self.mu - sign, z)),
        )
        found["degenerate"] = zero_difference(u, v)
        if self.loss == "exponential" and margin < LEAST_MARGIN:
            found["edge"] = EPS
        a = sign * g
        if abs(a) <= 1e-12 or found["degenerate"]:
            return found
        rate = self.eta / np.sqrt(self.t)
        if self.divergence == "burg" and a < 0.0 and yhat > 0.0:
            cap = 0.5 / (abs(a) * yhat)
            found["clipped"] = cap < rate
            found["edge"] = nearest(found["edge"], apart(cap, rate))
            rate = min(rate, cap)
        if self.divergence == "burg":
            found["edge"] = nearest(found["edge"], apart(1.0 / self.mu, rate * a))
        found["utilised"] = True

        def step() -> None:
            self._descend(z, a, rate)

        found = self.committed(found, step)
        if found["rejected"]:
            self.t -= 1
        found["edge"] = nearest(found["edge"], self._kink)
        return found

    #: Relative distance of the last step's eigenvalues from the jump of the hard threshold.
    _kink = 1.0

    def _descend(self, z: Vector, a: float, rate: float) -> None:
        M = self.M
        if self.divergence == "frobenius":
            e, V = np.linalg.eigh(M - rate * a * np.outer(z, z))
            mu = max(1.0, self.mu + rate * a)
        elif self.divergence == "von-neumann":
            kept = self.e > 0.0
            V0, e0 = self.V[:, kept], self.e[kept]
            inside = V0.T @ z
            logs, rotation = np.linalg.eigh(np.diag(np.log(e0)) - rate * a * np.outer(inside, inside))
            e, V = np.zeros(len(z)), np.empty_like(self.V)
            V[:, : kept.sum()], V[:, kept.sum() :] = V0 @ rotation, self.V[:, ~kept]
            e[: kept.sum()] = np.exp(logs)
            mu = max(1.0, float(np.exp(np.log(self.mu) + rate * a)))
        else:
            assert self.divergence == "burg"
            Mz = M @ z
            e, V = np.linalg.eigh(M - rate * a / (1.0 + rate * a * (z @ Mz)) * np.outer(Mz, Mz))
            left = 1.0 / self.mu - rate * a
            mu = max(1.0, 1.0 / left) if left > 0.0 else self.mu
        self.reached("M", M, e)
        self.reached("mu", self.mu, rate * a)
        if self.shrinkage == "soft":
            e = np.maximum(e - rate * self.rho, 0.0)
        else:
            self._kink = min(apart(float(value), self.rho) for value in e)
            e = np.where(e < self.rho, 0.0, e)
        if max(mu, float(e.max())) > MOST:
            self._kink = EPS
        self.V, self.e, self.mu = V, e, mu
