"""Judges all constraints of an event before any of them is learned: the rows of each event, and their verdicts.

The constraints of one click list share their query and the clicked item. A model that has learned the first of them
would be right on the others only because it has seen them. So mistake, margin and loss of a row are from before the
event's first row. Learning, row by row, does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.first_vectors import Buffer
from kinstream.learners.base.learner import UNDEFINED, Outcomes
from kinstream.learners.base.learner import Rows as Vectors
from kinstream.learners.base.scaler import Scaler
from kinstream.learners.kernels.events import Judged, hinge_verdicts, mark, order
from kinstream.streams.compute.arrays import plain
from kinstream.streams.errors import BadRecord, Reason

Numbers = NDArray[np.int32]
Vector = NDArray[np.float64]
Rows = NDArray[np.int64]
T = TypeVar("T")
_NO_ENDS: Final = np.empty(0, np.int32)
_NO_NUMBERS: Final = np.empty(0)
_NO_WEIGHTS: Final = np.empty(0, np.float32)


@dataclass(frozen=True, eq=False)
class Events:
    """The events with several rows in a batch.

    Parameters
    ----------
    ends, found, levels : see `kinstream.learners.kernels.events.Judged`. In a batch of pairs that stand for triplets,
        an event's first row is the first pair of its first triplet.
    group : 2 in such a batch, else 1.
    several : whether there is such an event.
    """

    ends: Numbers
    found: Vector
    levels: Vector
    group: int
    several: bool

    @classmethod
    def of(cls, numbers: Numbers | None, group: int = 1) -> Self:
        """From the number of each row's event; `group` is 2 where each row is two pairs of a batch."""
        if numbers is None:
            return cls(_NO_ENDS, _NO_NUMBERS, _NO_NUMBERS, group, several=False)
        ends = np.zeros(group * len(numbers), np.int32)
        several = mark(_plain(numbers), group, ends)
        found = np.full((2, len(ends)), np.nan)
        return cls(ends, found[0], found[1], group, several)

    @cached_property
    def rows(self) -> Rows:
        """(k,) rows of these events except their first ones, as numbers of constraints."""
        return self.firsts + 1 + self._places

    @cached_property
    def firsts(self) -> Rows:
        """(k,) the first row of the event of each of `rows`."""
        return np.repeat(self._starts, self._others)

    @cached_property
    def _starts(self) -> Rows:
        return np.flatnonzero(self.ends) // self.group

    @cached_property
    def _others(self) -> Rows:
        return self.ends[self._starts * self.group] // self.group - self._starts - 1

    @cached_property
    def _places(self) -> Rows:
        """The place of each of `rows` within its event."""
        return np.arange(self._others.sum()) - np.repeat(np.cumsum(self._others) - self._others, self._others)

    def begun(self, m: int) -> Rows:
        """(m,) the first row of each row's event, as numbers of constraints."""
        found = np.arange(m)
        found[self.rows] = self.firsts
        return found

    @property
    def judged(self) -> Judged:
        """The form for kernels."""
        return self.ends, self.found, self.levels


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Constraints in the form for a learner's kernel.

    Parameters
    ----------
    X : (n, d) scaled vectors of the model's type, C-contiguous.
    index : (m, 2) or (m, 3) int32 rows of X: pairs, or triplets (anchor, positive, negative).
    usable : (m,) false if a vector is not finite; such a row is reported as rejected.
    signs : (m,) int8, +1 similar and -1 dissimilar; zeros for triplets.
    targets, thresholds : (m,) float64 squared distances; empty for a learner that needs none. A threshold, above
        which a similar pair and up to which a dissimilar one is a mistake, is NaN while it is not known.
    group : 1, or 2 where rows 2t and 2t + 1 are the pairs (x, x+) and (x, x-) of a triplet. Then the mistake of
        row 2t is that of the triplet: d(x, x+) >= d(x, x-) before both steps; that of row 2t + 1 is not read.
    events : which rows share an event.
    weights : (m,) float32, of learners that use weights; without entries where all are 1.
    """

    X: Vectors
    index: NDArray[np.int32]
    usable: NDArray[np.bool_]
    signs: NDArray[np.int8]
    targets: NDArray[np.float64] = field(default_factory=lambda: _NO_NUMBERS)
    thresholds: NDArray[np.float64] = field(default_factory=lambda: _NO_NUMBERS)
    group: int = 1
    events: Events = field(default_factory=lambda: Events.of(None))
    weights: NDArray[np.float32] = field(default_factory=lambda: _NO_WEIGHTS)

    def __len__(self) -> int:
        return len(self.index)

    def end_of_event(self, row: int) -> int:
        """The row after the event that continues at a row; the row itself if an event begins there, or at the end."""
        events = self.events
        at = np.searchsorted(events.rows * self.group, row)
        if at == len(events.rows) or events.rows[at] * self.group != row:
            return row
        return int(events.ends[events.firsts[at] * self.group])


def weighted(batch: Batch, weights: NDArray[np.float32] | None) -> Batch:
    """The batch with the weights (m,) of its constraints."""
    if weights is None or (weights == 1.0).all():
        return batch
    return replace(batch, weights=np.repeat(np.asarray(weights, np.float32), batch.group))


def ends_of(numbers: Numbers) -> Numbers:
    """For the first row of each event with several rows, the row after its last; 0 for all other rows."""
    ends = np.zeros(len(numbers), np.int32)
    mark(_plain(numbers), 1, ends)
    return ends


def _plain(numbers: Numbers) -> Numbers:
    """The numbers in the common layout, because kernels are compiled for one layout."""
    return plain(numbers, np.int32)


def shared(events: Numbers | None, m: int) -> Numbers | None:
    """The events of a block's rows; None if no two rows share one.

    Raises
    ------
    BadRecord
        Not one event per row, or the events decrease.
    """
    if events is None:
        return None
    if events.shape != (m,):
        raise BadRecord(Reason.BAD_SHAPE, f"{m} constraints, and events of shape {events.shape}")
    found = order(_plain(events))
    if found < 0:
        raise BadRecord(Reason.BAD_SHAPE, "the events of constraints must not decrease")
    return events if found > 0 else None


def write(outcomes: Outcomes, rows: Rows, mistake: NDArray[Any], loss: Vector, margin: Vector | None) -> None:
    """Replace the verdicts of some rows of a block.

    Parameters
    ----------
    mistake, loss : (k,) of these rows; if the loss is NaN, nothing was measured.
    margin : (k,), or None for pairs.
    """
    known = np.isfinite(loss) & ~outcomes.rejected[rows]
    if margin is not None:
        outcomes.margin[rows] = margin
        known &= np.isfinite(margin)
    outcomes.mistake[rows] = np.where(known, mistake, UNDEFINED)
    outcomes.loss[rows] = np.where(known, loss, 0.0)


def write_hinges(outcomes: Outcomes, events: Events, target: float) -> None:
    """Replace the verdicts of triplets by those from the margins before their events.

    Whether a row is degenerate does not depend on the model.

    Parameters
    ----------
    target : margin from which on the loss is 0.
    """
    hinge_verdicts(events.ends, events.found, target, outcomes.report())


def compile_events() -> None:
    """Compile the kernels that a learner of single constraints does not call itself."""
    numbers, outcomes = np.ones(2, np.int32), Outcomes.blank(2)
    shared(numbers, 2)
    write_hinges(outcomes, Events.of(numbers), 1.0)
    outcomes.counts()


def take(outcomes: Outcomes, start: int, before: Outcomes) -> None:
    """Replace the verdicts of the rows from `start` on by those of rows that were judged before."""
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
        """A copy of this learner whose warm-up continues independently."""


W = TypeVar("W", bound=Watcher)


def watched(
    learner: W,
    watch: Callable[[W, slice, Outcomes], int],
    events: Numbers | None,
    outcomes: Outcomes,
    refused: Callable[[], NDArray[np.bool_]],
) -> tuple[int, Outcomes | None]:
    """Score the constraints of the warm-up, all rows of an event by the statistics from before it.

    Parameters
    ----------
    watch : makes a learner score some rows, and returns how many belong to its warm-up.
    events : of `shared`.
    outcomes : of the block.
    refused : afterwards, the rows (m,) of which it became clear that they are out of reach.

    Returns
    -------
    int, Outcomes or None
        The first row to learn from; and, if the warm-up ends within an event, the verdicts of its rows from there on.
    """
    if learner._warm:
        return 0, None
    start, late = _watched(learner, watch, events, outcomes)
    rows = np.flatnonzero(refused()[:start] & ~outcomes.rejected[:start])
    if len(rows):
        blank = Outcomes.blank(len(rows))
        blank.rejected[:] = True
        for name in Outcomes.__dataclass_fields__:
            getattr(outcomes, name)[rows] = getattr(blank, name)
    return start, late


def _watched(
    learner: W, watch: Callable[[W, slice, Outcomes], int], events: Numbers | None, outcomes: Outcomes
) -> tuple[int, Outcomes | None]:
    m = len(outcomes)
    if events is None:
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
    """A copy of a scaler, of targets or of a buffer that continues independently."""
    twin = copy(statistics)
    for name, value in vars(twin).items():
        if isinstance(value, dict):
            setattr(twin, name, dict(value))
        elif isinstance(value, np.ndarray):
            setattr(twin, name, value.copy())
        elif isinstance(value, (Scaler, Buffer)):
            setattr(twin, name, apart(value))
    return twin
