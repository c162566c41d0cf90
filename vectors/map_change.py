"""How far a map has moved: the share of neighbours that change, on a sample of the catalogue."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import Vectors
from kinstream.vectors.embedding import Embedding

#: Neighbours that are compared, items among which they are found, and items whose neighbours are compared.
NEAREST: Final = 10
AMONG: Final = 4_000
ASKED: Final = 500


def moved(before: Embedding, after: Embedding, X: Vectors, k: int = NEAREST) -> float:
    """The share of the k nearest neighbours of items that are others under another map.

    Items stand for queries: of each, the neighbours under a map are the items of the largest inner product of their
    vectors with the mapped query. The sample is spread evenly over the catalogue, so the share is repeatable.

    Parameters
    ----------
    X : (n, d) raw items.

    Returns
    -------
    0 for the same neighbours, 1 for none in common; 0 for fewer than two items.
    """
    among = X[_spread(len(X), AMONG)]
    asked = _spread(len(among), ASKED)
    k = min(k, len(among) - 1)
    if k < 1:
        return 0.0
    lists = [_nearest(one, among, asked, k) for one in (before, after)]
    same = [len(np.intersect1d(*rows)) for rows in zip(*lists, strict=True)]
    return 1.0 - float(np.sum(same)) / (k * len(asked))


def _spread(n: int, most: int) -> NDArray[Any]:
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64)) if n else np.empty(0, np.int64)


def _nearest(found: Embedding, X: Vectors, asked: NDArray[Any], k: int) -> NDArray[Any]:
    """The k nearest other items of each asked one, (m, k)."""
    queries = X[asked] @ found.query.T if len(found.query) else X[asked]
    scores = queries @ found(X).T
    scores[np.arange(len(asked)), asked] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]
