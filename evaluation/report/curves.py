"""Curves of several splits as one: the mean and its deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Line = Mapping[str, Any]

#: Points of a mean curve, at most.
POINTS: Final = 200
#: Streams whose lengths differ by no more than this factor are drawn to one length.
_ALIKE: Final = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class MeanCurve:
    """A mean curve.

    Parameters
    ----------
    x : (m,) ascending.
    mean : (m,) over the splits that reach x.
    std : (m,) with n - 1; NaN if only one split reaches x.
    """

    x: Values
    mean: Values
    std: Values

    @property
    def last(self) -> float:
        """Where it ends."""
        return float(self.mean[-1])


def share(cells: Sequence[Line], part: str, whole: str) -> MeanCurve | None:
    """A cumulative share over constraints, such as mistakes of scored ones; None if nothing is known.

    Counts between two points of a curve are interpolated, and the shares are averaged. If the streams of all splits are
    of nearly one length, as for halves of a data set, each is stretched to their mean length, so that the end of the
    curve does not come from single splits.
    """
    curves = [
        tuple(np.asarray(cell["curve"][name], np.float64) for name in ("constraints", part, whole))
        for cell in cells
        if cell.get("curve") and len(cell["curve"]["constraints"])
    ]
    if not curves:
        return None
    places = _aligned([at for at, _, _ in curves])
    x = _thinned(np.unique(np.concatenate(places)))
    rows = []
    for at, (_, some, all_) in zip(places, curves, strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.interp(x, at, some) / np.interp(x, at, all_)
        rows.append(np.where((x >= at[0]) & (x <= at[-1]) & np.isfinite(ratio), ratio, np.nan))
    return _mean(x, np.array(rows))


def _mean(x: Values, rows: Values) -> MeanCurve | None:
    """Mean and deviation of the rows (s, m) that are known at each point; points without any are dropped."""
    known = np.isfinite(rows)
    count = known.sum(axis=0)
    some = count > 0
    if not some.any():
        return None
    x, rows, known, count = x[some], rows[:, some], known[:, some], count[some]
    mean = np.where(known, rows, 0.0).sum(axis=0) / count
    square = np.where(known, rows - mean, 0.0) ** 2
    std = np.sqrt(square.sum(axis=0) / np.where(count > 1, count - 1, np.nan))
    return MeanCurve(x, mean, std)


def _aligned(places: Sequence[Values]) -> list[Values]:
    """Places along streams, on a common scale where the streams are of nearly one length."""
    ends = np.array([at[-1] for at in places])
    if ends.min() <= 0.0 or ends.max() > _ALIKE * ends.min():
        return list(places)
    # Rounded, so that ends that are equal are equal in their last bit.
    return [np.round(at * (ends.mean() / at[-1]), 6) for at in places]


def _thinned(x: Values) -> Values:
    if len(x) <= POINTS:
        return x
    kept: Values = x[np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(np.int64))]
    return kept
