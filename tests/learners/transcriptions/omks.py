"""OMKS: OASIS in the feature spaces of several kernels (Xia et al. 2014)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.learners.transcriptions.parts import EPS, Report, Vector, nearest, report

#: Of two inputs, vectors or dictionaries of such.
Kernel = Callable[[Any, Any], float]


class OMKS:
    """Dual expansions of several kernels over one support set, and weights theta.

    `budget` drops the oldest triplet, or with `drop` "smallest" that with the smallest sum of tau.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        beta: float,
        aggressiveness: float,
        budget: int | None = None,
        drop: str = "oldest",
    ) -> None:
        self.kernels = tuple(kernels)
        self.theta: Vector = np.full(len(kernels), 1.0 / len(kernels))
        #: (tau of each kernel, x, x+, x-).
        self.support: list[tuple[Vector, Any, Any, Any]] = []
        self.beta = beta
        self.aggressiveness = aggressiveness
        self.budget = budget
        self.drop = drop

    def own_similarity(self, i: int, u: Any, v: Any) -> float:
        """S_i(u, v)."""
        k = self.kernels[i]
        learned = sum(tau[i] * k(u, x) * (k(near, v) - k(far, v)) for tau, x, near, far in self.support)
        return float(k(u, v) + learned)

    def similarity(self, u: Any, v: Any) -> float:
        """Sum of theta_i S_i(u, v)."""
        return float(sum(t * self.own_similarity(i, u, v) for i, t in enumerate(self.theta)))

    def triplet(self, x: Any, positive: Any, negative: Any) -> Report:
        """One step; the loss is the sum of theta_i l_i."""
        indices = range(len(self.kernels))
        near = np.array([self.own_similarity(i, x, positive) for i in indices])
        far = np.array([self.own_similarity(i, x, negative) for i in indices])
        losses = np.maximum(0.0, 1.0 - near + far)
        fused = float(self.theta @ (near - far))
        size = 1.0 + abs(near) + abs(far)
        found = report(
            fused <= 0.0,
            float(self.theta @ losses),
            float(self.theta @ size),
            nearest(abs(fused), *(abs(near - far) / size), *(abs(1.0 - near + far) / size)),
        )
        tau = np.zeros(len(self.kernels))
        for i, k in enumerate(self.kernels):
            ends = k(positive, positive), k(positive, negative), k(negative, negative)
            length = k(x, x) * (ends[0] - 2.0 * ends[1] + ends[2])
            if losses[i] > 0.0 and length > EPS * k(x, x) * (ends[0] + ends[2]):
                tau[i] = min(self.aggressiveness, losses[i] / length)
        weights = self.theta * np.where(near <= far, self.beta, 1.0)
        weights /= weights.sum()
        found["utilised"] = bool(tau.any()) or not np.allclose(weights, self.theta, rtol=1e-15, atol=0.0)
        self.theta = weights
        if tau.any():
            if self.budget is not None and len(self.support) == self.budget:
                sums = [float(entry[0].sum()) for entry in self.support]
                del self.support[0 if self.drop == "oldest" else int(np.argmin(sums))]
            self.support.append((tau, x, positive, negative))
        return found
