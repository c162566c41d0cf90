"""What one partition of each agent does with good, bad, repeated and reordered records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.letter import CONSUMER, REASON, REFUSED, ROWS, redrive
from kinstream.streams.agents.machine import Machine, Place, RecordsMissed
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.files import Missing
from kinstream.streams.errors import GenerationMismatch, LogGap, PartitionTaken, Reason
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.identity import Identity, Position
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import (
    Action,
    ConstraintBlock,
    Control,
    Declaration,
    Kind,
    LoadPosition,
    SampleBlock,
    Table,
)
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples, settings

SPACE = "a"


def place(spec: AgentSpec, **changes: Any) -> Place:
    output = None if spec.output_role is None else f"kinstream.{spec.output_role}"
    base = Place(spec.name, 1, f"kinstream.{spec.input_role}", 0, 1, output, 1, "kinstream.dead-letters")
    return replace(base, **changes)


def builder(**changes: Any) -> Machine:
    spec = builder_spec(settings(**changes), "one-pass")
    return spec.make_machine(place(spec), _no_files)


def learner(**changes: Any) -> Machine:
    spec = learner_spec(settings(), "opml")
    return spec.make_machine(place(spec, **changes), _no_files)


def _no_files(name: str) -> Any:
    raise AssertionError(name)


class Feed:
    """Gives a machine messages with rising offsets."""

    def __init__(self, machine: Machine, topic: str = "kinstream.events") -> None:
        self.machine = machine
        self.topic = topic
        self.offset = 0

    def __call__(self, value: bytes | None, key: str | None = SPACE, headers: Any = ()) -> list[Any]:
        message = Message(
            self.topic,
            0,
            self.offset,
            0,
            None if key is None else key.encode(),
            value,
            tuple(headers),
            self.offset - 1,
        )
        self.offset += 1
        return self.machine.step(message)


def reasons(outputs: list[Any]) -> list[str]:
    return [dict(o.headers)[REASON].decode() for o in outputs if o.topic.endswith("dead-letters")]


def block(n: int = 4, labels: Any = (0, 1, 0, 1), d: int = 3, **changes: Any) -> SampleBlock:
    vectors = np.arange(n * d, dtype=np.float32).reshape(n, d)
    return replace(SampleBlock(SPACE, (Table("x", vectors),), np.array(labels), 5), **changes)


# ---- the builder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (b"\x00\x01rubbish", SPACE, Reason.UNDECODABLE),
        (None, SPACE, Reason.UNDECODABLE),
        (b"\xc3\x01" + b"\x09" * 20, SPACE, Reason.UNKNOWN_SCHEMA),
        (encode(block())[:-3], SPACE, Reason.UNDECODABLE),
        (encode(block()), "b", Reason.WRONG_KEY),
        (encode(block()), None, Reason.WRONG_KEY),
        (b"[" * 100_000, SPACE, Reason.UNDECODABLE),
        (b'{"kind": ' * 5_000, SPACE, Reason.UNDECODABLE),
        (b'{"kind": "samples", "space": "a"}', SPACE, Reason.BAD_SHAPE),
        (b'{"kind": "other", "space": "a"}', SPACE, Reason.WRONG_KIND),
    ],
)
def test_a_bad_record_goes_to_dead_letters_and_the_stream_goes_on(
    value: Any, key: Any, reason: Reason
) -> None:
    feed = Feed(builder())
    outputs = feed(value, key)
    assert reasons(outputs) == [reason.value]
    assert outputs[0].value == value
    headers = dict(outputs[0].headers)
    assert headers[REFUSED] == b"kinstream.events/0/0"
    assert headers[CONSUMER] == b"one-pass"
    assert feed.machine.dead == {reason.value: 1}
    assert [o.topic for o in feed(encode(block()))] == ["kinstream.constraints"]


def test_rows_that_are_not_finite_are_refused_one_by_one() -> None:
    feed = Feed(builder())
    vectors = np.ones((4, 3), np.float32)
    vectors[2, 1] = np.nan
    outputs = feed(encode(block(tables=(Table("x", vectors),))))
    assert reasons(outputs) == [Reason.NOT_FINITE.value]
    assert dict(outputs[-1].headers)[ROWS] == b"2"
    calm = Feed(builder())
    good = np.array([0, 1, 3])
    calm(encode(block(3, np.array([0, 1, 1]), tables=(Table("x", vectors[good]),))))
    mine, theirs = feed.machine.find(SPACE), calm.machine.find(SPACE)
    assert mine is not None and theirs is not None and mine.core is not None and theirs.core is not None
    assert str(mine.core.state()) == str(theirs.core.state())


def test_every_row_not_finite_refuses_the_record() -> None:
    feed = Feed(builder())
    vectors = np.full((4, 3), np.inf, np.float32)
    outputs = feed(encode(block(tables=(Table("x", vectors),))))
    assert dict(outputs[0].headers)[ROWS] == b"all"
    assert feed.machine.find(SPACE) is None


def test_dimension_and_label_type_are_fixed_by_the_first_block() -> None:
    feed = Feed(builder())
    feed(encode(block()))
    assert reasons(feed(encode(block(d=5)))) == ["wrong-dimension"]
    assert reasons(feed(encode(block(labels=("x", "y", "x", "y"))) if False else encode(_texts()))) == [
        "wrong-label-type"
    ]


def _texts() -> SampleBlock:
    return replace(block(), labels=("x", "y", "x", "y"))


def test_a_sequence_of_a_load_is_applied_once() -> None:
    feed = Feed(builder())
    values = samples(SPACE, 3)
    first = [feed(value) for value in values]
    again = [feed(value) for value in values]
    assert all(first) and not any(again)
    assert feed.machine.counts["duplicates"] == 3


def test_a_refused_sequence_counts_as_used() -> None:
    feed = Feed(builder())
    bad = encode(block(tables=(Table("x", np.full((4, 3), np.nan, np.float32)),), load=LoadPosition("l", 0)))
    assert reasons(feed(bad)) == ["not-finite"]
    assert feed(bad) == []


def test_without_auto_create_a_space_must_be_created_first() -> None:
    feed = Feed(builder(spaces={"auto_create": False}))
    assert reasons(feed(encode(block()))) == ["unknown-space"]
    feed(encode(Control(SPACE, Action.CREATE, 1, Declaration((("x", 3),), "integer"))))
    assert [o.topic for o in feed(encode(block()))] == ["kinstream.constraints"]


def test_a_declaration_is_enforced() -> None:
    feed = Feed(builder())
    feed(encode(Control(SPACE, Action.CREATE, 1, Declaration((("x", 4),), "string"))))
    assert reasons(feed(encode(block()))) == ["wrong-dimension"]
    assert reasons(feed(encode(block(d=4)))) == ["wrong-label-type"]


def test_spaces_beyond_the_limit_are_refused() -> None:
    feed = Feed(builder(spaces={"max_per_partition": 1}))
    feed(encode(block()))
    outputs = feed(encode(replace(block(), space="b")), "b")
    assert reasons(outputs) == ["space-limit"]


def test_a_paused_space_refuses_and_takes_back_by_redrive() -> None:
    feed = Feed(builder())
    feed(encode(block()))
    feed(encode(Control(SPACE, Action.PAUSE, 1)))
    letter = feed(encode(block()))[0]
    assert reasons([letter]) == ["space-paused"]
    feed(encode(Control(SPACE, Action.RESUME, 1)))
    again = redrive(Message(letter.topic, 0, 0, 0, letter.key, letter.value, letter.headers, -1))
    outputs = feed(again.value, SPACE, again.headers)
    assert [o.topic for o in outputs] == ["kinstream.constraints"]
    assert feed(again.value, SPACE, again.headers) == []
    assert feed.machine.counts["redrives_ignored"] == 1


def test_control_records_are_passed_on_with_their_epoch() -> None:
    feed = Feed(builder())
    feed(encode(block()))
    reset = feed(encode(Control(SPACE, Action.RESET, 1)))
    record = decode_constraints(reset[0].value)
    assert isinstance(record, Control) and record.epoch == 1
    deleted = decode_constraints(feed(encode(Control(SPACE, Action.DELETE, 1)))[0].value)
    assert isinstance(deleted, Control) and deleted.epoch == 2
    assert reasons(feed(encode(block()))) == ["space-deleted"]


def test_a_reset_lets_the_same_load_count_again() -> None:
    feed = Feed(builder())
    value = samples(SPACE, 1)[0]
    feed(value)
    feed(encode(Control(SPACE, Action.RESET, 1)))
    assert feed(value)


def test_records_dropped_on_the_way_are_noticed_and_holes_are_not() -> None:
    machine = builder()
    value = encode(block())
    machine.step(Message("kinstream.events", 0, 0, 0, b"a", value, (), -1))
    machine.step(Message("kinstream.events", 0, 3, 0, b"a", value, (), 0))
    with pytest.raises(RecordsMissed) as missed:
        machine.step(Message("kinstream.events", 0, 9, 0, b"a", value, (), 7))
    assert missed.value.wanted == 4
    assert machine.step(Message("kinstream.events", 0, 2, 0, b"a", value, (), 1)) == []


def test_a_skipped_offset_goes_to_dead_letters_and_another_copy_of_the_record_does_not() -> None:
    spec = builder_spec(settings(), "one-pass")
    feed = Feed(spec.make_machine(place(spec, skipped=frozenset({1})), _no_files))
    feed(encode(block()))
    assert reasons(feed(encode(block(load=LoadPosition("l", 0))))) == ["skipped"]
    assert [o.topic for o in feed(encode(block(load=LoadPosition("l", 0))))] == ["kinstream.constraints"]


def test_a_new_generation_goes_on_in_the_epochs_that_spaces_had(tmp_path: Path) -> None:
    config = settings()
    log = MemoryLog(1)
    log.append("kinstream.events", b"a", samples(SPACE, 1)[0])
    log.append("kinstream.events", b"a", encode(Control(SPACE, Action.RESET, 1)))
    old = Agent(builder_spec(config, "one-pass"), config, log, tmp_path)
    old.run()
    new = Feed(builder())
    runner = old.runners[0]
    space = runner.machine.find(SPACE)
    assert space is not None
    new.machine.inherit(runner.machine.partition_state(), {SPACE: space.state()})
    found = new.machine.find(SPACE)
    assert found is not None and found.epoch == 1 and found.core is None and found.emitted is None


# ---- the learner ------------------------------------------------------------------------------------------------


def constraints(epoch: int = 0, **changes: Any) -> ConstraintBlock:
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    base = ConstraintBlock(
        SPACE,
        Kind.TRIPLET,
        (Table("x", vectors),),
        np.array([[0, 1, 2], [1, 2, 3]], np.int32),
        np.zeros(2, np.int8),
        ("one-pass",),
        np.zeros(2, np.uint8),
        np.zeros(2, np.bool_),
        np.ones(2, np.float32),
        5,
        epoch,
    )
    return replace(base, **changes)


class Chain:
    """Feeds a learner the chain of one builder."""

    def __init__(self, machine: Machine, emitter: str = "one-pass") -> None:
        self.feed = Feed(machine, "kinstream.constraints")
        self.emitter = emitter
        self.last: Position | None = None

    def __call__(
        self,
        offset: int,
        epoch: int = 0,
        generation: int = 1,
        value: bytes | None = None,
        previous: Any = "last",
    ) -> list[Any]:
        position = Position(generation, epoch, offset, 0)
        before = self.last if previous == "last" else previous
        if before is not None and (before.generation, before.epoch) != (generation, epoch):
            before = None
        identity = Identity(self.emitter, position, "kinstream.events", 0, before)
        self.last = position
        return self.feed(value or encode(constraints(epoch)), SPACE, identity.headers())


def test_a_learner_takes_each_output_once() -> None:
    chain = Chain(learner())
    assert chain(0) and chain(1)
    assert chain(0, previous=None) == []
    assert chain.feed.machine.counts["duplicates"] == 1


def test_a_missing_output_stops_the_learner_until_it_is_accepted() -> None:
    chain = Chain(learner())
    chain(0)
    with pytest.raises(LogGap, match="accept-gap"):
        chain(5, previous=Position(1, 0, 4, 0))
    accepting = Chain(learner(accepted_gaps=frozenset({1})))
    accepting(0)
    assert accepting(5, previous=Position(1, 0, 4, 0))
    assert accepting.feed.machine.counts["adopted"] == 1


def test_a_new_learner_on_a_trimmed_log_adopts_the_chain() -> None:
    chain = Chain(learner())
    assert chain(7, previous=Position(1, 0, 6, 0))
    assert chain.feed.machine.counts["adopted"] == 1
    assert chain(8)


def test_two_generations_of_a_builder_in_one_log() -> None:
    chain = Chain(learner())
    chain(0)
    chain(1)
    assert chain(2, generation=2)
    assert chain(2, generation=1, previous=Position(1, 0, 1, 0)) == []


def test_a_slow_builder_neither_revives_nor_wipes_a_space() -> None:
    machine = learner()
    fast, slow = Chain(machine, "one-pass"), Chain(machine, "one-pass")
    slow.feed = fast.feed
    fast(0)
    step = machine.find(SPACE).step  # type: ignore[union-attr]
    assert step == 2
    fast(10, epoch=10, value=encode(Control(SPACE, Action.RESET, 1, None, 10)))
    space = machine.find(SPACE)
    assert space is not None and space.step == 0 and space.epoch == 10
    fast(11, epoch=10)
    assert machine.find(SPACE).step == 2  # type: ignore[union-attr]


def test_two_builders_on_one_space_share_its_epochs() -> None:
    config = settings(
        builders={"one-pass": {"kind": "one-pass"}, "second": {"kind": "one-pass"}},
        learners={"opml": {"kind": "opml", "from": ["one-pass", "second"]}},
    )
    spec = learner_spec(config, "opml")
    machine = spec.make_machine(place(spec), _no_files)
    one = Chain(machine, "one-pass")
    two = Chain(machine, "second")
    two.feed = one.feed
    one(0)
    two(0)
    one(10, epoch=10, value=encode(Control(SPACE, Action.RESET, 1, None, 10)))
    assert two(3) == []  # of the epoch before the reset
    assert machine.counts["stale_epoch"] == 1
    two(10, epoch=10, value=encode(Control(SPACE, Action.RESET, 1, None, 10)))
    assert two(12, epoch=10)
    one(20, epoch=20, value=encode(Control(SPACE, Action.DELETE, 1, None, 20)))
    assert two(14, epoch=10) == []
    space = machine.find(SPACE)
    assert space is not None and space.status.value == "deleted" and space.core is None


def test_a_builder_that_is_not_followed_is_left_out() -> None:
    chain = Chain(learner(), "stranger")
    assert chain(0) == []
    assert chain.feed.machine.counts["not_followed"] == 1
    assert chain.feed.machine.find(SPACE) is None


def test_a_refused_block_moves_the_mark_and_comes_back_by_redrive() -> None:
    chain = Chain(learner())
    chain(0)
    bad = chain(1, value=encode(constraints())[:-2])
    assert reasons(bad) == ["undecodable"]
    assert chain(2)
    good = encode(constraints())
    letter = bad[0]
    again = redrive(Message(letter.topic, 0, 0, 0, letter.key, good, letter.headers, -1))
    before = chain.feed.machine.find(SPACE).step  # type: ignore[union-attr]
    outputs = chain.feed(again.value, SPACE, again.headers)
    assert [o.topic for o in outputs] == ["kinstream.outcomes"]
    assert chain.feed.machine.find(SPACE).step == before + 2  # type: ignore[union-attr]
    assert chain.feed(again.value, SPACE, again.headers) == []


def test_constraints_with_a_lie_are_refused() -> None:
    chain = Chain(learner())
    outside = encode(
        constraints(
            index=np.array([[0, 1, 9]], np.int32),
            rule=np.zeros(1, np.uint8),
            derived=np.zeros(1, np.bool_),
            weights=np.ones(1, np.float32),
        )
    )
    assert reasons(chain(0, value=outside)) == ["bad-shape"]
    infinite = np.full((4, 3), np.inf, np.float32)
    assert reasons(chain(1, value=encode(constraints(tables=(Table("x", infinite),))))) == ["not-finite"]
    assert reasons(chain(2, value=encode(constraints(epoch=7)))) == ["bad-identity"]
    chain(3)
    wide = encode(constraints(tables=(Table("x", np.ones((4, 9), np.float32)),)))
    assert reasons(chain(4, value=wide)) == ["wrong-dimension"]


# ---- the partition ----------------------------------------------------------------------------------------------


def test_a_log_that_lost_its_beginning_is_a_stop_and_not_a_skip(tmp_path: Path) -> None:
    config = settings()
    log = MemoryLog(1)
    log.append("kinstream.events", b"a", samples(SPACE, 1)[0])
    agent = Agent(builder_spec(config, "one-pass"), config, log, tmp_path)
    agent.run()
    with pytest.raises(LogGap, match="accept-gap one-pass --partition 0 --offset 5"):
        Agent(builder_spec(config, "one-pass"), config, log, tmp_path).runners[0].restore(0, 5, 9)


def test_a_shorter_log_is_another_log(tmp_path: Path) -> None:
    config = settings()
    log = MemoryLog(1)
    log.append("kinstream.events", b"a", samples(SPACE, 1)[0])
    agent = Agent(builder_spec(config, "one-pass"), config, log, tmp_path)
    agent.run()
    with pytest.raises(GenerationMismatch, match="another log"):
        agent.runners[0].restore(0, 0, 0)


def test_nothing_is_written_when_an_output_is_rejected(tmp_path: Path) -> None:
    config = settings()
    log = MemoryLog(1)
    for value in samples(SPACE, 2):
        log.append("kinstream.events", b"a", value)
    agent = Agent(builder_spec(config, "one-pass"), config, log, tmp_path)
    agent.step(0)
    agent.sink.reject = True
    with pytest.raises(Exception, match="rejected on purpose"):
        agent.runners[0].checkpoint()
    assert agent.runners[0].store.offsets() == []


def test_spaces_left_to_their_files_come_back_unchanged(tmp_path: Path) -> None:
    config = settings()
    log = MemoryLog(1)
    for space in ("a", "b"):
        log.append("kinstream.events", space.encode(), samples(space, 2)[0])
    agent = Agent(builder_spec(config, "one-pass"), config, log, tmp_path)
    runner = agent.runners[0]
    runner._max_resident_bytes = 0
    agent.run()
    assert runner.machine.resident() == []
    for space in ("a", "b"):
        log.append("kinstream.events", space.encode(), samples(space, 2)[1])
    agent.run()
    calm = Agent(builder_spec(config, "one-pass"), config, log, tmp_path / "calm")
    calm.run()
    assert {k: str(v) for k, v in agent.states().items()} == {k: str(v) for k, v in calm.states().items()}


def _left_to_files(root: Path, log: MemoryLog) -> Agent:
    """A builder whose spaces `a` and `b` are in their files alone."""
    config = settings()
    for space in ("a", "b"):
        log.append("kinstream.events", space.encode(), samples(space, 9)[0])
    agent = Agent(builder_spec(config, "one-pass"), config, log, root)
    agent.runners[0]._max_resident_bytes = 0
    agent.run()
    log.append("kinstream.events", b"a", samples("a", 9)[1])
    return agent


def test_a_frozen_worker_whose_partition_was_taken_says_so(tmp_path: Path) -> None:
    log = MemoryLog(1)
    frozen = _left_to_files(tmp_path, log)
    successor = Agent(builder_spec(settings(), "one-pass"), settings(), log, tmp_path)
    for number in range(2, 8):
        log.append("kinstream.events", b"a", samples("a", 9)[number])
        successor.run()
        successor.runners[0].checkpoint()
    with pytest.raises(
        PartitionTaken,
        match=r"partition 0: another worker has written a checkpoint at offset 9, past ours at 2",
    ):
        frozen.step(0)


def test_a_file_that_is_lost_without_a_successor_is_an_error(tmp_path: Path) -> None:
    agent = _left_to_files(tmp_path, MemoryLog(1))
    for path in tmp_path.rglob("spaces/a@*"):
        path.unlink()
    with pytest.raises(Missing, match="bring it back from a copy"):
        agent.step(0)
