"""The nearest of some items by exact distance."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from learners.kernels.threads import one_blas_thread
from search.lsh.items import Items, Slots
from search.lsh.metric import Metric

#: Differences are mapped in tables of this many rows, the last one filled up: a product's bits can depend on how many
#: rows it has, and equal vectors are to have equal distances.
_ROWS: Final = 16
#: Errors of a sum of d products grow with the root of d; this is eight times what they come to.
_SPREAD: Final = 8.0


def rounding(d: int, dtype: Any) -> float:
    """A sum of d products in that type is off by at most this times the lengths of the two factors."""
    return float(_SPREAD * np.sqrt(d) * np.finfo(dtype).eps)


def distances(q: NDArray[np.float64], slots: Slots, items: Items, metric: Metric) -> NDArray[np.float64]:
    """|G (q - x)|^2 in float64 of the items in some slots."""
    found = np.empty(len(slots))
    Z = np.zeros((_ROWS, metric.d))
    with one_blas_thread():
        for first in range(0, len(slots), _ROWS):
            piece = slots[first : first + _ROWS]
            np.subtract(q, items.X[piece], out=Z[: len(piece)])
            mapped = metric.apply(Z)
            found[first : first + len(piece)] = np.einsum("ij,ij->i", mapped, mapped)[: len(piece)]
    return found


def foremost(q: NDArray[np.float64], slots: Slots, k: int, items: Items, metric: Metric) -> Slots:
    """Those of the items in some slots that can be among the k nearest, by distances in the items' own type."""
    if len(slots) <= max(k, _ROWS):
        return slots
    dtype = items.X.dtype
    with one_blas_thread():
        Z = q.astype(dtype) - items.X[slots]
        mapped = metric.apply(Z)
    length = np.sqrt(np.einsum("ij,ij->i", mapped, mapped, dtype=np.float64))
    doubt = rounding(metric.d, dtype) * metric.size * np.sqrt(np.einsum("ij,ij->i", Z, Z, dtype=np.float64))
    # Written so that what has overflowed stays in.
    near = ~(length - doubt > np.partition(length + doubt, k - 1)[k - 1])
    return np.asarray(slots[near])


def nearest(
    slots: Slots, squared: NDArray[np.float64], items: Items, k: int
) -> tuple[Slots, NDArray[np.float64]]:
    """The k nearest, nearest first; of equal distances the item that was put first."""
    if len(slots) > k:
        # All that are as near as the k-th, so that order decides among them.
        kept = squared <= np.partition(squared, k - 1)[k - 1]
        slots, squared = slots[kept], squared[kept]
    order = np.lexsort((items.order[slots], squared))[:k]
    return slots[order], squared[order]
