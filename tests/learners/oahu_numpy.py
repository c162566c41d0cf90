"""OAHU as the paper prints it, in plain numpy with columns for vectors; nothing of the product's.

Two things that the anchored variant adds are options here: the rank weight, and gradients that alpha does not weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FLOOR = 1e-12


class Weights(NamedTuple):
    """W_1 .. W_L as maps of columns, hidden biases or none, and Theta_0 .. Theta_L."""

    W: list[Matrix]
    b: list[Vector]
    Theta: list[Matrix]

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Weights:
        """From the product's state, which maps rows: h W."""
        layers = sum(name.startswith("Theta") for name in state) - 1
        W = [np.array(state[f"W{k}"], np.float64).T for k in range(1, layers + 1)]
        b = [np.array(state[f"b{k}"], np.float64) for k in range(1, layers + 1) if f"b{k}" in state]
        return cls(W, b, [np.array(state[f"Theta{k}"], np.float64) for k in range(layers + 1)])

    def zeros(self) -> Weights:
        """The same shapes."""
        return Weights(*([np.zeros_like(array) for array in arrays] for arrays in self))

    def minus(self, eta: float, other: Weights) -> Weights:
        """self - eta other."""
        return Weights(
            *(
                [a - eta * b for a, b in zip(mine, its, strict=True)]
                for mine, its in zip(self, other, strict=True)
            )
        )


class Sample(NamedTuple):
    """One vector on its way: h_0 .. h_L, u_0 .. u_L and f_0 .. f_L."""

    h: list[Vector]
    u: list[Vector]
    f: list[Vector]


def forward(weights: Weights, x: Vector) -> Sample:
    """h_l = relu(W_l h_{l-1} + b_l), u_l = Theta_l' h_l, f_l = u_l / |u_l|, or 0 for a dead model."""
    h = [np.asarray(x, np.float64)]
    for k, W in enumerate(weights.W):
        z = W @ h[-1]
        h.append(np.maximum(z + weights.b[k] if weights.b else z, 0.0))
    u = [Theta.T @ value for Theta, value in zip(weights.Theta, h, strict=True)]
    sizes = [float(np.sqrt(value @ value)) for value in u]
    f = [value / size if size >= FLOOR else 0.0 * value for value, size in zip(u, sizes, strict=True)]
    return Sample(h, u, f)


def distances(samples: tuple[Sample, Sample, Sample]) -> tuple[Vector, Vector]:
    """D_l(x, x+) and D_l(x, x-), each (L + 1,)."""
    x, positive, negative = samples
    near, far = (
        np.array([np.sqrt((a - b) @ (a - b)) for a, b in zip(x.f, other.f, strict=True)])
        for other in (positive, negative)
    )
    return near, far


def thresholds(Dp: Any, Dn: Any, tau: float) -> tuple[Any, Any]:
    """c1 and c2."""
    c1 = tau * np.expm1(Dp) / (np.e**2 - 1.0)
    c2 = (2.0 - tau) + tau * -np.expm1(-Dn) / (1.0 - np.e**-2)
    return c1, c2


def attraction(Dp: Any, c1: Any) -> Any:
    return np.maximum((Dp - c1) / (2.0 - c1), 0.0)


def repulsion(Dn: Any, c2: Any) -> Any:
    return np.maximum(1.0 - Dn / c2, 0.0)


