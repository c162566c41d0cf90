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


def lda(X: Array, index: Array, shrinkage: float = 0.1) -> tuple[Array, int]:
    """LDA from triplets, in float64: a verdict, two outer products, and the map about when the learner does."""
    d = X.shape[1]
    sums, added, due = np.zeros((2, d, d)), 0, 64
    L: Array = np.eye(d)
    wrong = 0
    for a, p, n in index:
        near, far = X[a] - X[p], X[a] - X[n]
        u, v = L @ near, L @ far
        wrong += bool(u @ u >= v @ v)
        sums[0] += np.outer(near, near)
        sums[1] += np.outer(far, far)
        added += 2
        # The learner adds its differences in groups of 32 of each kind.
        if added % 64 == 0 and added >= due:
            due = added + min(added // 4, 10_000)
            S, B = 2.0 * sums / added
            unit = np.trace(S) / d
            values, V = np.linalg.eigh(S / unit + shrinkage * np.eye(d))
            half = (V / np.sqrt(values)) @ V.T
            values, V = np.linalg.eigh(half @ (B / unit) @ half)
            gain = np.maximum(values[::-1] - 1.0, 0.0)
            L = (np.sqrt(gain / (1.0 + gain) / unit) * (half @ V)[:, ::-1])[:, gain > 0.0].T
    return L, wrong


def softmax(
    X: Array, index: Array, rank: int = 100, step: float = 0.01, memory: int = 512, buffer: int = 128
) -> tuple[Array, int]:
    """The softmax learner of lists: a row against the memory at a time, a step of Adam after each sixteen."""
    d = X.shape[1]
    H = np.empty((memory, d), X.dtype)
    slots: dict[bytes, int] = {}
    names: list[bytes] = []
    stamps = np.zeros(memory, np.int64)
    waiting: list[tuple[int, bytes]] = []
    W = mean = M = V = np.empty((0, d), X.dtype)
    largest, usual, k, wrong, stamp = 0.0, 0.0, 0, 0, 0
    A: Array = np.eye(d, dtype=X.dtype)
    for a, p, n in index:
        u, v = A @ (X[a] - X[p]), A @ (X[a] - X[n])
        wrong += bool(u @ u >= v @ v)
        goal = (X[p] + 0).tobytes()
        for row in (p, n):
            name = (X[row] + 0).tobytes()
            at = slots.get(name)
            if at is None:
                if len(names) < memory:
                    at = len(names)
                    names.append(name)
                else:
                    at = int(stamps.argmin())
                    del slots[names[at]]
                    names[at] = name
                slots[name], H[at] = at, X[row]
            elif row == n:
                continue
            stamps[at] = stamp
            stamp += 1
        waiting.append((a, goal))
        if len(waiting) < (16 if k else buffer):
            continue
        used = len(names)
        if not k:
            rows = X[[row for row, _ in waiting]]
            W = np.eye(d, dtype=X.dtype)
            if d > rank:
                W = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:rank]
            pairs = [(row, slots[goal]) for row, goal in waiting if goal in slots]
            moved = (X[[i for i, _ in pairs]] - H[[j for _, j in pairs]]) @ W.T
            W = W * np.sqrt(4.0 / np.mean(np.sum(moved * moved, axis=1)))
            mean, M, V = W.copy(), np.zeros_like(W), np.zeros_like(W)
            largest = float(np.abs(W).max())
        for first in range(0, len(waiting), 16):
            PH = H[:used] @ W.T
            G, learned = np.zeros_like(W), 0
            for row, goal in waiting[first : first + 16]:
                target = slots.get(goal)
                itself = slots.get((X[row] + 0).tobytes())
                if target is None or target == itself:
                    continue
                gaps = PH - W @ X[row]
                apart = np.einsum("ij,ij->i", gaps, gaps)
                if itself is not None:
                    apart[itself] = np.inf
                s = -np.exp(apart.min() - apart)
                s /= -s.sum()
                s[target] += 1.0
                G += gaps.T @ (s[:, None] * (H[:used] - X[row]))
                learned += 1
            if not learned:
                continue
            G *= 2.0 / learned
            length = float(np.sqrt(np.sum(G * G)))
            if k >= 16 and length > 10.0 * usual:
                G *= 10.0 * usual / length
                length = 10.0 * usual
            k += 1
            usual += (length - usual) / min(k, 100)
            M, V = 0.9 * M + 0.1 * G, 0.999 * V + 0.001 * G * G
            scale = np.sqrt(V / (1.0 - 0.999**k))
            scale += 1e-8 * scale.max()
            W = W - step * largest / np.sqrt(1.0 + k * 16 / 1000.0) * (M / (1.0 - 0.9**k)) / scale
            mean += (W - mean) * 4.0 / (k + 3.0)
        A = mean
        waiting = []
    return A, wrong
