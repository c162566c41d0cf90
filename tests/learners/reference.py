"""OPML and COPML from the paper's equations, with numpy's inverse; nothing shared with the product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class ReferenceOPML:
    """L <- L (I + gamma A)^{-1} for A = (x - x+)(x - x+)' - (x - x-)(x - x-)' while the hinge is open."""

    def __init__(self, d: int, gamma: float, clip: bool = True) -> None:
        self.L: NDArray[Any] = np.eye(d)
        self.gamma = gamma
        self.clip = clip

    def triplet(self, x: Vector, similar: Vector, dissimilar: Vector) -> dict[str, Any]:
        """One step; returns the mistake and loss before it, and what was done."""
        A = np.outer(x - similar, x - similar) - np.outer(x - dissimilar, x - dissimilar)
        near = float(np.sum((self.L @ (x - similar)) ** 2))
        far = float(np.sum((self.L @ (x - dissimilar)) ** 2))
        loss = max(0.0, 1.0 + near - far)
        report = {
            "mistake": near >= far,
            "loss": loss,
            "utilised": False,
            "clipped": False,
            "det": 1.0,
            "edge": 1.0,
        }
        report["edge"] = abs(1.0 + near - far) / (1.0 + near + far)
        if loss > 0.0 and A.any():
            gamma, least = self.gamma, float(np.linalg.eigvalsh(A)[0])
            if self.clip and gamma * abs(min(least, 0.0)) > 0.9:
                gamma = 0.9 / abs(least)
                report["clipped"] = True
            step = np.eye(len(x)) + gamma * A
            report["det"] = float(np.linalg.det(step))
            self.L = self.L @ np.linalg.inv(step)
            top = float(np.abs(self.L).max())
            if self.clip and top > 1e9:
                self.L *= 1e9 / top
                report["clipped"] = True
            report["utilised"] = True
        return report

    def pair(self, x: Vector, previous: Vector, gamma: float) -> None:
        """COPML's pre-stage."""
        z = x - previous
        self.L = self.L @ np.linalg.inv(np.eye(len(x)) + gamma * np.outer(z, z))
