"""Predict, then learn: the predictions of a metric for each constraint before it learned from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import Final

import numpy as np

from kinstream.learners.base import Learner, Outcomes
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ConstraintBlock, Counts, Table

#: Counts of predictions, independent of what was learned from the constraint.
_PREDICTED: Final = ("scored", "mistakes", "split_scored", "split_mistakes", "loss_sum")


@dataclass
class Curve:
    """Cumulative counts at the end of each block, and within it. Lists of equal length, except the weights.

    Parameters
    ----------
    constraints : that had arrived, learned or not.
    weighed : constraints that had arrived when `weights` were read: (name, value) of experts or modalities, after each
        block of a learner that has some.
    """

    constraints: list[int] = field(default_factory=list)
    scored: list[int] = field(default_factory=list)
    mistakes: list[int] = field(default_factory=list)
    utilised: list[int] = field(default_factory=list)
    weighed: list[int] = field(default_factory=list)
    weights: list[dict[str, float]] = field(default_factory=list)

    def add(self, constraints: int, counts: Counts) -> None:
        """One point more."""
        self.constraints.append(constraints)
        self.scored.append(counts.scored)
        self.mistakes.append(counts.mistakes)
        self.utilised.append(counts.utilised)

    def add_block(self, before: int, counts: Counts, outcomes: Outcomes, most: int) -> None:
        """Points within a block, at most so many, the last one at its end.

        Parameters
        ----------
        before : constraints before the block; counts : before it.
        """
        m = len(outcomes)
        if not m:
            return
        seen = ~outcomes.rejected & ~outcomes.ignored
        judged = seen & ~outcomes.split
        fates = [judged & (outcomes.mistake >= 0), judged & (outcomes.mistake == 1), seen & outcomes.utilised]
        sums = [np.cumsum(fate) for fate in fates]
        starts = (counts.scored, counts.mistakes, counts.utilised)
        columns = (self.scored, self.mistakes, self.utilised)
        ends = np.unique(np.linspace(0, m, min(most, m) + 1).round().astype(int)[1:])
        self.constraints += (before + ends).tolist()
        for column, start, found in zip(columns, starts, sums, strict=True):
            column += (start + found[ends - 1]).tolist()

    def weigh(self, constraints: int, weights: dict[str, float]) -> None:
        """Note weights, of a learner that has some."""
        if weights:
            self.weighed.append(constraints)
            self.weights.append(weights)

    def thinned(self, most: int) -> Curve:
        """At most that many of the points, evenly spaced; the last one is kept."""
        points, weights = _kept(len(self.constraints), most), _kept(len(self.weighed), most)
        return Curve(
            constraints=[self.constraints[i] for i in points],
            scored=[self.scored[i] for i in points],
            mistakes=[self.mistakes[i] for i in points],
            utilised=[self.utilised[i] for i in points],
            weighed=[self.weighed[i] for i in weights],
            weights=[self.weights[i] for i in weights],
        )


def _kept(n: int, most: int) -> list[int]:
    kept: list[int] = np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)).tolist()
    return kept


@dataclass
class Run:
    """The result of one pass over a stream.

    Parameters
    ----------
    learner : after the stream, or None if the stream was empty.
    seconds : of each block, in the learner alone; `sizes` its constraints.
    """

    learner: Learner
    counts: Counts = field(default_factory=Counts)
    curve: Curve = field(default_factory=Curve)
    constraints: int = 0
    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


def prequential(
    make: Callable[[], Learner],
    stream: Iterable[ConstraintBlock | None],
    delay: int = 0,
    *,
    points: int = 1,
) -> Run:
    """One pass of a new learner over a stream, with the mistake of each constraint by the model before its event.

    Parameters
    ----------
    make : a learner that has learned nothing.
    stream : blocks in order; None drops the learned state.
    delay : constraints after which the label of one is known. Without a delay a block is learned by one call, and its
            mistakes are those that the learner reports. With one, each constraint is first given to a copy that is then
            discarded, all of one event before any of it is learned: exact for every learner, and slower by a copy of
            the state per constraint.
    points : of the curve in each block, at most.
    """
    run = Run(make())
    waiting: deque[ConstraintBlock] = deque()
    with one_blas_thread():
        for block in stream:
            if block is None:
                # Waiting constraints belong to the dropped model.
                while waiting:
                    run.counts += _fates(_learned(run, waiting.popleft()))
                run.learner = make()
                continue
            if delay == 0:
                outcomes = _learned(run, block)
                run.curve.add_block(run.constraints, run.counts, outcomes, points)
                run.counts += outcomes.counts()
                run.constraints += len(block)
            else:
                _late(run, make, block, waiting, delay)
                run.curve.add(run.constraints, run.counts)
            run.curve.weigh(run.constraints, dict(getattr(run.learner, "weights", {})))
        while waiting:
            run.counts += _fates(_learned(run, waiting.popleft()))
    if delay and run.curve.constraints:
        # The late labels have arrived.
        run.curve.utilised[-1] = run.counts.utilised
        run.curve.weigh(run.constraints, dict(getattr(run.learner, "weights", {})))
    return run


def _late(
    run: Run,
    make: Callable[[], Learner],
    block: ConstraintBlock,
    waiting: deque[ConstraintBlock],
    delay: int,
) -> None:
    for first, end in pairwise(_events(block)):
        event = [alone(block, row) for row in range(first, end)]
        for one in event:
            copy = make()
            copy.restore(run.learner.state())
            seen = _outcomes(copy, one).counts()
            run.counts += replace(Counts(), **{name: getattr(seen, name) for name in _PREDICTED})
            run.constraints += 1
        for one in event:
            waiting.append(one)
            if len(waiting) > delay:
                run.counts += _fates(_learned(run, waiting.popleft()))


def _events(block: ConstraintBlock) -> list[int]:
    """Where each event of the block begins, and the end of the last one."""
    if block.events is None:
        return list(range(len(block) + 1))
    return [0, *(np.flatnonzero(np.diff(block.events)) + 1).tolist(), len(block)]


def _learned(run: Run, block: ConstraintBlock) -> Outcomes:
    began = perf_counter()
    outcomes = _outcomes(run.learner, block)
    run.seconds.append(perf_counter() - began)
    run.sizes.append(len(block))
    return outcomes


def _fates(outcomes: Outcomes) -> Counts:
    """Counts without the predictions, which were made before."""
    return replace(outcomes.counts(), **dict.fromkeys(_PREDICTED, 0))


def _outcomes(learner: Learner, block: ConstraintBlock) -> Outcomes:
    if block.kind not in learner.accepts:
        return Outcomes.blank(len(block), ignored=True)
    return learner.learn(block)


def alone(block: ConstraintBlock, row: int) -> ConstraintBlock:
    """One constraint of a block, over the vectors that it names and no others."""
    one = block.take(slice(row, row + 1))
    used, index = np.unique(one.index, return_inverse=True)
    tables = tuple(Table(table.name, table.vectors[used]) for table in one.tables)
    return replace(one, tables=tables, index=index.reshape(one.index.shape).astype(np.int32))
