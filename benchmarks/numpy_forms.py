"""Online metric learners as one writes them from their equations: Python over constraints, numpy within one.

They are what the compiled learners are measured against. Guards that an equation needs to stay defined are in; what a
product adds (validation, counters, outcomes) is not. Each takes differences or vectors of its constraints, changes its
model in place and returns how many constraints did so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def psd(M: Array) -> Array:
    """The nearest positive semi-definite matrix."""
    e, V = np.linalg.eigh((M + M.T) / 2)
    return np.asarray((V * np.maximum(e, 0)) @ V.T)


def lego(G: Array, Z: Array, targets: Array, eta: float) -> int:
    """LEGO with the squared loss (LEGO paper, Eq. 2.3), on a factor G of A."""
    active = 0
    for z, y in zip(Z, targets, strict=True):
        w = G @ z
        found = float(w @ w)
        k = 1 - eta * y * found
        root = np.sqrt(k * k + 4 * eta * found * found)
        rho = 2 / (k + root) if k >= 0 else (root - k) / (2 * eta * found * found)
        G += (np.sqrt(rho) - 1) / found * np.outer(w, G.T @ w)
        active += 1
    return active


def itml_online(G: Array, Z: Array, targets: Array, eta: float, kappa: float = 0.5) -> int:
    """ITML-Online with the step that keeps A positive definite, squared loss."""
    active = 0
    for z, y in zip(Z, targets, strict=True):
        w = G @ z
        found = float(w @ w)
        step = eta if found >= y else min(eta, kappa / ((y - found) * found))
        rho = 1 / (1 + step * (found - y) * found)
        G += (np.sqrt(rho) - 1) / found * np.outer(w, G.T @ w)
        active += 1
    return active


def oasis(W: Array, x: Array, v: Array, C: float) -> int:
    """OASIS; x (m, d) anchors, v (m, d) positives less negatives."""
    active = 0
    for a, b in zip(x, v, strict=True):
        loss = 1 - a @ W @ b
        if loss > 0:
            W += min(C, loss / ((a @ a) * (b @ b))) * np.outer(a, b)
            active += 1
    return active


def soml_tg(w: Array, x: Array, v: Array, eta: float, sparsity: float) -> int:
    """SOML with truncated gradient; the diagonal w changes in place."""
    active = 0
    for a, b in zip(x, v, strict=True):
        g = a * b
        if 1 - w @ g > 0:
            moved = w + eta * g
            w[:] = np.sign(moved) * np.maximum(np.abs(moved) - eta * sparsity, 0)
            active += 1
    return active


def soml_da(w: Array, x: Array, v: Array, kappa: float, sparsity: float) -> int:
    """SOML with dual averaging around the identity."""
    total = np.zeros_like(w)
    active = 0
    for t, (a, b) in enumerate(zip(x, v, strict=True), 1):
        g = a * b
        if 1 - w @ g > 0:
            total -= g
            active += 1
        mean = total / t
        w[:] = 1 - np.sqrt(t) / kappa * np.sign(mean) * np.maximum(np.abs(mean) - sparsity, 0)
    return active


def sors(W: Array, x: Array, v: Array, eta: float, sparsity: float) -> int:
    """SORS: a subgradient step, then a soft threshold off the diagonal."""
    active = 0
    for a, b in zip(x, v, strict=True):
        if 1 - a @ W @ b > 0:
            W += eta * np.outer(a, b)
            active += 1
        diagonal = W.diagonal().copy()
        W[:] = np.sign(W) * np.maximum(np.abs(W) - eta * sparsity, 0)
        np.fill_diagonal(W, diagonal)
    return active


def adasors(W: Array, x: Array, v: Array, eta: float, sparsity: float, delta: float = 1e-6) -> int:
    """AdaSORS: the same with one step size for each entry."""
    H = np.zeros_like(W)
    active = 0
    for a, b in zip(x, v, strict=True):
        if 1 - a @ W @ b > 0:
            gradient = -np.outer(a, b)
            active += 1
        else:
            gradient = np.zeros_like(W)
        H[:] = np.sqrt(H * H + gradient * gradient)
        scale = delta + H
        W -= eta * gradient / scale
        diagonal = W.diagonal().copy()
        W[:] = np.sign(W) * np.maximum(np.abs(W) - eta * sparsity / scale, 0)
        np.fill_diagonal(W, diagonal)
    return active


def pola(A: Array, Z: Array, signs: Array) -> int:
    """POLA: two orthogonal projections for each violated pair."""
    b = 1.0
    active = 0
    for z, s in zip(Z, signs, strict=True):
        loss = s * (z @ A @ z - b) + 1
        if loss > 0:
            step = loss / ((z @ z) ** 2 + 1)
            A -= s * step * np.outer(z, z)
            b = max(1.0, b + s * step)
            if s > 0:
                A[:] = psd(A)
            active += 1
    return active


def rdml(A: Array, Z: Array, signs: Array, rate: float) -> int:
    """RDML with the exact projection."""
    active = 0
    for z, s in zip(Z, signs, strict=True):
        if s * (1 - z @ A @ z) <= 0:
            A -= rate * s * np.outer(z, z)
            if s > 0:
                A[:] = psd(A)
            active += 1
    return active


def rdml_paper(A: Array, Z: Array, signs: Array, rate: float) -> int:
    """RDML with the step cap by conjugate gradient (paper, Theorem 6)."""
    active = 0
    for z, s in zip(Z, signs, strict=True):
        if s * (1 - z @ A @ z) > 0:
            continue
        step = rate
        if s > 0:
            inverse = _conjugate_gradient(A, z)
            step = 0.0 if inverse is None else min(rate, 1 / float(z @ inverse))
        if step > 0:
            A -= step * s * np.outer(z, z)
            active += 1
    return active


def _conjugate_gradient(A: Array, z: Array) -> Array | None:
    x, r = np.zeros_like(z), z.copy()
    p, rr = r.copy(), float(r @ r)
    small, top = 1e-16 * rr, np.finfo(A.dtype).eps * np.linalg.norm(A)
    for _ in range(2 * len(z)):
        q = A @ p
        curvature = float(p @ q)
        if curvature <= top * float(p @ p):
            return None
        x += rr / curvature * p
        r -= rr / curvature * q
        after = float(r @ r)
        if after <= small:
            return x
        p = r + after / rr * p
        rr = after
    return None


def mdml(M: Array, Z: Array, signs: Array, eta: float, rho: float) -> int:
    """MDML with the Frobenius divergence, the hinge loss and soft shrinkage of eigenvalues."""
    mu = 1.0
    active = 0
    for t, (z, s) in enumerate(zip(Z, signs, strict=True), 1):
        if s * (mu - z @ M @ z) < 1:
            step = eta / np.sqrt(t)
            e, V = np.linalg.eigh(M - step * s * np.outer(z, z))
            M[:] = (V * np.maximum(e - step * rho, 0)) @ V.T
            mu = max(1.0, mu + step * s)
            active += 1
    return active


def omdml(maps: list[Array], a: list[Array], b: list[Array], beta: float, C: float, margin: float) -> int:
    """OMDML: hedged weights, one projection for each modality and constraint."""
    theta = np.full(len(maps), 1 / len(maps))
    active = 0
    for t in range(len(a[0])):
        f = np.array([x[t] @ M @ x[t] - y[t] @ M @ y[t] for M, x, y in zip(maps, a, b, strict=True)])
        if theta @ f + margin <= 0:
            continue
        theta *= beta ** (f > 0)
        for M, x, y, value in zip(maps, a, b, f, strict=True):
            u, v = x[t], y[t]
            square = (u @ u) ** 2 + (v @ v) ** 2 - 2 * (u @ v) ** 2
            step = min(C, max(0.0, value + 1) / square)
            if step > 0:
                M[:] = psd(M - step * (np.outer(u, u) - np.outer(v, v)))
        theta /= theta.sum()
        active += 1
    return active


def lomdml(
    maps: list[Array],
    a: list[Array],
    b: list[Array],
    beta: float,
    eta: float,
    margin: float,
    own: bool = True,
) -> int:
    """LOMDML: hedged weights, a gradient step on a low-rank map of each modality, if `own` of those that are wrong."""
    theta = np.full(len(maps), 1 / len(maps))
    active = 0
    for t in range(len(a[0])):
        mapped = [(W @ x[t], W @ y[t]) for W, x, y in zip(maps, a, b, strict=True)]
        f = np.array([p @ p - q @ q for p, q in mapped])
        if theta @ f + margin <= 0:
            continue
        theta *= beta ** (f > 0)
        for W, x, y, value, (p, q) in zip(maps, a, b, f, mapped, strict=True):
            if value + 1 > 0 or not own:
                u, v = x[t], y[t]
                step = min(eta, 0.5 / max(float(u @ u), 1e-12))
                W -= 2 * step * (np.outer(p, u) - np.outer(q, v))
        theta /= theta.sum()
        active += 1
    return active
