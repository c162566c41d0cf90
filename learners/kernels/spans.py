"""Which rows a blocked step measures for the events that begin in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Rows behind a blocked step that are measured at once.
PIECE: Final = 256


def spans(
    ends: NDArray[np.int32], rows: slice, stop: int | None = None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Rows, one behind the other, from where the first event begins in `rows` to where the last of these ends.

    Parameters
    ----------
    stop : where a part ends at the latest; those behind it are of `PIECE` rows at most. None for one part.

    Returns
    -------
    iterator of places, began, several
        Of each part its rows (k,); the first row of the newest event of several rows; and whether a row is one of that
        event, but not its first.
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
    """The row in start .. stop where the last event of several rows begins that does so there; `start` for none."""
    began = stop - 1
    while began > start and ends[began] == 0:
        began -= 1
    return began
