"""The rows that a blocked step measures for the events that begin in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Rows after a blocked step that are measured at once.
PIECE: Final = 256


def spans(
    ends: NDArray[np.int32], rows: slice, stop: int | None = None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Consecutive rows, from the start of the first event that begins in `rows` to the end of the last one.

    Parameters
    ----------
    stop : the latest end of a part; later parts have at most `PIECE` rows. None for one part.

    Returns
    -------
    iterator of places, began, several
        For each part its rows (k,); the first row of the newest event with several rows; and whether a row belongs to
        that event, but is not its first.
    """
    starts = np.flatnonzero(ends[rows]) + rows.start
    stops = ends[starts]
    first, last = int(starts[0]), int(stops[-1])
    cuts = [first, last] if stop is None else [first, *range(max(stop, first), last, PIECE), last]
    for begin, end in pairwise(cuts):
        places = np.arange(begin, end)
        newest = np.searchsorted(starts, places, side="right") - 1
        yield places, starts[newest], (places > starts[newest]) & (places < stops[newest])


def last_event(ends: NDArray[np.int32], start: int, stop: int) -> int:
    """The row in start .. stop at which the last event with several rows begins; `start` if there is none."""
    began = stop - 1
    while began > start and ends[began] == 0:
        began -= 1
    return began
