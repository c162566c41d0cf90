"""Each constraint is predicted by the model before it was learned from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.runner.prequential import Curve, alone, prequential
from kinstream.learners import registry
from kinstream.learners.base import Learner, Outcomes
from kinstream.replay.log.pipeline import state_digest
from kinstream.streams.records.values import ConstraintBlock, Counts
from tests.evaluation.plans import blobs

KINDS = ["opml", "copml", "lego", "oasis", "rdml", "soml-tg", "oahu"]


def stream(n: int = 90, block_rows: int = 16) -> list[ConstraintBlock]:
    data = blobs(n=n)
    return list(Built("one-pass", block_rows=block_rows)(data.tables, data.labels, 0))


def make(kind: str) -> Learner:
    return registry.create(kind, **({"gamma": 0.1, "unit": "published"} if kind == "opml" else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_delay_the_counts_are_the_learners_own(kind: str) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delay", [1, 7, 1_000])
def test_a_delayed_label_is_predicted_by_the_model_without_it(kind: str, delay: int) -> None:
    """One constraint at a time: the model that predicts number t has learned from those before t - delay."""
    ones = [alone(block, row) for block in stream(40) for row in range(len(block))]
    expected: list[int] = []
    scored = 0
    for t, one in enumerate(ones):
        model = make(kind)
        for before in ones[: max(0, t - delay)]:
            model.learn(before)
        counts = model.learn(one).counts()
        scored += counts.scored
        expected.append(counts.mistakes + (expected[-1] if expected else 0))
    run = prequential(lambda: make(kind), ones, delay)
    assert run.curve.mistakes == expected
    assert run.counts.scored == scored
    # All labels come in the end: what was learned is what is learned without a delay.
    whole = prequential(lambda: make(kind), ones)
    assert run.counts.utilised == whole.counts.utilised == run.curve.utilised[-1]
    assert state_digest(run.learner.state()) == state_digest(whole.learner.state())


@pytest.mark.parametrize("delay", [1, 3, 1_000])
def test_all_of_an_event_is_predicted_before_any_of_it_is_learned(delay: int) -> None:
    """The model that predicts a row has learned from the rows that came `delay` before its event."""
    blocks = [replace(block, events=_in_threes(len(block))) for block in stream(60, 16)]
    expected = {"scored": 0, "mistakes": 0, "split_scored": 0, "split_mistakes": 0}
    ones: list[ConstraintBlock] = []
    differs = False
    for block in blocks:
        assert block.events is not None
        rows = [alone(block, row) for row in range(len(block))]
        for row, number in enumerate(block.events):
            began = len(ones) + int(np.argmax(block.events == number))
            told = []
            for known in (began - delay, len(ones) + row - delay):
                model = make("opml")
                for before in (ones + rows)[: max(0, known)]:
                    model.learn(before)
                told.append(model.learn(replace(rows[row], events=None)).counts())
            differs |= told[0].mistakes != told[1].mistakes
            apart = "split_" if number == 0 else ""
            expected[f"{apart}scored"] += told[0].scored
            expected[f"{apart}mistakes"] += told[0].mistakes
        ones += rows
    run = prequential(lambda: Splitting(make("opml")), blocks, delay)
    assert {name: getattr(run.counts, name) for name in expected} == expected
    assert expected["split_scored"] > 0 and (differs or delay > 3)
    whole = prequential(lambda: make("opml"), blocks)
    assert state_digest(run.learner.state()) == state_digest(whole.learner.state())


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


def test_a_constraint_alone_names_the_same_vectors() -> None:
    for block in stream(40):
        for row in range(len(block)):
            one = alone(block, row)
            assert len(one) == 1
            assert np.array_equal(
                one.tables[0].vectors[one.index[0]], block.tables[0].vectors[block.index[row]]
            )
            assert len(one.tables[0].vectors) <= 3


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
