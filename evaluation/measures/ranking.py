"""Measures of one ranking, from the places of its relevant items."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Number of items for NDCG.
NDCG_ITEMS: Final = 10

Places = NDArray[np.int64]


def ndcg(places: Places, k: int = NDCG_ITEMS) -> float:
    """Normalised discounted cumulative gain of the first k items, where an item is relevant or not.

    Parameters
    ----------
    places : (r,) ranks of all relevant items, from 1 and ascending; at least one.

    Notes
    -----
    An item at rank p gains 1 / log2(p + 1); the sum is divided by that of the best ranking (Järvelin, Kekäläinen 2002).

    Examples
    --------
    >>> ndcg(np.array([1, 2])), round(ndcg(np.array([2])), 3), ndcg(np.array([11]))
    (1.0, 0.631, 0.0)
    """
    gained = np.sum(1.0 / np.log2(places[places <= k] + 1.0))
    return float(gained / np.sum(1.0 / np.log2(np.arange(2, min(len(places), k) + 2))))


def reciprocal_rank(places: Places) -> float:
    """1 / the rank of the first relevant item; parameters as of `ndcg`."""
    return float(1.0 / places[0])