@dataclass
class OAHUNumpy:
    """State and one step at a time."""

    weights: Weights
    alpha: Vector
    eta: float = 0.3
    tau: float = 0.1
    beta: float = 0.99
    s: float = 0.1
    hedge: str = "literal"
    temperature: float = float("inf")
    by_alpha: bool = True
    report: dict[str, Any] = field(default_factory=dict)

    def losses(self, Dp: Vector, Dn: Vector) -> Vector:
        """L_l (L + 1,) of distances, with thresholds of the same distances."""
        c1, c2 = thresholds(Dp, Dn, self.tau)
        return np.asarray((attraction(Dp, c1) + repulsion(Dn, c2)) / 2.0)

    def factors(self, Dp: Vector, Dn: Vector) -> Vector:
        """What every model's gradient is multiplied with."""
        factors = self.alpha if self.by_alpha else np.full(len(self.alpha), 1.0 / len(self.alpha))
        if np.isfinite(self.temperature):
            factors = factors * 2.0 / (1.0 + np.exp(-(Dp - Dn) / self.temperature))
        return factors

    def objective(self, weights: Weights, triplet: tuple[Vector, Vector, Vector]) -> float:
        """What a step descends, at other weights: thresholds and factors stay those of the present ones."""
        now = distances(self._samples(self.weights, triplet))
        c1, c2 = thresholds(*now, self.tau)
        Dp, Dn = distances(self._samples(weights, triplet))
        return float(np.sum(self.factors(*now) * (attraction(Dp, c1) + repulsion(Dn, c2)) / 2.0))

    def gradients(self, triplet: tuple[Vector, Vector, Vector]) -> Weights:
        """Of the objective at the present weights, by the paper's formulas."""
        samples = self._samples(self.weights, triplet)
        Dp, Dn = distances(samples)
        c1, c2 = thresholds(Dp, Dn, self.tau)
        factors, found = self.factors(Dp, Dn), self.weights.zeros()
        layers = len(self.weights.W)
        towards_u: list[list[Vector]] = [[], [], []]
        for k in range(layers + 1):
            x, positive, negative = (sample.f[k] for sample in samples)
            gp, gn = np.zeros_like(x), np.zeros_like(x)
            if Dp[k] >= FLOOR and attraction(Dp[k], c1[k]) > 0.0:
                gp = factors[k] / 2.0 / (2.0 - c1[k]) * (x - positive) / Dp[k]
            if Dn[k] >= FLOOR and repulsion(Dn[k], c2[k]) > 0.0:
                gn = -factors[k] / 2.0 / c2[k] * (x - negative) / Dn[k]
            for s, towards_f in enumerate((gp + gn, -gp, -gn)):
                f, u = samples[s].f[k], samples[s].u[k]
                size = float(np.sqrt(u @ u))
                g = (towards_f - f * (f @ towards_f)) / size if size >= FLOOR else np.zeros_like(u)
                towards_u[s].append(g)
                found.Theta[k][:] += np.outer(samples[s].h[k], g)
        for s, sample in enumerate(samples):
            back = self.weights.Theta[layers] @ towards_u[s][layers]
            for k in range(layers, 0, -1):
                masked = back * (sample.h[k] > 0.0)
                found.W[k - 1][:] += np.outer(masked, sample.h[k - 1])
                if found.b:
                    found.b[k - 1][:] += masked
                back = self.weights.W[k - 1].T @ masked
                back = back + self.weights.Theta[k - 1] @ towards_u[s][k - 1]
        return found

    def step(self, triplet: tuple[Vector, Vector, Vector]) -> None:
        """Algorithm 1 for one triplet: losses and gradients, then the weights, then alpha."""
        Dp, Dn = distances(self._samples(self.weights, triplet))
        losses = self.losses(Dp, Dn)
        self.report = {
            "margins": Dp - Dn,
            "losses": losses,
            "loss": float(self.alpha @ losses),
            "least": min(*Dp, *Dn),
        }
        self.weights = self.weights.minus(self.eta, self.gradients(triplet))
        self.reweigh(losses)

    def reweigh(self, losses: Vector) -> None:
        """Eq. 20, the floor, the sum 1."""
        beta, raised = self.beta, []
        for alpha, loss in zip(self.alpha, losses, strict=True):
            log = np.log(loss) if loss > 0.0 else -np.inf
            exponential = {"literal": beta ** min(losses) * log > beta - 1.0, "exp": True, "linear": False}[
                self.hedge
            ]
            raised.append(alpha * (beta**loss if exponential else 1.0 - (1.0 - beta) * loss))
        floored = np.maximum(raised, self.s / len(losses))
        self.alpha = np.asarray(floored / floored.sum())

    def _samples(
        self, weights: Weights, triplet: tuple[Vector, Vector, Vector]
    ) -> tuple[Sample, Sample, Sample]:
        x, positive, negative = triplet
        return forward(weights, x), forward(weights, positive), forward(weights, negative)
