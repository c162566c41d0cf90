"""The LEGO paper's interleaved protocol: constraints and queries mixed at random, and what each constraint changes.

The learner runs once, before anything is timed, so that all ways of searching meet the same changes of the metric.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared_sets import SharedSet
from kinstream.learners.one_modality.lego import LEGO

Matrix = NDArray[np.float64]
#: Step size times the squared mean squared distance of two items.
ETA: Final = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the metric, G <- G + U V, by the constraints between two queries."""

    U: Matrix
    V: Matrix


@dataclass(frozen=True, slots=True)
class Log:
    """What an index meets.

    Parameters
    ----------
    X : (n, d) float32 items, and Q : (m, d) queries, which are not among them.
    steps : for each query, what changes before it; None where no constraint came in between or none was utilised.
    after : (m, d) queries for when learning is over.
    constraints, utilised : counts.
    learning_seconds : of processor time, of the learner for all constraints.
    """

    name: str
    X: NDArray[np.float32]
    Q: NDArray[np.float32]
    steps: list[Step | None]
    after: NDArray[np.float32]
    constraints: int
    utilised: int
    learning_seconds: float


def log(data: SharedSet, n: int, m: int, constraints: int, d: int | None = None, seed: int = 0) -> Log:
    """A log over n items of a set, with m queries during learning and as many after it.

    Parameters
    ----------
    d : project on this many principal components of the items; None to use the images as they are.
    """
    draw = np.random.default_rng([seed, n, m, constraints])
    order = draw.permutation(len(data.y))[: n + 2 * m]
    X, y = prepared(data.X[order], n, d), data.y[order]
    left, right, signs = _pairs(y[:n], constraints, draw)
    apart = np.asarray(np.sum((X[left] - X[right]) ** 2, axis=1, dtype=np.float64))
    near, far = np.percentile(apart[apart > 0.0], (5, 95))
    learner = LEGO(
        unit="published", eta=ETA / float(apart.mean()) ** 2, y_similar=float(near), y_dissimilar=float(far)
    )
    before: NDArray[Any] = np.eye(X.shape[1])
    # The constraints that come before each query.
    ends = np.sort(draw.integers(0, constraints + 1, m))
    steps: list[Step | None] = []
    seconds, utilised, begin = 0.0, 0, 0
    for end in ends:
        step = None
        if end > begin:
            U, V = X[left[begin:end]], X[right[begin:end]]
            begun = time.thread_time()
            outcomes = learner.learn_pairs(U, V, signs[begin:end]).counts()
            seconds += time.thread_time() - begun
            utilised += outcomes.utilised
            if outcomes.utilised:
                after = learner.G
                step = factored(before, after, (U - V).astype(np.float64))
                before = after
        steps.append(step)
        begin = end
    name = data.name.removesuffix("_bymerge") + ("" if d is None else f", d = {d}")
    return Log(name, X[:n], X[n : n + m], steps, X[n + m :], int(ends[-1]), utilised, seconds)


def factored(before: NDArray[Any], after: NDArray[Any], Z: NDArray[Any]) -> Step:
    """U and V of after = before + U V, for a LEGO learner that met pairs with the differences Z (r, d).

    All rows of the change lie in the span of A Z', A = G'G before it.
    """
    basis, _ = np.linalg.qr(before.T @ (before @ Z.T))
    return Step((after - before) @ basis, np.ascontiguousarray(basis.T))


def prepared(X: NDArray[Any], n: int, d: int | None = None) -> NDArray[np.float32]:
    """Centred, and divided by one scale, by the statistics of the first n rows; on d principal components of those."""
    wide = X.astype(np.float32)
    wide -= wide[:n].mean(axis=0, dtype=np.float64).astype(np.float32)
    wide /= np.sqrt(np.mean(np.square(wide[:n]), dtype=np.float64)).astype(np.float32)
    if d is None:
        return wide
    sampled = wide[: min(n, 10_000)].astype(np.float64)
    axes = np.linalg.eigh(sampled.T @ sampled)[1][:, ::-1][:, :d]
    return np.ascontiguousarray(wide @ axes.astype(np.float32))


def _pairs(
    y: NDArray[np.int64], m: int, draw: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """m random pairs of rows, one half of them of one class."""
    order = np.argsort(y, kind="stable")
    sizes = np.bincount(y)
    starts = np.cumsum(sizes) - sizes
    left, right = draw.integers(0, len(y), m), draw.integers(0, len(y), m)
    alike = draw.random(m) < 0.5
    right = np.where(alike, order[starts[y[left]] + draw.integers(0, sizes[y[left]])], right)
    return left, right, np.where(y[left] == y[right], 1, -1).astype(np.int8)
