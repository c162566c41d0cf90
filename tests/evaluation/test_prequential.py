"""Each constraint is predicted by the model before it was learned from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.runner.prequential import Curve, prequential
from kinstream.learners import registry
from kinstream.learners.base.learner import Learner, Outcomes
from kinstream.replay.log.pipeline import state_digest
from kinstream.streams.records.values import ConstraintBlock, Counts, Table
from tests.evaluation.plans import blobs

KINDS = ["opml", "copml", "lego", "oasis", "rdml", "soml-tg", "oahu"]


def stream(n: int = 90, block_rows: int = 16) -> list[ConstraintBlock]:
    data = blobs(n=n)
    return list(Built("one-pass", block_rows=block_rows)(data.tables, data.labels, 0))


def make(kind: str) -> Learner:
    return registry.create(kind, **({"gamma": 0.1, "unit": "published"} if kind == "opml" else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_counts_are_the_learners_own(kind: str) -> None:
    blocks, learner, counts = stream(), make(kind), Counts()
    mistakes = []
    for block in blocks:
        counts += learner.learn(block).counts()
        mistakes.append(counts.mistakes)
    run = prequential(lambda: make(kind), blocks)
    assert run.counts == counts
    assert run.curve.mistakes == mistakes
    assert run.curve.constraints == np.cumsum([len(block) for block in blocks]).tolist()
    assert run.constraints == sum(run.sizes) == sum(map(len, blocks))


def alone(block: ConstraintBlock, row: int) -> ConstraintBlock:
    """One constraint of a block, over the vectors that it names and no others."""
    one = block.take(slice(row, row + 1))
    used, index = np.unique(one.index, return_inverse=True)
    tables = tuple(Table(table.name, table.vectors[used]) for table in one.tables)
    return replace(one, tables=tables, index=index.reshape(one.index.shape).astype(np.int32))


def _in_threes(m: int) -> NDArray[np.int32]:
    """Events of three rows, the first one begun in an earlier block."""
    return (np.arange(m) // 3).astype(np.int32)


class Splitting:
    """A learner that reports which rows are split."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def learn(self, block: ConstraintBlock) -> Outcomes:
        outcomes = self._learner.learn(block)
        outcomes.split[:] = block.split(self._learner.form)
        return outcomes


def test_the_curve_leaves_split_constraints_out_as_the_counts_do() -> None:
    blocks = [replace(block, events=_in_threes(len(block))) for block in stream()]
    run = prequential(lambda: Splitting(make("opml")), blocks, points=10_000)
    assert run.counts.split_scored == sum(min(3, len(block)) for block in blocks)
    assert run.curve.scored[-1] == run.counts.scored == run.constraints - run.counts.split_scored
    assert run.curve.mistakes[-1] == run.counts.mistakes


def test_a_reset_forgets_the_model_and_keeps_the_counts() -> None:
    blocks = stream()
    alone_after = prequential(lambda: make("opml"), blocks[3:])
    both = prequential(lambda: make("opml"), [*blocks[:3], None, *blocks[3:]])
    before = prequential(lambda: make("opml"), blocks[:3])
    assert both.counts == before.counts + alone_after.counts
    assert state_digest(both.learner.state()) == state_digest(alone_after.learner.state())


@pytest.mark.parametrize("kind", ["opml", "copml", "oahu"])
def test_points_within_a_block_are_those_of_constraints_one_by_one(kind: str) -> None:
    blocks = stream()
    whole = prequential(lambda: make(kind), blocks, points=10_000).curve
    ones = prequential(lambda: make(kind), [alone(b, row) for b in blocks for row in range(len(b))]).curve
    assert (whole.constraints, whole.scored, whole.mistakes) == (ones.constraints, ones.scored, ones.mistakes)
    some = prequential(lambda: make(kind), blocks, points=4).curve
    ends = np.cumsum([len(block) for block in blocks])
    assert set(ends) <= set(some.constraints)
    assert len(some.constraints) == sum(min(4, len(block)) for block in blocks)
    assert all(whole.mistakes[n - 1] == m for n, m in zip(some.constraints, some.mistakes, strict=True))
    assert some.weighed == (ends.tolist() if kind == "oahu" else [])


def test_a_thinned_curve_keeps_its_end() -> None:
    curve = Curve()
    for at in range(1, 1_001):
        curve.add(at, Counts(scored=at, mistakes=at // 2, utilised=at))
    curve.weigh(1_000, {"expert": 1.0})
    thin = curve.thinned(200)
    assert len(thin.constraints) == 200
    assert thin.constraints[-1] == 1_000 and thin.mistakes[-1] == 500
    assert thin.constraints == sorted(set(thin.constraints))
    assert thin.weighed == [1_000]
    assert curve.thinned(5_000) == curve
