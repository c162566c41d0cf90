"""Whether a measured size has stayed flat: a robust slope over what comes after the warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

#: More points than this are thinned out: the slopes of all pairs are compared.
_MOST: Final = 400


@dataclass(frozen=True, slots=True)
class Trend:
    """What a size has done.

    Parameters
    ----------
    median : of the values.
    slope : Theil-Sen estimate, per second.
    rise : by so much it has grown over the time watched, at that slope.
    certain : whether at least 90 % of the pairs of points (beyond what noise gives) rise.
    """

    seconds: float
    points: int
    median: float
    slope: float
    rise: float
    certain: bool


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """The trend of a series: the median of the slopes between all pairs of points, which a few jumps do not move.

    Raises
    ------
    ValueError : fewer than three points.
    """
    if len(times) < 3:
        raise ValueError(f"{len(times)} points make no trend")
    step = max(1, -(-len(times) // _MOST))
    t, v = np.asarray(times[::step], float), np.asarray(values[::step], float)
    first, second = np.triu_indices(len(t), 1)
    slopes = (v[second] - v[first]) / (t[second] - t[first])
    slope = float(np.median(slopes))
    seconds = float(t[-1] - t[0])
    rising = float(np.mean(slopes > 0))
    return Trend(seconds, len(times), float(np.median(v)), slope, slope * seconds, rising >= 0.9)


def leaks(found: Trend, *, share: float, least: float) -> bool:
    """Whether it grows: steadily, by more than a share of its size in the time watched, and by at least so much."""
    return found.certain and found.rise > max(share * found.median, least)


def after_warm_up(
    times: Sequence[float], values: Sequence[float], warm_up: float
) -> tuple[list[float], list[float]]:
    """The points that are at least so many seconds after the first."""
    start = times[0] + warm_up if times else 0.0
    kept = [(t, v) for t, v in zip(times, values, strict=True) if t >= start]
    assert all(a[0] < b[0] for a, b in pairwise(kept))
    return [t for t, _ in kept], [v for _, v in kept]
