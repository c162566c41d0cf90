"""Neighbourhood components analysis in one pass as a user would write it: the latest rows of each class, and Adam.

Goldberger, Roweis, Hinton, Salakhutdinov: Neighbourhood components analysis. NIPS 2004.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating[Any]]
Codes = NDArray[np.int64]

#: Rows of a class that are remembered, and rows of a step.
LATEST: Final = 20
BATCH: Final = 16
STEP: Final = 0.01


def maps(X: Rows, y: Codes, draw: np.random.Generator, lengths: Sequence[int]) -> Iterator[Rows]:
    """The map (d, d) of scaled rows after each number of rows, which come in new orders again and again.

    Parameters
    ----------
    X : (n, d), scaled; y : (n,) their classes, of which there are two or more.
    """
    d = X.shape[1]
    W = np.eye(d) / np.sqrt(d)
    first, second, gradient = np.zeros_like(W), np.zeros_like(W), np.zeros_like(W)
    memory: dict[int, list[Rows]] = {}
    seen = 0
    for length in lengths:
        while seen < length:
            for row in draw.permutation(len(y))[: length - seen]:
                others = np.array([one for kept in memory.values() for one in kept]).reshape(-1, d)
                own = np.array([label == y[row] for label, kept in memory.items() for _ in kept], np.bool_)
                gradient += _gradient(W, X[row] - others, own)
                kept = memory.setdefault(int(y[row]), [])
                kept.append(X[row])
                del kept[:-LATEST]
                seen += 1
                if seen % BATCH == 0:
                    k, mean = seen // BATCH, gradient / BATCH
                    first = 0.9 * first + 0.1 * mean
                    second = 0.999 * second + 0.001 * mean * mean
                    root = np.sqrt(second / (1 - 0.999**k)) + 1e-8
                    W = W - STEP / np.sqrt(d) * first / (1 - 0.9**k) / root
                    gradient = np.zeros_like(W)
        yield W


def _gradient(W: Rows, apart: Rows, own: NDArray[np.bool_]) -> Rows:
    """Of -log of the share of a row's own class, from its differences (m, d) to what is remembered."""
    if not own.any() or own.all():
        return np.zeros_like(W)
    mapped = apart @ W.T
    share = -np.einsum("ij,ij->i", mapped, mapped)
    share = np.exp(share - share.max())
    share /= share.sum()
    # A class of which nothing is near has a share that is no number above zero.
    pull = np.where(own, share / max(float(share[own].sum()), 1e-300), 0.0) - share
    return np.asarray(2.0 * (mapped * pull[:, None]).T @ apart)
