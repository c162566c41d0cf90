"""Adds up the outcomes of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compilation import compiled_map

Flags = NDArray[np.bool_]


@compiled_map
def tally(
    mistake: NDArray[np.int8],
    utilised: Flags,
    clipped: Flags,
    rejected: Flags,
    degenerate: Flags,
    ignored: Flags,
    split: Flags,
    loss: NDArray[np.float64],
    chosen: Flags,
    summed: Flags,
) -> Any:
    """The counts of `kinstream.streams.records.values.Counts`, in its order, without the sum of losses.

    Parameters
    ----------
    mistake, utilised, clipped, rejected, degenerate, ignored, split, loss : of
        `kinstream.learners.base.learner.Outcomes`.
    chosen : (m,) the constraints to count, or without entries: all.
    summed : (m,) filled in: seen, and the loss is a number.
    """
    seen = scored = wrong = used = cut = refused = flat = without = split_scored = split_wrong = 0
    for t in range(len(mistake)):
        summed[t] = False
        if len(chosen) and not chosen[t]:
            continue
        if rejected[t]:
            refused += 1
        if ignored[t]:
            without += 1
        if rejected[t] or ignored[t]:
            continue
        seen += 1
        summed[t] = np.isfinite(loss[t])
        if utilised[t]:
            used += 1
        if clipped[t]:
            cut += 1
        if degenerate[t]:
            flat += 1
        if mistake[t] < 0:
            continue
        if split[t]:
            split_scored += 1
            split_wrong += 1 if mistake[t] == 1 else 0
        else:
            scored += 1
            wrong += 1 if mistake[t] == 1 else 0
    return seen, scored, wrong, used, cut, refused, flat, without, split_scored, split_wrong
