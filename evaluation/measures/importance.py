"""The share of every feature in a metric.

A metric that is |L (z(x) - z(y))|^2, with a coordinate z_j for each feature j, has over pairs of rows the mean

    2 trace(M S) = 2 sum_j (M S)_jj,    M = L^T L,

S the covariance of the coordinates. The share of feature j is (M S)_jj / trace(M S). Shares add to 1. For a linear
metric they do not depend on the units of the features: in other units, x' = D x, M becomes D^-1 M D^-1 and S becomes
D S D. A share can be negative: such a feature brings pairs closer that other features separate. A direction x / |x| has
a coordinate for each feature too, so cosine and mixtures have shares by the same formula; a feature's effect on the
length is not included.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.mixture.learner import Mixture
from kinstream.streams.errors import CheckpointError, SettingsError

Features = NDArray[np.floating[Any]]
Parts = list[tuple[Features, Features]]

#: Rows that the covariance is calculated from, at most.
ROWS: Final = 2_000
#: Relative difference from the learner's own distances that rounding can explain.
_ROUNDING: Final = 1e-2


def shares(model: Any, X: Features) -> NDArray[np.float64] | None:
    """The share (d,) of each feature in the mean squared distance of pairs of rows.

    Parameters
    ----------
    model : a learner of one table, with `transform`.
    X : (n, d) raw features.

    Returns
    -------
    None if the metric is not of the form above, such as OAHU's network, or if all rows are equally near.
    """
    rows = np.asarray(X)[:ROWS]
    parts = coordinates(model, rows)
    if parts is None or len(rows) < 2 or not _explains(parts, np.asarray(model.transform(rows), np.float64)):
        return None
    found = np.zeros(rows.shape[1])
    for Z, L in parts:
        centred = np.asarray(Z, np.float64) - np.mean(Z, axis=0, dtype=np.float64)
        mapped = centred @ np.asarray(L, np.float64).T
        # (M S)_jj = cov(L z, z_j) . L_j, without a matrix of d x d.
        found += np.einsum("kj,kj->j", mapped.T @ centred, L).reshape(-1, len(found)).sum(axis=0) / len(rows)
    total = float(found.sum())
    return found / total if np.isfinite(total) and total > 0.0 else None


def coordinates(model: Any, X: Features) -> Parts | None:
    """Coordinates (n, c d) and maps (k, c d) whose squared distances add to those of the metric, or None.

    Coordinates of the d features may come several times, one after the other.
    """
    if not hasattr(model, "scale"):
        return None
    Z = np.asarray(model.scale(X))
    try:
        if isinstance(model, Mixture):
            # The parts are added up, so they are one map of all their coordinates.
            views, maps = zip(*model.metric, strict=True)
            return [(np.concatenate([view.apply(Z) for view in views], axis=1), np.concatenate(maps, axis=1))]
    except (CheckpointError, ValueError):
        # It is in its warm-up, and is Euclidean distance until its end.
        return [(Z, np.eye(Z.shape[1]))]
    try:
        L = np.asarray(getattr(model, "map", np.empty(0)))
    except (SettingsError, ValueError, NotImplementedError):
        # A network or a kernel, for example, is no linear map.
        return None
    return [(Z, L)] if L.ndim == 2 and L.shape[1] == Z.shape[1] else None


def _explains(parts: Parts, mapped: Features) -> bool:
    """Whether neighbouring rows are as far as under the metric."""
    ours = sum(np.sum((np.diff(Z, axis=0) @ np.asarray(L, np.float64).T) ** 2, axis=1) for Z, L in parts)
    theirs = np.sum(np.diff(mapped, axis=0) ** 2, axis=1)
    return bool(np.allclose(ours, theirs, rtol=_ROUNDING, atol=_ROUNDING * float(np.mean(theirs))))
