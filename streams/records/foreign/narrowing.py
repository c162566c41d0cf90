"""Numbers as float32, in which vectors travel; or a sentence about what would be lost."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]

#: Whole numbers up to here are float32 numbers.
WHOLE: Final = float(1 << 24)
#: Seconds since 1970 of the years 2001 to 2100, and how often a second is divided.
SECONDS: Final = (1.0e9, 4.1e9)
DIVISIONS: Final = (1.0, 1e3, 1e6, 1e9)
#: Share of the usual difference between values that rounding may be.
LOST: Final = 0.001
#: Differences that are none, as a share of the numbers.
NOTHING: Final = 1e-11
#: Values that tell what is usual.
FEW: Final = 16


def narrowed(wide: Numbers) -> NDArray[np.float32]:
    """Numbers as float32; too large ones become infinite, and what is missing stays so."""
    with np.errstate(over="ignore"):
        return np.asarray(wide, np.float32)


def lost(wide: Numbers) -> tuple[int, str] | None:
    """What float32 would lose of the columns of a table (n, d), or of a vector (d,): the column and a sentence.

    Large numbers are rounded to a multiple of a power of two: times since 1970 to 128 seconds. A column loses too much
    when that is more than a thousandth of the usual difference of its values. Fewer than 16 do not tell what is usual:
    of those, what looks like a time does.
    """
    table = np.atleast_2d(wide)
    if table.dtype == np.float32 or not table.size:
        return None
    with np.errstate(all="ignore"):
        large = np.abs(table) > WHOLE
        if not large.any():
            return None
        gaps = np.abs(table - narrowed(table))
        for column in np.flatnonzero(large.any(axis=0)):
            values, gap = np.asarray(table[:, column], np.float64), gaps[:, column]
            known = np.isfinite(values) & np.isfinite(gap)
            if not (gap[known] > 0.0).any():
                continue
            worst = float(gap[known].max())
            apart = np.abs(values[known] - np.median(values[known]))
            apart = apart[apart > 0.0]
            if known.sum() < FEW:
                loses = bool((_time(values[known]) & (gap[known] > 0.0)).any())
            else:
                loses = len(apart) > 0 and worst > LOST * float(np.median(apart))
            if loses:
                example = float(values[known][gap[known].argmax()])
                return int(column), (
                    f"{example!r} would become {float(np.float32(example))!r}: numbers are float32, which holds 7 "
                    "digits. Subtract a constant first, such as the oldest time, or divide"
                )
    return None


def shift(wide: Numbers) -> NDArray[np.float64]:
    """(d,) what to subtract from the columns of a table (n, d) so that float32 holds their differences; mostly 0."""
    table = np.asarray(wide)
    none = np.zeros(table.shape[1])
    if table.dtype == np.float32 or not len(table):
        return none
    with np.errstate(all="ignore"):
        gap = np.abs(table - narrowed(table)).max(axis=0)
        middle = np.median(np.asarray(table, np.float64), axis=0)
        apart = np.sort(np.abs(table - middle), axis=0)
    differ = np.count_nonzero(apart, axis=0)
    place = np.minimum(len(table) - differ + (differ - 1) // 2, len(table) - 1)
    usual = np.take_along_axis(apart, place[None], axis=0)[0]
    # What is left of equal numbers after rounding in float64 is no difference.
    needed = np.isfinite(gap) & (gap > LOST / 10.0 * usual) & (usual > NOTHING * np.abs(middle))
    return np.where(needed, middle, none)


def _time(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which numbers look like a time since 1970, in seconds to nanoseconds."""
    least, most = SECONDS
    return np.asarray(np.any([(values >= least * one) & (values <= most * one) for one in DIVISIONS], axis=0))
