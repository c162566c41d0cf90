"""A record may ask for no more memory than the worker has: what a space takes is known before anything is allocated."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from kinstream.learners.agent import LearnerMachine, learner_spec
from kinstream.learners.memory import space_bytes
from kinstream.learners.ranking.clicks import FIELDS
from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.memory import CLICKS, ITEMS
from kinstream.learners.registry import create, own_names
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.identity import Identity, Position
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import ConstraintBlock, Kind, Outcome
from kinstream.testing.blocks import block
from tests.learners.ranking.world import World
from tests.support.pipeline import settings

#: Kinds that have no full matrix: many features are no reason to refuse them.
NARROW = {
    *("adapter", "euclidean", "kernel-lego", "lda", "lomdml", "oahu", "omdl-lr-like", "omks", "ranking"),
    *("soml-da", "soml-tg"),
}


def machine(kind: str, most_bytes: int = 1_500_000_000, **section: Any) -> Machine:
    lists = kind in ("adapter", "ranking")
    builder = {"kind": "clicks" if lists else "random-triplets"}
    made = settings(builders={"made": builder}, learners={"it": {"kind": kind, "from": ["made"], **section}})
    made = made.model_copy(
        update={"worker": made.worker.model_copy(update={"max_resident_bytes": most_bytes})}
    )
    place = Place("it", 1, "constraints", 0, 1, "outcomes", 1, "dead-letters")
    return learner_spec(made, "it").make_machine(place, lambda name: {})


def constraints(d: int, space: str, m: int = 2, kind: Kind = Kind.TRIPLET) -> ConstraintBlock:
    X = np.random.default_rng(d).normal(size=(2 * m + 1, d))
    columns = [np.arange(m), np.arange(1, m + 1), np.arange(m + 1, 2 * m + 1)]
    made = block(X, np.column_stack(columns[: 3 if kind is Kind.TRIPLET else 2]), kind)
    return ConstraintBlock(**{n: getattr(made, n) for n in made.__slots__} | {"space": space, "epoch": 0})


class Log:
    """What a builder has written for a learner."""

    def __init__(self) -> None:
        self.offset = 0
        self.before: dict[str, Position] = {}

    def message(self, made: ConstraintBlock) -> Message:
        at = Position(1, 0, self.offset, 0)
        identity = Identity("made", at, "events", 0, self.before.get(made.space))
        self.before[made.space] = at
        self.offset += 1
        headers = tuple(identity.headers())
        offset = self.offset - 1
        return Message("constraints", 0, offset, 0, made.space.encode(), encode(made), headers, offset - 1)


def outcomes(outputs: list[Output]) -> list[str]:
    return [decode(one.value, Outcome).space for one in outputs if one.topic == "outcomes"]


@pytest.mark.parametrize("kind", own_names())
def test_a_space_of_too_many_features_is_refused_and_the_others_go_on(kind: str) -> None:
    agent, log = machine(kind), Log()
    assert isinstance(agent, LearnerMachine)
    # Kernels are compiled before memory is counted.
    assert outcomes(agent.step(log.message(constraints(6, "narrow")))) == ["narrow"]
    tracemalloc.start()
    try:
        if kind not in NARROW:
            for _ in range(4):
                (letter,) = agent.step(log.message(constraints(20_000, "wide")))
                assert letter.topic == "dead-letters"
                assert any(b"space 'wide'" in (value or b"") for _, value in letter.headers)
            assert agent.dead == {"too-large": 4}
        assert outcomes(agent.step(log.message(constraints(6, "narrow")))) == ["narrow"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


@pytest.mark.parametrize("kind", own_names())
def test_every_kind_has_a_limit_by_the_memory_of_the_worker(kind: str) -> None:
    agent, log = machine(kind, most_bytes=1_000_000), Log()
    agent.step(log.message(constraints(4_000, "wide")))
    assert agent.dead == {"too-large": 1}


@pytest.mark.parametrize("kind", own_names())
def test_a_space_takes_no_more_than_is_said(kind: str) -> None:
    learner, d = create(kind), 600
    form = learner.form
    made = constraints(d, "s", kind=form)
    create(kind).learn(made)
    tracemalloc.start()
    try:
        learner.learn(made)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    said = space_bytes(kind, learner, [d])
    state = sum(value.nbytes for value in learner.state().values() if isinstance(value, np.ndarray))
    assert max(held, state) <= said
    # Eight times the features take 64 times the memory with a square, and eight times without.
    grown = space_bytes(kind, create(kind), [8 * d]) / said
    assert grown <= 8.01 if kind in NARROW else grown > 8.5


def test_parts_are_counted() -> None:
    alone = space_bytes("opml", create("opml"), [1000])
    fused = space_bytes("fusion", create("fusion", base="opml"), [1000, 1000])
    assert fused > 5 * alone
    half = space_bytes("opml", create("opml", dtype="float32"), [1000])
    assert alone == 2 * half

    class Own:
        def space_bytes(self, sizes: tuple[int, ...]) -> int:
            return 7 * sum(sizes)

    own: Any = Own()
    assert space_bytes("of-another-distribution", own, [3, 4]) == 49


def test_what_is_remembered_of_queries_is_counted() -> None:
    model = Ranking(remember=1_000)
    for one in World(200).blocks():
        model.learn(one)
    assert model.remembered is not None and len(model.remembered) > 50
    # Two numbers beside each, and a small one beside each of its items, say when it came; and the last clicks are there
    # once more.
    bytes_of_one = sum(one.nbytes for one in model.remembered.arrays().values()) / len(model.remembered) + 16
    bytes_of_one += ITEMS * 4
    bytes_of_one += CLICKS * FIELDS.itemsize
    more = space_bytes("ranking", model, [24]) - space_bytes("ranking", Ranking(), [24])
    assert bytes_of_one * 1_000 <= more <= 1.1 * bytes_of_one * 1_000


def test_a_space_that_gets_no_memory_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, log = machine("opml"), Log()

    def none_left(*arguments: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("kinstream.learners.one_modality.opml.OPML._begin", none_left)
        agent.step(log.message(constraints(6, "s")))
    assert agent.dead == {"too-large": 1}
    # The space is as if that block had never been learned.
    for space in ("s", "other", "s"):
        made = log.message(constraints(6, space))
        assert outcomes(agent.step(made)) == [space]
    found = agent.find("s")
    assert found is not None and found.step == 4


def test_a_model_that_may_be_half_changed_is_left_to_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, log = machine("opml"), Log()
    agent.step(log.message(constraints(6, "s")))

    def none_left(*arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("kinstream.learners.one_modality.opml.OPML.learn", none_left)
    with pytest.raises(MemoryError):
        agent.step(log.message(constraints(6, "s")))
    assert agent.next_offset == 1


def test_settings_are_still_checked() -> None:
    with pytest.raises(SettingsError):
        machine("opml", gamma=-1.0)
