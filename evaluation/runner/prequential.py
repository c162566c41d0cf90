"""Predict, then learn: the predictions of a metric for each constraint before it learned from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from kinstream.learners.base.learner import Learner, Outcomes
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.values import ConstraintBlock, Counts


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
    *,
    points: int = 1,
) -> Run:
    """One pass of a new learner over a stream, with the mistake of each constraint by the model before its event.

    Parameters
    ----------
    make : a learner that has learned nothing.
    stream : blocks in order; None drops the learned state.
    points : of the curve in each block, at most.
    """
    run = Run(make())
    with one_blas_thread():
        for block in stream:
            if block is None:
                run.learner = make()
                continue
            outcomes = _learned(run, block)
            run.curve.add_block(run.constraints, run.counts, outcomes, points)
            run.counts += outcomes.counts()
            run.constraints += len(block)
            run.curve.weigh(run.constraints, dict(getattr(run.learner, "weights", {})))
    return run


def _learned(run: Run, block: ConstraintBlock) -> Outcomes:
    began = perf_counter()
    outcomes = _outcomes(run.learner, block)
    run.seconds.append(perf_counter() - began)
    run.sizes.append(len(block))
    return outcomes


def _outcomes(learner: Learner, block: ConstraintBlock) -> Outcomes:
    if block.kind not in learner.accepts:
        return Outcomes.blank(len(block), ignored=True)
    return learner.learn(block)
