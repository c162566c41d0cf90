"""OAHU: microseconds a triplet of the compiled path, beside torch with autograd, one step after the other.

Sizes are the published ones, L = 5, S = 100, m = 50, for the default variant too. The loop in torch is written as a
user would write it, without checks and counters; both run on one thread, in turn.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.figures import Figure
from kinstream.learners.oahu.autograd import one_thread
from kinstream.learners.oahu.learner import OAHU
from kinstream.streams.compute.blas_threads import one_blas_thread

DIMENSIONS: Final = (64, 784, 1024)
TRIPLETS: Final = 4_000
#: Triplets of one block.
BLOCK: Final = 256
TRIES: Final = 3
Rows = NDArray[np.float32]


def eager(T: Rows, triplets: int, layers: int = 5, hidden: int = 100, embedding: int = 50) -> float:
    """Seconds a triplet of the plain loop in torch over triplets T (n, 3, d)."""
    import torch

    d = T.shape[2]
    sizes = [d, *[hidden] * layers]
    W = [(torch.randn(a, hidden) * (2.0 / a) ** 0.5).requires_grad_() for a in sizes[:-1]]
    Theta = [(torch.randn(a, embedding) / a**0.5).requires_grad_() for a in sizes]
    X, alpha = torch.from_numpy(T), torch.full((layers + 1,), 1.0 / (layers + 1))
    eta, tau, beta, floor = 0.3, 0.1, 0.99, 0.1 / (layers + 1)
    begun = 0.0
    for t in range(triplets + 10):
        if t == 10:
            begun = time.thread_time()
        h, losses = X[t % len(X)], []
        for k in range(layers + 1):
            u = h @ Theta[k]
            f = u / u.norm(dim=1, keepdim=True).clamp_min(1e-12)
            near, far = (f[0] - f[1]).norm(), (f[0] - f[2]).norm()
            c1 = tau * torch.expm1(near.detach()) / float(np.expm1(2.0))
            c2 = (2.0 - tau) + tau * torch.expm1(-far.detach()) / float(np.expm1(-2.0))
            losses.append(0.5 * (torch.relu((near - c1) / (2.0 - c1)) + torch.relu(1.0 - far / c2)))
            if k < layers:
                h = torch.relu(h @ W[k])
        found = torch.stack(losses)
        gradients = torch.autograd.grad((alpha * found).sum(), [*W, *Theta])
        with torch.no_grad():
            for parameter, gradient in zip([*W, *Theta], gradients, strict=True):
                parameter -= eta * gradient
            alpha = (alpha * (1.0 - (1.0 - beta) * found.detach())).clamp_min(floor)
            alpha = alpha / alpha.sum()
    return (time.thread_time() - begun) / triplets


def compiled(T: Rows, arguments: dict[str, Any]) -> float:
    """Seconds a triplet of the learner, in blocks."""
    learner = OAHU(**arguments)
    learner.learn_triplets(*T[:BLOCK].transpose(1, 0, 2))
    begun = time.thread_time()
    for start in range(0, len(T), BLOCK):
        learner.learn_triplets(*T[start : start + BLOCK].transpose(1, 0, 2))
    return (time.thread_time() - begun) / len(T)


def growth(T: Rows, passes: int) -> float:
    """Bytes by which the process grows over so many passes, behind the first."""
    learner, process = OAHU(), psutil.Process()
    before = 0
    for number in range(passes + 1):
        for start in range(0, len(T), BLOCK):
            learner.learn_triplets(*T[start : start + BLOCK].transpose(1, 0, 2))
        if number == 0:
            before = process.memory_info().rss
    return float(process.memory_info().rss - before)


def figures(quick: bool) -> list[Figure]:
    """Both variants at every size."""
    found: list[Figure] = []
    with one_thread(), one_blas_thread():
        for d in DIMENSIONS:
            m = TRIPLETS // 4 if quick else TRIPLETS
            T = np.random.default_rng(d).normal(size=(m, 3, d)).astype(np.float32)
            tries = 1 if quick else TRIES
            slow = min(eager(T, 100 if quick else 400) for _ in range(tries))
            for variant in ("published", "anchored"):
                fast = min(compiled(T, {"variant": variant, "layers": 5}) for _ in range(tries))
                label = f"{variant}, d = {d}"
                facts = {"torch": slow, "triplets": m}
                found += [
                    Figure("oahu", f"{label}: a triplet", 1e6 * fast, "microseconds", facts=facts),
                    Figure("oahu", f"{label}: over torch", slow / fast, "times", at_least=8.0, goal=15.0),
                ]
        more = growth(T[:1_000], 3 if quick else 20) / 2**20
        found.append(Figure("oahu", "growth over 20 passes at d = 1024", more, "MiB", at_most=4.0))
    return found
