"""SOML with truncated gradients and with dual averaging (Gao et al. 2014, Xiao 2010)."""

from __future__ import annotations

import numpy as np

from tests.learners.transcriptions.oasis import judged
from tests.learners.transcriptions.parts import (
    Report,
    TripletTranscription,
    Vector,
    apart,
    difference,
    zero_difference,
)


def zero_direction(x: Vector, positive: Vector, negative: Vector) -> bool:
    """Whether g = x * (x+ - x-) is zero, in the relative sense of 1.4."""
    g = x * (positive - negative)
    return zero_difference(positive, negative) or bool(g @ g < 1e-300)


class SOMLTG(TripletTranscription):
    """State w (d,) of sim(x, x') = sum_j w_j x_j x'_j."""

    NAMES = ("w",)

    def __init__(
        self,
        d: int,
        eta: float,
        sparsity: float,
        always_shrink: bool = False,
        start: str = "identity",
    ) -> None:
        super().__init__()
        self.w: Vector = np.ones(d) if start == "identity" else np.zeros(d)
        self.eta = eta
        self.sparsity = sparsity
        self.always_shrink = always_shrink

    def triplet(self, x: Vector, positive: Vector, negative: Vector) -> Report:
        g = x * difference(positive, negative)
        found = judged(float(self.w @ g), float(abs(self.w) @ abs(g)))
        found["degenerate"] = zero_direction(x, positive, negative)
        found["utilised"] = found["loss"] > 0.0 and not found["degenerate"]
        if found["utilised"] or self.always_shrink:
            v = self.w + self.eta * g if found["utilised"] else self.w
            bound = self.eta * self.sparsity

            def step() -> None:
                self.reached("w", v)
                self.w = np.where(v >= 0.0, np.maximum(0.0, v - bound), np.minimum(0.0, v + bound))

            self.committed(found, step)
        return found


class SOMLDA(TripletTranscription):
    """State w (d,), with the sum of subgradients u and the step t. `centre` puts the start at the identity."""

    NAMES = ("w",)
    HIDDEN = ("u", "t")

    def __init__(self, d: int, kappa: float, sparsity: float, centre: bool = False) -> None:
        super().__init__()
        self.w: Vector = np.ones(d)
        self.u: Vector = np.zeros(d)
        self.t = 0
        self.kappa = kappa
        self.sparsity = sparsity
        self.centre = np.ones(d) if centre else np.zeros(d)

    def triplet(self, x: Vector, positive: Vector, negative: Vector) -> Report:
        g = x * difference(positive, negative)
        found = judged(float(self.w @ g), float(abs(self.w) @ abs(g)))
        found["degenerate"] = zero_direction(x, positive, negative)
        found["utilised"] = found["loss"] > 0.0 and not found["degenerate"]

        def step() -> None:
            self.t += 1
            if found["utilised"]:
                self.u = self.u - g
            mean = self.u / self.t
            moved = -np.sqrt(self.t) / self.kappa * (mean - self.sparsity * np.sign(mean))
            self.reached("w", np.sqrt(self.t) / self.kappa * mean)
            self.w = self.centre + np.where(abs(mean) <= self.sparsity, 0.0, moved)

        self.committed(found, step)
        found["edge"] = min(
            [found["edge"], *(apart(abs(m), self.sparsity) for m in self.u / max(self.t, 1) if m)]
        )
        return found
