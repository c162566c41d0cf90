"""OASIS (Chechik et al. 2010)."""

from __future__ import annotations

import numpy as np

from tests.learners.transcriptions.parts import (
    Matrix,
    Report,
    TripletTranscription,
    Vector,
    apart,
    difference,
    nearest,
    report,
    zero_difference,
    zero_vector,
)


def judged(score: float, size: float) -> Report:
    """Report of sim(x, x+) - sim(x, x-) = score, a sum of terms of the magnitude `size`."""
    ranking = abs(score) / size if size > 0.0 else 0.0
    return report(
        score <= 0.0, max(0.0, 1.0 - score), 1.0 + size, nearest(ranking, abs(1.0 - score) / (1.0 + size))
    )


class OASIS(TripletTranscription):
    """State W (d, d) of sim(x, x') = x' W x'."""

    NAMES = ("W",)

    def __init__(self, d: int, aggressiveness: float = 0.1) -> None:
        super().__init__()
        self.W: Matrix = np.eye(d)
        self.aggressiveness = aggressiveness

    def triplet(self, x: Vector, positive: Vector, negative: Vector) -> Report:
        v = difference(positive, negative)
        found = judged(float(x @ self.W @ v), float(abs(x) @ abs(self.W) @ abs(v)))
        found["degenerate"] = zero_vector(x) or zero_difference(positive, negative)
        if found["loss"] <= 0.0 or found["degenerate"]:
            return found
        needed = float(found["loss"] / ((x @ x) * (v @ v)))
        found["clipped"] = needed > self.aggressiveness
        found["edge"] = nearest(found["edge"], apart(needed, self.aggressiveness))
        tau = min(self.aggressiveness, needed)
        found["utilised"] = True

        def step() -> None:
            self.W = self.W + tau * np.outer(x, v)

        return self.committed(found, step)
