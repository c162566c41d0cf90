"""Groups of vectors that are similar to each other, from similar pairs; RCA calls them chunklets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.extras import importing


def chunklets(n: int, similar: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """The connected component of every vector, under the similar pairs.

    Parameters
    ----------
    n : number of vectors.
    similar : (m, 2) similar pairs of them.

    Returns
    -------
    ndarray
        (n,) numbers from 0 in the order of the components' first vectors; a vector without a partner has its own.

    Examples
    --------
    >>> chunklets(5, np.array([[3, 1], [4, 3]])).tolist()
    [0, 1, 2, 1, 1]
    """
    with importing("RCA"):
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(similar), np.int8), (similar[:, 0], similar[:, 1])), shape=(n, n))
    found = connected_components(edges, directed=False)[1]
    _, first, numbers = np.unique(found, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.intp)
    order[np.argsort(first)] = np.arange(len(first))
    return order[numbers]


def of_size(labels: NDArray[np.intp], least: int) -> NDArray[np.bool_]:
    """Which vectors (n,) are in a component of at least that many."""
    return np.asarray(np.bincount(labels, minlength=1)[labels] >= least)
