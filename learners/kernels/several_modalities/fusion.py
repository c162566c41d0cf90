"""The compiled loop behind the best modality so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled

Vector = NDArray[np.float64]


@compiled
def leader(wrong: Vector, seen: Vector) -> int:
    """The modality with the smallest share of mistakes; the first of equal ones, or without counts."""
    best, least = 0, np.inf
    for i in range(len(wrong)):
        rate = wrong[i] / seen[i] if seen[i] > 0.0 else np.inf
        if rate < least:
            best, least = i, rate
    return best


@compiled
def follow(
    mistakes: NDArray[np.int8],
    ends: NDArray[np.int32],
    keep: float,
    wrong: Vector,
    seen: Vector,
    chosen: NDArray[Any],
) -> None:
    """Fill in the best modality before each constraint's event, then count its mistakes.

    Parameters
    ----------
    mistakes : (m, n) of m modalities on n constraints, -1 where undefined.
    ends : (n,) see `kinstream.learners.kernels.events.Judged`.
    keep : factor of all earlier counts, for a new constraint.
    wrong, seen : (m,) decayed numbers of mistakes and of constraints; changed in place.
    chosen : (n,) filled in.
    """
    end = 0
    for t in range(mistakes.shape[1]):
        if t >= end:
            chosen[t] = leader(wrong, seen)
            end = ends[t] if len(ends) > 0 else 0
        else:
            chosen[t] = chosen[t - 1]
        for i in range(len(wrong)):
            if mistakes[i, t] >= 0:
                wrong[i] = keep * wrong[i] + mistakes[i, t]
                seen[i] = keep * seen[i] + 1.0
