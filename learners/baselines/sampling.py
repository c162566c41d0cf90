"""Random pairs of a whole data set, and the distances of those pairs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.targets import PERCENTILES

#: Up to that many vectors, percentiles are taken over all pairs of them...
ALL_PAIRS: Final = 150
#: ...and over so many random pairs otherwise.
SAMPLED_PAIRS: Final = 10_000


def squared_percentiles(X: NDArray[np.float64], seed: int = 0) -> tuple[float, float] | None:
    """5th and 95th percentile of the positive squared distances between vectors.

    Parameters
    ----------
    X : (n, d); all pairs of up to 150 vectors, 10,000 random pairs of more.
    seed : of the random pairs.

    Returns
    -------
    tuple of float, or None
        None if no two vectors differ. If both percentiles are equal, the first is half of the second.

    Examples
    --------
    >>> squared_percentiles(np.array([[0.0], [1.0], [1.0]]))
    (0.5, 1.0)
    """
    if len(X) <= ALL_PAIRS:
        i, j = np.triu_indices(len(X), 1)
    else:
        draw = np.random.default_rng(seed)
        i = draw.integers(0, len(X), SAMPLED_PAIRS)
        j = (i + draw.integers(1, len(X), SAMPLED_PAIRS)) % len(X)
    Z = X[i] - X[j]
    squared = np.einsum("ij,ij->i", Z, Z)
    squared = squared[(squared > 0.0) & np.isfinite(squared)]
    if squared.size == 0:
        return None
    low, high = (float(value) for value in np.percentile(squared, PERCENTILES))
    return (low if low < high else high / 2.0), high


def random_pairs(y: NDArray[Any], n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
    """Pairs of labelled vectors, half of them similar.

    Parameters
    ----------
    y : (k,) classes; two at least, and one with two vectors.
    n : pairs to draw, with replacement. The first vector of a pair is uniform over those that have a partner, the
        second over its partners.
    seed : of the draw.

    Returns
    -------
    tuple
        (n, 2) numbers of vectors, and the signs (n,): the similar pairs come first.

    Raises
    ------
    ValueError
        The classes allow no such pairs.
    """
    _, group, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(counts) < 2 or counts.max() < 2:
        raise ValueError("pairs need two classes or more, and a class of two vectors or more")
    draw = np.random.default_rng(seed)
    # Vectors are sorted by class: the partners of one are consecutive places, cyclically within the class.
    order = np.argsort(group, kind="stable")
    start = np.cumsum(counts) - counts
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))

    similar = draw.choice(np.flatnonzero(counts[group] > 1), n // 2)
    begin, size = start[group[similar]], counts[group[similar]]
    mates = order[begin + (place[similar] - begin + draw.integers(1, size)) % size]

    anchors = draw.integers(0, len(y), n - n // 2)
    size = counts[group[anchors]]
    end = start[group[anchors]] + size
    others = order[(end + draw.integers(0, len(y) - size)) % len(y)]

    index = np.concatenate([np.column_stack([similar, mates]), np.column_stack([anchors, others])])
    return index, np.repeat(np.array([1, -1], np.int8), [len(similar), len(anchors)])
