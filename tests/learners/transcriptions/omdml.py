"""OMDML and LOMDML (Wu et al. 2016). Vectors come as dictionaries, one entry per modality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.learners.transcriptions.parts import (
    EPS,
    Matrix,
    Report,
    TripletTranscription,
    Vector,
    apart,
    difference,
    nearest,
    psd,
    report,
    zero_difference,
)

Vectors = Mapping[str, Vector]

#: Least weight of a modality before normalisation.
FLOOR = 1e-12


class Hedged(TripletTranscription):
    """One metric per modality, and weights theta that lose the factor beta at each of its mistakes."""

    #: Prefix of the product's names of the matrices.
    MATRIX = ""

    def __init__(self, start: Mapping[str, Matrix], beta: float, margin: float) -> None:
        super().__init__()
        self.matrices = {name: np.array(M, np.float64) for name, M in start.items()}
        self.peaks: dict[str, float] = {}
        self.theta: Vector = np.full(len(start), 1.0 / len(start))
        self.beta = beta
        self.margin = margin

    NAMES = ("theta",)
    HIDDEN: tuple[str, ...] = ("matrices",)

    def state(self) -> dict[str, Any]:
        kept = {f"{self.MATRIX}.{name}": M.copy() for name, M in self.matrices.items()}
        return kept | {"theta": self.theta.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.theta = np.array(state["theta"], np.float64)
        for name in self.matrices:
            self.matrices[name] = np.array(state[f"{self.MATRIX}.{name}"], np.float64)

    def comparable(self, state: Mapping[str, Any]) -> dict[str, Matrix]:
        return {name: np.asarray(state[name], np.float64) for name in self.state()}

    def _peak(self, name: str) -> float:
        """Largest entry of M_i so far."""
        self.peaks[name] = max(self.peaks.get(name, 0.0), float(np.abs(self._metric(name)).max()))
        return self.peaks[name]

    def _metric(self, name: str) -> Matrix:
        """M_i."""
        raise NotImplementedError

    def squared(self, name: str, z: Vector) -> float:
        """Squared length of a difference under a modality's metric."""
        raise NotImplementedError

    def triplet(self, x: Vectors, positive: Vectors, negative: Vectors) -> Report:
        a = {name: difference(x[name], positive[name]) for name in self.matrices}
        b = {
            name: a[name]
            if zero_difference(positive[name], negative[name])
            else difference(x[name], negative[name])
            for name in self.matrices
        }
        near = np.array([self.squared(name, a[name]) for name in self.matrices])
        far = np.array([self.squared(name, b[name]) for name in self.matrices])
        own = near - far
        fused = float(self.theta @ own)
        # A matrix that a projection left near zero is rounding of what it was, and so are distances under it.
        rounding = [
            1e-7 * self._peak(name) * (a[name] @ a[name] + b[name] @ b[name]) for name in self.matrices
        ]
        terms = abs(near) + abs(far) + np.array(rounding)
        size = self.margin + float(self.theta @ terms)
        edges = [_edge(fused, float(self.theta @ terms)), _edge(fused + self.margin, size)]
        for f, term in zip(own, terms, strict=True):
            edges += [_edge(f, term), _edge(f + 1.0, 1.0 + term)]
        same = all(np.array_equal(positive[name], negative[name]) for name in self.matrices)
        if not same:
            edges = [max(edge, EPS) for edge in edges]
        found = report(fused >= 0.0, max(0.0, fused + self.margin), size, nearest(*edges))
        found["degenerate"] = all(_no_direction(a[name], b[name]) for name in self.matrices)
        if not fused + self.margin > 0.0:
            return found

        def step() -> None:
            moved = False
            weights = np.maximum(self.theta * self.beta ** (own > 0.0).astype(float), FLOOR)
            for name, f in zip(self.matrices, own, strict=True):
                moved |= self._step(name, a[name], b[name], float(f), found)
            weights = weights / weights.sum()
            found["utilised"] = moved or not np.allclose(weights, self.theta, rtol=1e-15, atol=0.0)
            self.theta = weights

        return self.committed(found, step)

    def _step(self, name: str, a: Vector, b: Vector, f: float, found: Report) -> bool:
        """Update a modality's matrix; whether it changed."""
        raise NotImplementedError


class OMDML(Hedged):
    """State M_i (n_i, n_i) and theta. `psd_every` k projects with every k-th step of a matrix."""

    MATRIX = "M"
    HIDDEN = ("matrices", "steps")

    def __init__(
        self,
        dimensions: Mapping[str, int],
        beta: float,
        aggressiveness: float,
        margin: float,
        psd_every: int = 1,
    ) -> None:
        super().__init__({name: np.eye(n) for name, n in dimensions.items()}, beta, margin)
        self.aggressiveness = aggressiveness
        self.psd_every = psd_every
        self.steps = dict.fromkeys(dimensions, 0)

    def _metric(self, name: str) -> Matrix:
        return self.matrices[name]

    def squared(self, name: str, z: Vector) -> float:
        return float(z @ self.matrices[name] @ z)

    def _step(self, name: str, a: Vector, b: Vector, f: float, found: Report) -> bool:
        loss = max(0.0, f + 1.0)
        V = np.outer(a, a) - np.outer(b, b)
        tau = 0.0
        if loss > 0.0 and not _no_direction(a, b):
            needed = loss / float((V**2).sum())
            found["clipped"] |= needed > self.aggressiveness
            found["edge"] = nearest(found["edge"], apart(needed, self.aggressiveness))
            tau = min(self.aggressiveness, needed)
        if tau == 0.0:
            return False
        M = self.matrices[name] - tau * V
        self.reached(f"M.{name}", self.matrices[name], M)
        self.steps[name] += 1
        self.matrices[name] = psd(M) if self.steps[name] % self.psd_every == 0 else M
        return True


class LOMDML(Hedged):
    """State W_i (r_i, n_i) and theta, from given W_i."""

    MATRIX = "W"

    def __init__(
        self,
        start: Mapping[str, Matrix],
        eta: float,
        beta: float,
        margin: float,
        own_hinge: bool = True,
    ) -> None:
        super().__init__(start, beta, margin)
        self.eta = eta
        self.own_hinge = own_hinge

    def _metric(self, name: str) -> Matrix:
        W = self.matrices[name]
        return W.T @ W

    def squared(self, name: str, z: Vector) -> float:
        p = self.matrices[name] @ z
        return float(p @ p)

    def _step(self, name: str, a: Vector, b: Vector, f: float, found: Report) -> bool:
        if (self.own_hinge and f + 1.0 <= 0.0) or _no_direction(a, b):
            return False
        rate = self.eta
        cap = 0.5 / max(float(a @ a), EPS)
        found["edge"] = nearest(found["edge"], apart(cap, rate))
        found["clipped"] |= cap < rate
        rate = min(rate, cap)
        W = self.matrices[name]
        self.reached(f"W.{name}", W)
        p, q = W @ a, W @ b
        self.matrices[name] = W - 2.0 * rate * (np.outer(p, a) - np.outer(q, b))
        return not np.array_equal(self.matrices[name], W)


def _no_direction(a: Vector, b: Vector) -> bool:
    """Whether V = a a' - b b' is zero relative to its parts: |V|_F^2 <= EPS max(aa, bb)^2."""
    V = np.outer(a, a) - np.outer(b, b)
    largest = max(float(a @ a), float(b @ b))
    return bool((V**2).sum() <= EPS * largest**2 or largest < 1e-300)


def _edge(value: float, size: float) -> float:
    return abs(value) / size if size > 0.0 else 0.0
