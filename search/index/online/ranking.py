"""The nearest of some items by exact distance."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.online.base import First
from kinstream.search.index.online.lengths import lengths
from kinstream.search.index.online.metric import Metric
from kinstream.search.index.online.vectors import Slots, VectorSlots
from kinstream.streams.compute.blas_threads import one_blas_thread

#: Differences are mapped in tables of this many rows, the last one filled up: a product's bits can depend on how many
#: rows it has, and equal vectors are to have equal distances.
_ROWS: Final = 16
#: Errors of a sum of d products usually grow with the root of d; this is eight times their usual size.
_SPREAD: Final = 8.0
#: Items for each neighbour that are left after a ranking by one hyperplane, and half of that after one by two.
_SHORT: Final = 1_600


def rounding(d: int, dtype: Any) -> float:
    """A sum of d products in that type, in any order, is off by at most this times the lengths of the two factors.

    Underflow adds to it: see `underflow`.
    """
    return float(max(_SPREAD * np.sqrt(d), d / 2.0 + _SPREAD) * np.finfo(dtype).eps)


def underflow(d: int, dtype: Any) -> float:
    """Largest error of a sum of d products in that type because products underflow."""
    return float(2.0 * d * np.finfo(dtype).tiny)


def distances(
    q: NDArray[np.float64], slots: Slots, items: VectorSlots, metric: Metric
) -> NDArray[np.float64]:
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


def foremost(q: NDArray[np.float64], slots: Slots, k: int, items: VectorSlots, metric: Metric) -> Slots:
    """The items in some slots that can be among the k nearest, by distances in the items' own type."""
    if len(slots) <= max(k, _ROWS):
        return slots
    dtype = items.X.dtype
    with one_blas_thread():
        Z = q.astype(dtype) - items.X[slots]
        mapped = metric.apply(Z)
    length = lengths(mapped)
    doubt = rounding(metric.d, dtype) * metric.size * lengths(Z)
    # Written so that overflowed values stay in.
    near = ~(length - doubt > np.partition(length + doubt, k - 1)[k - 1])
    return np.asarray(slots[near])


def projected(q: NDArray[np.float64], slots: Slots, k: int, items: VectorSlots, metric: Metric) -> Slots:
    """The items in some slots that are nearest by the hyperplanes alone, if that saves time.

    |P (q - x)|^2 / bits estimates |G (q - x)|^2, with a relative standard deviation of the root of 2 / bits (Johnson
    and Lindenstrauss 1984; the rows of P = R G are those of a random normal R). With 256 hyperplanes 6.25 k items are
    kept, with fewer hyperplanes more.
    """
    kept = k * _SHORT // metric.bits
    if len(slots) == len(items) or kept + len(slots) * metric.bits / metric.k >= len(slots):
        return slots
    with one_blas_thread():
        away = lengths((q.astype(items.X.dtype) - items.X[slots]) @ metric.narrowed(items.X.dtype).T)
    # Overflowed values are NaN and come last.
    near = np.argsort(np.where(np.isnan(away), np.inf, away), kind="stable")[:kept]
    return np.asarray(slots[np.sort(near)])


def nearest(
    slots: Slots, squared: NDArray[np.float64], items: VectorSlots, k: int, first: First | None = None
) -> tuple[Slots, NDArray[np.float64]]:
    """The k nearest, nearest first; of equal distances the item inserted first.

    Parameters
    ----------
    first : chooses among those at the cut; see `kinstream.search.index.online.base.Index.search`.
    """
    if len(slots) > k:
        edge = np.partition(squared, k - 1)[k - 1]
        # All items as near as the k-th, so that order decides among them.
        kept = squared <= edge
        slots, squared = slots[kept], squared[kept]
        if first is not None and len(slots) > k:
            tied = slots[squared == edge]
            by_id = {items.ids[slot]: slot for slot in tied.tolist()}
            chosen = [by_id[name] for name in first(list(by_id), k - len(slots) + len(tied))]
            kept = (squared < edge) | np.isin(slots, chosen)
            slots, squared = slots[kept], squared[kept]
    order = np.lexsort((items.order[slots], squared))[:k]
    return slots[order], squared[order]
