"""Which un-learned metric has the better neighbours, as far as vectors without labels tell: the one with fewer hubs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

NEIGHBOURS: Final = 10
#: How much an un-learned metric's share of the floor falls with the skewness.
STRENGTH: Final = 2.0


def shares(tables: list[Rows]) -> Vector:
    """Shares (k,) of k metrics, proportional to exp(-2 skewness of their hubs), from the same vectors under each.

    Parameters
    ----------
    tables : of (n, d_i) rows where Euclidean distance is that of the metric.
    """
    found = np.exp(-STRENGTH * np.array([skewness(table) for table in tables]))
    return np.asarray(found / found.sum(), np.float64)


def skewness(rows: Rows) -> float:
    """Skewness of how often one of the rows (n, d) is among the 10 nearest neighbours of others.

    Where few vectors are neighbours of most others, which is worse the more their lengths differ, votes of neighbours
    are poor (Radovanović, Nanopoulos, Ivanović: Hubs in space. Journal of Machine Learning Research 11, 2010, Eq. 1). 0
    where there are too few different rows to tell, or all are equally often.
    """
    rows = np.unique(np.asarray(rows, np.float64), axis=0)
    n = len(rows)
    if n < NEIGHBOURS + 2:
        return 0.0
    times = np.zeros(n)
    for at, row in enumerate(rows):
        with np.errstate(all="ignore"):
            apart = np.square(rows - row).sum(axis=1)
        apart[at] = np.inf
        times[np.argsort(apart, kind="stable")[:NEIGHBOURS]] += 1.0
    moved = times - times.mean()
    spread = float(times.std())
    return float(np.mean(moved**3)) / spread**3 if spread > 0.0 else 0.0
