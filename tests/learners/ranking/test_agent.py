"""The agent of `ranking`: it learns from whole lists that are not held out, and they are judged by its blend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kinstream.learners.agent import LearnerMachine
from kinstream.learners.held_out.judge import Judge
from kinstream.learners.held_out.metrics import Metrics
from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.agents.machine import Place
from kinstream.streams.records.codec.codec import decode_outcome, encode
from kinstream.streams.records.identity import Identity, Position
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Outcome
from kinstream.streams.signals import REMEMBERED, SIMILARITY
from tests.learners.ranking.test_ranking import HALF, bits, learned
from tests.learners.ranking.world import World


def test_the_agent_learns_the_lists_that_are_not_held_out() -> None:
    world, share = World(120, missing=0.2), 0.3
    place = Place("it", 1, "constraints", 0, 1, "outcomes", 1, "dead-letters")
    machine = LearnerMachine(
        place, lambda _: Ranking(HALF, remember=50), follows=frozenset({"made"}), held_out=share
    )
    judge, before, weights = Judge(share, "s"), None, {}
    wanted = Ranking(HALF, remember=50)
    for offset, block in enumerate(world.blocks()):
        block = replace(block, space="s", epoch=0)
        at = Position(1, 0, offset, 0)
        headers = tuple(Identity("made", at, "events", 0, before).headers())
        before = at
        message = Message("constraints", 0, offset, 0, b"s", encode(block), headers, offset - 1)
        (output,) = machine.step(message)
        outcome = decode_outcome(output.value)
        assert isinstance(outcome, Outcome)
        weights = dict(outcome.weights)
        held = judge.rows(block)
        assert block.lists is not None
        lists = block.lists.take(~judge.lists(block))
        assert held.any() or lists is block.lists
        wanted.learn(replace(block.take(np.flatnonzero(~held)), lists=lists))
    space = machine.find("s")
    assert space is not None and isinstance(space.core, Ranking)
    assert bits(space.core) == bits(wanted) != bits(learned(world.blocks(), start=HALF, remember=50))
    assert weights == wanted.weights


def test_lists_are_judged_by_the_blend_against_what_people_have() -> None:
    """An oracle for one list: the rank of each clicked item among those shown."""
    blocks = [*World(200).blocks(cut=1)]
    model = learned(blocks[:-1], start=HALF, remember=1_000)
    last = blocks[-1]
    judge = Judge(0.5, "s")
    for block in blocks[:-1]:
        judge, _ = judge.after(model, block, judge.rows(block))
    lists = last.lists
    assert lists is not None and lists.scores is not None
    X = last.tables[0].vectors
    assert judge._lists is not None and judge._modalities is not None
    metrics = Metrics(model, judge._modalities, judge._scales)
    apart = metrics.all_pairs(X[lists.query], X[lists.item])[:, 0]
    scores = dict(zip(lists.scores.names, lists.scores.values.T, strict=True))
    signals = {name: one[0] for name, one in model.signals(X[lists.query], X[lists.item]).items()}
    assert model.remembered is not None and lists.names is not None
    recalled = model.remembered.recall(X[lists.query[0]])
    assert recalled is not None
    scores_of_learned = scores | {REMEMBERED: recalled.rates(lists.names)}
    assert max(scores_of_learned[REMEMBERED]) > 0.0
    found = [model.known_blend(signals | scores_of_learned)]
    found += [model.start({SIMILARITY: -one} | scores) for one in apart[1:]]
    weights = (np.arange(len(lists.item)) + 1.0) ** lists.exponent * lists.clicked
    wanted = []
    for values in found:
        ranks = (values[None, :] >= values[:, None]).sum(axis=1)
        gain = np.where(ranks <= 10, 1.0 / np.log2(1.0 + ranks), 0.0)
        wanted.append(1.0 - gain @ weights / weights.sum())
    held = np.ones(1, np.bool_)
    _, verdicts = judge._lists.after(lists, X, held, metrics)
    assert np.allclose(verdicts.losses, [wanted], atol=1e-9)
    assert len(set(np.round(wanted, 6))) > 1
