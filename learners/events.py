"""All constraints of an event are judged before any of them is learned: which rows share one, and their verdicts.

The constraints of one click list share their query and the clicked item. A model that has learned the first of them
has seen what the others ask for, and would be right on those by heart. So what a learner reports of a row from before
its step (mistake, margin, loss) is from before the event's first row; what it learns, row by row, does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import UNDEFINED, Outcomes
from kinstream.learners.kernels.events import Judged
from kinstream.learners.scaler import Scaler
from kinstream.streams.errors import BadRecord, Reason

Numbers = NDArray[np.int32]
Vector = NDArray[np.float64]
Rows = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """The events of several rows among the rows of a batch.

    Parameters
    ----------
    ends, found, levels : see `kinstream.learners.kernels.events.Judged`. In a batch of pairs that stand for triplets,
        an event's first row is the first pair of its first triplet.
    rows : (k,) rows of those events, in constraints, without the first row of each.
    firsts : (k,) the first row of each one's event.
    """

    ends: Numbers
    found: Vector
    levels: Vector
    rows: Rows
    firsts: Rows

    @classmethod
    def of(cls, numbers: Numbers | None, group: int = 1) -> Self:
        """From the number of each row's event; `group` is 2 where each row is two pairs of a batch."""
        if numbers is None:
            return cls(_NO_ENDS, _NO_NUMBERS, _NO_NUMBERS, _NO_ROWS, _NO_ROWS)
        ends = ends_of(numbers)
        starts = np.flatnonzero(ends)
        lengths = ends[starts] - starts
        inside = np.repeat(starts, lengths - 1)
        places = np.arange(len(inside)) - np.repeat(np.cumsum(lengths - 1) - (lengths - 1), lengths - 1)
        wide = ends
        if group == 2:
            wide = np.zeros(2 * len(ends), np.int32)
            wide[::2] = 2 * ends
        m = len(wide)
        return cls(wide, np.full(m, np.nan), np.full(m, np.nan), inside + 1 + places, inside)

    @property
    def judged(self) -> Judged:
        """What kernels take."""
        return self.ends, self.found, self.levels


def ends_of(numbers: Numbers) -> Numbers:
    """For the first row of each event of several rows the row behind its last, 0 for all other rows."""
    m = len(numbers)
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1)) if m else np.empty(0, np.int64)
    stops = np.append(starts[1:], m)
    several = stops - starts > 1
    ends = np.zeros(m, np.int32)
    ends[starts[several]] = stops[several]
    return ends


def shared(events: Numbers | None, m: int) -> Numbers | None:
    """The events of a block's rows; None where no two rows share one.

    Raises
    ------
    BadRecord
        They are not one a row, or decrease.
    """
    if events is None:
        return None
    if events.shape != (m,):
        raise BadRecord(Reason.BAD_SHAPE, f"{m} constraints, and events of shape {events.shape}")
    steps = np.diff(events)
    if (steps < 0).any():
        raise BadRecord(Reason.BAD_SHAPE, "the events of constraints must not decrease")
    return events if (steps == 0).any() else None


def write(outcomes: Outcomes, rows: Rows, mistake: NDArray[Any], loss: Vector, margin: Vector | None) -> None:
    """Replace the verdicts of some rows of a block.

    Parameters
    ----------
    mistake, loss : (k,) of these rows; where the loss is no number, nothing was measured.
    margin : (k,), or None for pairs.
    """
    known = np.isfinite(loss) & ~outcomes.rejected[rows]
    if margin is not None:
        outcomes.margin[rows] = margin
        known &= np.isfinite(margin)
    outcomes.mistake[rows] = np.where(known, mistake, UNDEFINED)
    outcomes.loss[rows] = np.where(known, loss, 0.0)


def take(outcomes: Outcomes, start: int, before: Outcomes) -> None:
    """Replace the verdicts of the rows from `start` on by those of as many rows that were judged before."""
    rows = start + np.arange(len(before))
    known = ~(before.rejected | outcomes.rejected[rows])
    outcomes.margin[rows] = before.margin
    outcomes.mistake[rows] = np.where(known, before.mistake, UNDEFINED)
    outcomes.loss[rows] = np.where(known, before.loss, 0.0)


class Watcher(Protocol):
    """A learner with a warm-up."""

    @property
    def _warm(self) -> bool:
        """Whether the warm-up is over."""

    def _twin(self) -> Self:
        """A learner like this one, whose warm-up goes on by itself."""


W = TypeVar("W", bound=Watcher)


def watched(
    learner: W, watch: Callable[[W, slice, Outcomes], int], events: Numbers | None, outcomes: Outcomes
) -> tuple[int, Outcomes | None]:
    """Score what belongs to the warm-up, all rows of an event by what the warm-up knew before it.

    Parameters
    ----------
    watch : lets a learner score some rows, and returns how many of those belong to its warm-up.
    events : of `shared`.
    outcomes : of the block.

    Returns
    -------
    int, Outcomes or None
        The first row to learn from; and, if the warm-up ends within an event, the verdicts of its rows from there on.
    """
    m = len(outcomes)
    if events is None or learner._warm:
        return watch(learner, slice(0, m), outcomes), None
    ends, t = ends_of(events), 0
    while t < m and not learner._warm:
        end = max(int(ends[t]), t + 1)
        rows, found = slice(t, end), Outcomes.blank(end - t)
        if end == t + 1:
            watch(learner, rows, outcomes[rows])
            t = end
            continue
        for r in range(end - t):
            watch(learner._twin(), slice(t + r, t + r + 1), found[slice(r, r + 1)])
        stop = watch(learner, rows, outcomes[rows])
        take(outcomes, t, found[slice(0, stop)])
        if stop < end - t:
            return t + stop, found[slice(stop, None)]
        t = end
    return t, None


def apart(statistics: T) -> T:
    """A copy of what watches a warm-up (a scaler, targets, a buffer), that goes on by itself."""
    twin = copy(statistics)
    for name, value in vars(twin).items():
        if isinstance(value, dict):
            setattr(twin, name, dict(value))
        elif isinstance(value, Scaler):
            setattr(twin, name, apart(value))
    return twin


_NO_ENDS: Final = np.empty(0, np.int32)
_NO_NUMBERS: Final = np.empty(0)
_NO_ROWS: Final = np.empty(0, np.int64)
