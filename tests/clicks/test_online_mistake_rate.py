"""From lists to the numbers that operators see: the online mistake rate is that of an oracle that reads the lists.

Lists go through the builder, records, the learner, outcomes and the tallies of the metrics agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kinstream.evaluation.runner.prequential import prequential
from kinstream.monitoring.tallies import Tallies, mistakes
from kinstream.streams.records.codec.codec import decode_outcome
from kinstream.streams.records.message import Output
from kinstream.streams.records.values import Click, ConstraintBlock, Counts, Outcome
from tests.clicks.lists_oracle import DIMENSION, catalogue, item_block, lists, opml, triplets_of
from tests.clicks.stream import CONSTRAINTS, builder_stream, constraint_blocks, learner_stream
from tests.learners.published_unit import OPML
from tests.processors.bounds import set_bounds
from tests.processors.click_samples import NOW, block_of

GAMMA = 0.05
COUNT = 150
OUTCOMES = "kinstream.outcomes"


def made(clicks: Sequence[Click], in_a_block: int) -> list[Output]:
    builder = builder_stream(NOW)
    builder(item_block(catalogue()))
    found: list[Output] = []
    for first in range(0, len(clicks), in_a_block):
        some = clicks[first : first + in_a_block]
        found += builder(some[0] if in_a_block == 1 else block_of(some))
    return [output for output in found if output.topic == CONSTRAINTS]


def outcomes(constraints: Sequence[Output]) -> list[Outcome]:
    learner = learner_stream(NOW, gamma=GAMMA, scaler="none")
    found = [output for made in constraints for output in learner(made.value or b"", made.headers)]
    records = [decode_outcome(output.value) for output in found if output.topic == OUTCOMES]
    return [record for record in records if isinstance(record, Outcome)]


@pytest.mark.parametrize("in_a_block", [1, 25])
def test_the_mistake_rate_is_that_of_lists_judged_before_they_are_learned(in_a_block: int) -> None:
    clicks = list(lists(COUNT))
    expected = opml((triplets_of(click, catalogue()) for click in clicks), GAMMA)
    constraints = made(clicks, in_a_block)
    told = outcomes(constraints)
    total = sum((outcome.counts for outcome in told), Counts())
    assert (total.clipped, total.rejected, total.split_scored) == (0, 0, 0)
    assert (total.scored, total.mistakes) == (expected.scored, expected.mistakes)
    tallies = Tallies(window=10**6, top_spaces=1)
    assert all(tallies.apply(outcome) for outcome in told)
    (row,) = tallies.snapshot().rows
    assert row.mistake_window == mistakes(row.totals) == (expected.mistakes, expected.scored)
    run = prequential(lambda: OPML(gamma=GAMMA, scaler="none"), constraint_blocks(constraints))
    assert (run.counts.scored, run.counts.mistakes) == (expected.scored, expected.mistakes)


def test_what_does_not_fit_into_a_block_is_counted_apart_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = list(lists(COUNT))
    set_bounds(monkeypatch, "clicks", max_bytes=1024)
    small = made(clicks, 25)
    blocks = constraint_blocks(small)
    apart = sum(int((block.events == 0).sum()) for block in blocks if block.events is not None)
    expected = opml((triplets_of(click, catalogue()) for click in clicks), GAMMA)
    total = sum((outcome.counts for outcome in outcomes(small)), Counts())
    assert 0 < apart == total.split_scored
    assert total.scored + total.split_scored == total.seen == expected.scored
    # The beginnings of lists are judged as the oracle judges them.
    assert total.mistakes == _mistakes_of_beginnings(blocks)


def _mistakes_of_beginnings(blocks: Sequence[ConstraintBlock]) -> int:
    """The oracle on the blocks, over the rows of events that begin in them."""
    events = []
    begins = []
    for block in blocks:
        rows = block.tables[0].vectors[block.index].astype(np.float64)
        numbers = np.arange(1, len(block) + 1) if block.events is None else block.events
        for number in np.unique(numbers):
            events.append(list(rows[numbers == number]))
            begins.append(number > 0)
    # Mistakes of each event: those up to and with it, less those before.
    sums = [opml(events[:end], GAMMA).mistakes for end in range(len(events) + 1)]
    return sum(int(more) for more, begun in zip(np.diff(sums), begins, strict=True) if begun)


def test_a_copied_list_is_no_proof_that_anything_was_learned() -> None:
    """The same triplet twice in one event is wrong twice; in two events the second one may be right."""
    (first, *_) = constraint_blocks(made(list(lists(COUNT)), 1))
    learner = OPML(gamma=GAMMA, scaler="none")
    wrong = np.flatnonzero(learner.learn(first).mistake == 1)[:1]
    assert len(wrong)
    twice = first.take(np.repeat(wrong, 40))
    for events, fewer in ((np.ones(40, np.int32), False), (None, True)):
        found = OPML(gamma=GAMMA, scaler="none").learn(replace(twice, events=events)).counts()
        assert (found.mistakes < 40) is fewer
    assert first.tables[0].vectors.shape[1] == DIMENSION
