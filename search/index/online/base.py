"""The interface of every index of vectors under a changing metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: Chooses that many of some ids.
First = Callable[[Sequence[str], int], list[str]]


@dataclass(frozen=True, slots=True)
class NearestItems:
    """The nearest items of m queries.

    Parameters
    ----------
    ids : for each query at most k ids, nearest first; of equal distances the item that was put first comes first.
    distances : (m, k) float64, squared distances of those items under the metric of the search; infinite where
        there are fewer than k.
    examined : (m,) int64, items whose distance was computed, for each query.
    """

    ids: list[list[str]]
    distances: NDArray[np.float64]
    examined: NDArray[np.int64]


@dataclass(slots=True)
class Counters:
    """Statistics of an index since it was created.

    Parameters
    ----------
    searches : queries answered.
    examined : items whose distance was computed, over all queries.
    updates : utilised steps of the metric, a step of rank r counting r times; a new metric counts once.
    rebuilds : times that all keys were recomputed.
    rebuild_seconds, repair_seconds, update_seconds : time spent on rebuilds, on finding and flipping stale bits, and on
        steps of the metric.
    checked : bits of the stored keys that were computed exactly because they could be stale.
    flipped : number of them that were stale.
    drift : largest relative error found in P = R G when P was recomputed.
    drift_faults : times that it was above 1e-8, which no sequence of steps should cause.
    """

    searches: int = 0
    examined: int = 0
    updates: int = 0
    rebuilds: int = 0
    rebuild_seconds: float = 0.0
    repair_seconds: float = 0.0
    update_seconds: float = 0.0
    checked: int = 0
    flipped: int = 0
    drift: float = 0.0
    drift_faults: int = 0

    def as_dict(self) -> dict[str, float]:
        """For metrics and JSON."""
        return asdict(self)


class Index(Protocol):
    """Items that are searched under a metric x -> matrix @ x + offset, both of which may change at any time.

    An index has no locks: one thread at a time may call it. Until a metric is given, distances are Euclidean.
    """

    stats: Counters

    def put(self, ids: Sequence[str], X: NDArray[Any]) -> None:
        """Insert items, or replace the vectors of existing ones; if an id is given twice, the last vector counts.

        Parameters
        ----------
        X : (n, d) features.

        Raises
        ------
        ValueError
            A shape does not fit, or a row is not finite; the message names the row, and nothing is changed.
        """
        ...

    def drop(self, ids: Sequence[str]) -> None:
        """Delete items; unknown ids are ignored."""
        ...

    def remap(self, matrix: NDArray[Any], offset: NDArray[Any] | None = None) -> None:
        """Set a new metric.

        Parameters
        ----------
        matrix : (k, d), and offset : (k,), zero by default. Distances do not depend on the offset, but keys do.

        Raises
        ------
        ValueError
            A shape does not fit, or a value is not finite; nothing is changed.
        """
        ...

    def step(self, U: NDArray[Any], V: NDArray[Any]) -> None:
        """Change the metric's matrix G to G + U V.

        Parameters
        ----------
        U : (k, r), and V : (r, d), or (r, d + 1) where the last column changes the offset, by U times it. For r
            utilised steps of LEGO, U has their alpha w as columns and V their g as rows.

        Raises
        ------
        ValueError
            A shape does not fit, or a value is not finite; nothing is changed.
        """
        ...

    def search(self, Q: NDArray[Any], k: int, first: First | None = None) -> NearestItems:
        """The k nearest items of each query.

        Parameters
        ----------
        Q : (m, d) features.
        first : chooses among equally near items at the cut: from ids and a number, that many of the ids.
            By default those inserted first.

        Raises
        ------
        ValueError
            A shape does not fit, k is below 1, or a row is not finite, which is named.
        """
        ...

    def __len__(self) -> int:
        """Number of items."""
        ...
