"""OAHU in use: rows a second that are embedded, classified, verified and retrieved, against numpy query by query.

A gallery of 10,000 rows of d = 784 with ten classes, 10 neighbours for retrieval and 5 for the vote. The network has
learned from triplets of these classes. The loops do for one row, in numpy, what the library does for many. Rows are
embedded already where they are classified, verified or retrieved: what that costs is a figure of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from kinstream.learners.oahu import votes
from kinstream.learners.oahu.learner import OAHU
from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]

GALLERY: Final = 10_000
DIMENSION: Final = 784
CLASSES: Final = 10
TRIPLETS: Final = 600
NEIGHBOURS: Final = 5
TOP: Final = 10
THRESHOLD: Final = 0.4
REPEATS: Final = 3


def clustered(n: int, draw: np.random.Generator) -> tuple[Rows, NDArray[np.int64]]:
    """Rows (n, 784) around a centre by class, and the classes."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, DIMENSION))
    labels = draw.integers(0, CLASSES, n)
    return (0.3 * centres[labels] + draw.normal(size=(n, DIMENSION))).astype(np.float32), labels


def learned(X: Rows, labels: NDArray[np.int64], variant: str) -> OAHU:
    """A learner of triplets of the rows."""
    draw = np.random.default_rng(1)
    order = np.argsort(labels, kind="stable")
    anchors = draw.integers(0, len(X) - 1, TRIPLETS)
    negatives = order[(anchors + len(X) // 2) % len(X)]
    learner = OAHU(variant)
    learner.learn_triplets(X[order[anchors]], X[order[anchors + 1]], X[negatives])
    return learner


def put_forward(weights: list[float], gallery: list[Rows], query: list[Rows], k: int) -> Any:
    """Rows (E, k) and votes (E, k) of one query."""
    items, ballots = [], []
    for weight, near, asked in zip(weights, gallery, query, strict=True):
        moved = near - asked
        D = np.sqrt(np.einsum("ij,ij->i", moved, moved))
        found = np.argpartition(D, k - 1)[:k]
        found = found[np.argsort(D[found], kind="stable")]
        span = D[found[-1]] - D[found[0]]
        items.append(found)
        ballots.append(weight * np.exp(-(D[found] - D[found[0]]) / (span if span >= 1e-12 else np.inf)))
    return np.array(items), np.array(ballots)


def classify_one(
    weights: list[float], gallery: list[Rows], labels: NDArray[np.int64], query: list[Rows]
) -> int:
    """The label of one query."""
    items, ballots = put_forward(weights, gallery, query, NEIGHBOURS)
    return int(np.bincount(labels[items.ravel()], ballots.ravel()).argmax())


def retrieve_one(weights: list[float], gallery: list[Rows], query: list[Rows]) -> Any:
    """The rows with the best votes for one query."""
    items, ballots = put_forward(weights, gallery, query, TOP)
    best = np.full(len(gallery[0]), -np.inf)
    np.maximum.at(best, items.ravel(), ballots.ravel())
    return np.argsort(-best, kind="stable")[:TOP]


def verify_one(weights: list[float], left: list[Rows], right: list[Rows]) -> bool:
    """Whether one pair is similar."""
    found = 0.0
    for weight, one, other in zip(weights, left, right, strict=True):
        if np.linalg.norm(one - other) / 2.0 < THRESHOLD:
            found += weight
    return found >= 0.5


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Least time of several runs."""
    best = np.inf
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def measure(variant: str, quick: bool) -> list[Figure]:
    """All applications of one variant. The library gets many rows, the loop a few of them."""
    X, labels = clustered(GALLERY, np.random.default_rng(2))
    U, _ = clustered(1_000 if quick else 2_000, np.random.default_rng(3))
    V, _ = clustered(len(U), np.random.default_rng(4))
    learner = learned(X, labels, variant)
    weights = list(learner.weights.values())
    gallery, left, right = learner.embed(X), learner.embed(U), learner.embed(V)
    few, pairs = range(20 if quick else 40), range(1_000)

    def at(tables: list[Rows], j: int) -> list[Rows]:
        return [table[j] for table in tables]

    # By name: rows and the work of the library, rows and that of the loop.
    works: dict[str, tuple[int, Callable[[], object], int, Callable[[], object]]] = {
        "embed": (
            len(X),
            lambda: learner.embed(X),
            len(pairs),
            lambda: [learner.embed(X[j : j + 1]) for j in pairs],
        ),
        "transform (embed and concatenate)": (
            len(X),
            lambda: learner.transform(X),
            len(pairs),
            lambda: [learner.transform(X[j : j + 1]) for j in pairs],
        ),
        f"classify, k = {NEIGHBOURS}": (
            len(U),
            lambda: votes.classify(weights, gallery, labels, left, NEIGHBOURS),
            len(few),
            lambda: [classify_one(weights, gallery, labels, at(left, j)) for j in few],
        ),
        f"retrieve, top {TOP}": (
            len(U),
            lambda: votes.retrieve(weights, gallery, left, TOP),
            len(few),
            lambda: [retrieve_one(weights, gallery, at(left, j)) for j in few],
        ),
        "verify, pairs": (
            len(U),
            lambda: votes.verify(weights, left, right, THRESHOLD),
            len(pairs),
            lambda: [verify_one(weights, at(left, j), at(right, j)) for j in pairs],
        ),
    }
    found = []
    for name, (rows, library, some, loop) in works.items():
        repeats = 1 if quick else REPEATS
        fast, slow = seconds(library, repeats) / rows, seconds(loop, repeats) / some
        label = f"oahu {variant}, {name}"
        facts = {
            "rows": rows,
            "metrics": len(weights),
            "gallery": GALLERY,
            "loop_rows": some,
            "loop": 1 / slow,
        }
        found.append(Figure("oahu-applications", label, 1.0 / fast, "rows/s", facts=facts))
        found.append(Figure("oahu-applications", f"{label}: over the loop", slow / fast, "times"))
    return found


def figures(quick: bool) -> list[Figure]:
    """Both variants, on one thread of BLAS."""
    with one_blas_thread():
        return [figure for variant in ("anchored", "published") for figure in measure(variant, quick)]
