"""A refused record can be brought back exactly once, by its own consumer, however often it is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents import letter as dead_letter
from kinstream.streams.agents.generations.birth import Birth, write_birth
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import BadRecord
from kinstream.streams.operations.letters import (
    Letter,
    LetterFilter,
    StandingRefusals,
    choose,
    plan,
    ranges,
    read_letter,
    redrives,
)
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import Action, Control, SampleBlock, Table
from tests.support.equal import same_states
from tests.support.pipeline import samples, settings

EVENTS = "kinstream.events"
LETTERS = "kinstream.dead-letters"
SPACE = "a"


class Partition:
    """One input partition, the machine that reads it, and the dead letters and outputs that come of it."""

    def __init__(self, spec: AgentSpec, **changes: Any) -> None:
        output = f"kinstream.{spec.output_role}"
        self.topic = f"kinstream.{spec.input_role}"
        self.spec = spec
        self.place = replace(Place(spec.name, 1, self.topic, 0, 1, output, 1, LETTERS), **changes)
        self.log: list[Message] = []
        self.letters: list[Message] = []
        self.outputs: list[Output] = []
        self.machine = self.start()

    def start(self) -> Machine:
        return self.spec.make_machine(self.place, _no_files)

    def append(self, value: bytes | None, headers: Any = (), key: bytes | None = SPACE.encode()) -> int:
        offset = len(self.log)
        self.log.append(Message(self.topic, 0, offset, 0, key, value, tuple(headers), offset - 1))
        return offset

    def run(self) -> None:
        for message in self.log[self.machine.next_offset :]:
            for output in self.machine.step(message):
                self.take(output)

    def take(self, output: Output) -> None:
        if output.topic != LETTERS:
            self.outputs.append(output)
            return
        at = len(self.letters)
        self.letters.append(Message(LETTERS, 0, at, at, output.key, output.value, output.headers, at - 1))

    def redrive(self, letters: Iterable[Message]) -> None:
        for letter in letters:
            output = dead_letter.redrive(letter)
            assert (output.topic, output.partition) == (self.topic, 0)
            self.append(output.value, output.headers, output.key)
        self.run()

    def core(self) -> Any:
        space = self.machine.find(SPACE)
        return None if space is None or space.core is None else to_bytes(space.core.state())

    def told(self) -> list[tuple[str, str, str]]:
        read = [read_letter(m) for m in self.letters]
        return [(x.reason, f"{x.from_offset}", "all" if x.rows is None else str(list(x.rows))) for x in read]


def _no_files(name: str) -> Any:
    raise AssertionError(name)


def builder(**changes: Any) -> Partition:
    return Partition(builder_spec(settings(), "one-pass"), **changes)


def learner(name: str = "opml", **changes: Any) -> Partition:
    return Partition(learner_spec(settings(), name), **changes)


def control(action: Action) -> bytes:
    return encode(Control(SPACE, action, 1))


def paused() -> Partition:
    """A builder that has refused four blocks of eight because their space was paused, and is resumed."""
    partition = builder()
    blocks = samples(SPACE, 8)
    for value in (*blocks[:4], control(Action.PAUSE), *blocks[4:], control(Action.RESUME)):
        partition.append(value)
    partition.run()
    return partition


def undisturbed() -> Partition:
    partition = builder()
    for value in samples(SPACE, 8):
        partition.append(value)
    partition.run()
    return partition


# ---- a builder --------------------------------------------------------------------------------------------------


def test_what_was_refused_is_applied_once_when_it_comes_back() -> None:
    partition = paused()
    assert partition.told() == [("space-paused", str(n), "all") for n in (5, 6, 7, 8)]
    partition.redrive(partition.letters)
    assert partition.core() == undisturbed().core()
    assert partition.machine.counts["redriven"] == 4
    assert partition.machine.counts["applied"] == 8
    assert len(partition.machine.refusals) == 0
    assert len(partition.letters) == 4


def test_a_second_redrive_is_ignored_and_counted() -> None:
    partition = paused()
    partition.redrive(partition.letters)
    before, outputs = partition.core(), len(partition.outputs)
    partition.redrive(partition.letters)
    assert partition.core() == before
    assert len(partition.outputs) == outputs
    assert partition.machine.counts["redriven"] == 4
    assert partition.machine.counts["redrives_ignored"] == 4


@pytest.mark.parametrize("sent", range(5))
def test_a_redrive_killed_at_any_step_and_repeated_redrives_once(sent: int) -> None:
    partition = paused()
    partition.redrive(partition.letters[:sent])
    partition.redrive(partition.letters)
    assert partition.core() == undisturbed().core()
    assert partition.machine.counts["redriven"] == 4
    assert partition.machine.counts["redrives_ignored"] == sent


def test_a_worker_killed_at_any_record_of_a_redrive_ends_in_the_same_state() -> None:
    whole = paused()
    whole.redrive(whole.letters)
    for crash in range(len(whole.log) + 1):
        again = builder()
        again.log = whole.log[:crash]
        again.run()
        state = again.machine.partition_state()
        spaces = again.machine.space_states()
        fresh = Partition(again.spec)
        fresh.machine = fresh.spec.make_machine(fresh.place, spaces.__getitem__)
        fresh.machine.restore(crash, again.machine.last_record, state, spaces)
        fresh.log = whole.log
        fresh.run()
        assert same_states({"p": fresh.machine.partition_state()}, {"p": whole.machine.partition_state()})
        assert fresh.core() == whole.core()


def test_the_outputs_of_a_redrive_take_the_redrives_own_offset() -> None:
    partition = paused()
    first = len(partition.log)
    seen = len(partition.outputs)
    partition.redrive(partition.letters)
    origins = [dict(o.headers)["kinstream-origin"].decode() for o in partition.outputs[seen:]]
    assert origins == [f"{EVENTS}/0/{first + n}/0" for n in range(4)]


def test_a_redrive_moves_no_sequence_so_the_load_goes_on() -> None:
    partition = builder()
    blocks = samples(SPACE, 4)
    for value in (blocks[0], control(Action.PAUSE), blocks[1], control(Action.RESUME), blocks[2]):
        partition.append(value)
    partition.run()
    partition.redrive(partition.letters)
    partition.append(blocks[2])
    partition.append(blocks[3])
    partition.run()
    assert partition.machine.counts["applied"] == 4
    assert partition.machine.counts["duplicates"] == 1


def test_a_redrive_for_another_consumer_is_nothing_to_this_one() -> None:
    partition = paused()
    before, counts = partition.core(), dict(partition.machine.counts)
    for letter in partition.letters:
        output = dead_letter.redrive(letter)
        headers = dict(output.headers) | {dead_letter.REDRIVE_CONSUMER: b"somebody-else"}
        partition.append(output.value, headers.items(), output.key)
    partition.run()
    assert partition.core() == before
    assert dict(partition.machine.counts) == counts
    assert len(partition.letters) == 4


def test_a_redrive_that_names_another_partition_or_what_was_never_refused_is_ignored() -> None:
    partition = paused()
    output = dead_letter.redrive(partition.letters[0])
    for refused in (f"{EVENTS}/1/5", f"{EVENTS}/0/0", "kinstream.other/0/5", f"{EVENTS}/0/999"):
        headers = dict(output.headers) | {dead_letter.REDRIVE_REFUSED: refused.encode()}
        partition.append(output.value, headers.items(), output.key)
    partition.run()
    assert partition.machine.counts["redrives_ignored"] == 4
    assert partition.machine.counts["redriven"] == 0


def test_a_redrive_that_is_refused_again_is_a_new_letter_under_its_own_offset() -> None:
    partition = paused()
    partition.append(control(Action.PAUSE))
    partition.run()
    first = len(partition.log)
    partition.redrive(partition.letters[:1])
    assert partition.told()[-1] == ("space-paused", str(first), "all")
    partition.append(control(Action.RESUME))
    partition.redrive(partition.letters[:1])
    assert partition.machine.counts["redrives_ignored"] == 1
    partition.redrive(partition.letters[-1:])
    partition.redrive(partition.letters[1:4])
    assert partition.machine.counts["applied"] == 8
    assert len(partition.machine.refusals) == 0


def mixed(rows: int = 6, bad: tuple[int, ...] = (1, 4)) -> tuple[SampleBlock, SampleBlock]:
    """A block with rows that are not finite, and the same one repaired."""
    vectors = np.random.default_rng(2).normal(size=(rows, 3)).astype(np.float32)
    broken = vectors.copy()
    broken[list(bad), 0] = np.nan
    labels = np.arange(rows, dtype=np.int64) % 2
    return (
        SampleBlock(SPACE, (Table("x", broken),), labels, 5),
        SampleBlock(SPACE, (Table("x", vectors),), labels, 5),
    )


def test_only_the_refused_rows_of_a_block_come_back() -> None:
    partition = builder()
    broken, repaired = mixed()
    partition.append(encode(broken))
    partition.run()
    assert partition.told() == [("not-finite", "0", "[1, 4]")]
    letter = partition.letters[0]._replace(value=encode(repaired))
    partition.redrive([letter])
    partition.redrive([letter])
    assert (partition.machine.counts["redriven"], partition.machine.counts["redrives_ignored"]) == (1, 1)

    by_hand = builder()
    vectors, labels = repaired.tables[0].vectors, np.asarray(repaired.labels)
    for rows in ([0, 2, 3, 5], [1, 4]):
        part = replace(repaired, tables=(Table("x", vectors[rows]),), labels=labels[rows])
        by_hand.append(encode(part))
    by_hand.run()
    kept = {name: np.asarray(value) for name, value in _core(partition).items()}
    wanted = {name: np.asarray(value) for name, value in _core(by_hand).items()}
    assert kept.keys() == wanted.keys()
    for name, value in kept.items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)


def _core(partition: Partition) -> dict[str, Any]:
    space = partition.machine.find(SPACE)
    assert space is not None
    assert space.core is not None
    return space.core.state()


def test_rows_that_are_refused_again_never_bring_the_good_rows_of_their_block_twice() -> None:
    partition = builder()
    partition.append(encode(mixed()[0]))
    partition.run()
    before = partition.core()
    for _ in range(3):
        partition.redrive(partition.letters[-1:])
    assert partition.told() == [("not-finite", str(n), "[1, 4]") for n in range(4)]
    assert partition.core() == before


# ---- a learner --------------------------------------------------------------------------------------------------


def constraints() -> list[Output]:
    return [o for o in undisturbed().outputs if o.topic == "kinstream.constraints"]


def test_a_learner_takes_back_what_it_was_told_to_skip_and_no_other_learner_notices() -> None:
    blocks = constraints()
    first, other = learner("opml", skipped=frozenset({2})), learner("copml")
    for partition in (first, other):
        for block in blocks:
            partition.append(block.value, block.headers, block.key)
        partition.run()
    assert first.told() == [("skipped", "2", "all")]
    assert other.letters == []
    before = other.core()
    for _ in range(2):
        first.redrive(first.letters)
        output = dead_letter.redrive(first.letters[0])
        other.append(output.value, output.headers, output.key)
        other.run()
    assert first.machine.counts["applied"] == len(blocks)
    assert (first.machine.counts["redriven"], first.machine.counts["redrives_ignored"]) == (1, 1)
    assert other.core() == before
    assert other.machine.counts["redrives_ignored"] == 0
    # The redrive touches no mark: the chain of the builder goes on behind it.
    assert first.machine.counts["adopted"] == 0
    assert first.machine.counts["duplicates"] == 0


def test_a_redriven_block_of_an_epoch_that_is_over_is_counted_and_changes_nothing() -> None:
    partition = learner("opml", skipped=frozenset({1}))
    source = undisturbed()
    source.append(control(Action.RESET))
    source.run()
    for block in source.outputs:
        partition.append(block.value, block.headers, block.key)
    partition.run()
    partition.redrive(partition.letters)
    assert partition.machine.counts["stale_epoch"] == 1
    assert partition.core() is None


def test_a_redrive_that_is_skipped_leaves_one_way_back() -> None:
    partition = paused()
    skipped = frozenset({len(partition.log)})
    partition.machine.place = replace(partition.place, skipped=skipped)
    partition.redrive(partition.letters[:1])
    partition.redrive([partition.letters[-1], partition.letters[0]])
    assert partition.machine.counts["applied"] == 5


def test_a_skipped_record_that_would_not_have_been_applied_cannot_be_brought_in_by_a_redrive() -> None:
    block = constraints()[0]
    stranger = dict(block.headers) | {"kinstream-emitter": b"stranger"}
    partition = learner("opml", skipped=frozenset({0, 2}))
    for headers in (stranger.items(), block.headers, block.headers):
        partition.append(block.value, headers, block.key)
    partition.run()
    partition.redrive(list(partition.letters))
    assert partition.machine.counts["applied"] == 1


# ---- reading letters --------------------------------------------------------------------------------------------


def test_a_letter_written_again_after_a_crash_is_one_letter() -> None:
    first, again = paused(), paused()
    messages = [*first.letters[:2], *first.letters[:2], *again.letters]
    messages = [m._replace(offset=n) for n, m in enumerate(messages)]
    found = choose(messages, LetterFilter())
    assert [x.from_offset for x in found.letters] == [5, 6, 7, 8]
    assert [x.offset for x in found.letters] == [0, 1, 6, 7]
    assert found.repeated == 4


def test_letters_are_chosen_by_reason_consumer_space_time_and_place() -> None:
    letters = paused().letters
    foreign = Message(LETTERS, 0, 99, 0, None, b"x", (("some", b"header"),), 98)
    for choice, offsets in (
        (LetterFilter(), [0, 1, 2, 3]),
        (LetterFilter(reason="space-paused"), [0, 1, 2, 3]),
        (LetterFilter(reason="empty"), []),
        (LetterFilter(consumer="one-pass", space="a"), [0, 1, 2, 3]),
        (LetterFilter(consumer="opml"), []),
        (LetterFilter(space="b"), []),
        (LetterFilter(since_ms=2), [2, 3]),
        (LetterFilter(places=frozenset({(0, 1), (1, 2)})), [1]),
    ):
        found = choose([*letters, foreign], choice)
        assert [x.offset for x in found.letters] == offsets, choice
        assert found.unreadable == 1


@pytest.mark.parametrize(
    "missing", [dead_letter.REFUSED, dead_letter.ROWS, dead_letter.CONSUMER, dead_letter.REASON]
)
def test_a_record_without_the_headers_is_no_letter(missing: str) -> None:
    letter = paused().letters[0]
    headers = tuple(pair for pair in letter.headers if pair[0] != missing)
    with pytest.raises(BadRecord, match="is not a dead letter"):
        read_letter(letter._replace(headers=headers))


def test_a_letter_that_was_cut_says_so_and_is_left_out_of_a_redrive() -> None:
    partition = builder()
    partition.append(b"\x00" * 990_000)
    partition.run()
    letter = read_letter(partition.letters[0])
    assert (letter.truncated, letter.size) == (True, 990_000)
    planned = plan([letter], [EVENTS], lambda x: None)
    assert planned.send == []
    assert planned.left_out == {"only their first part was kept; send them again from their source": 1}


def test_what_goes_to_a_foreign_topic_or_was_taken_back_is_left_out() -> None:
    letters = [read_letter(m) for m in paused().letters]
    held = {letters[0].offset: True, letters[1].offset: False}

    def holds(letter: Letter) -> bool | None:
        return held.get(letter.offset)

    planned = plan(letters, [EVENTS], holds)
    assert [x.offset for x in planned.send] == [0, 2, 3]
    assert sum(planned.left_out.values()) == 1
    assert plan(letters, ["kinstream.constraints"], holds).send == []


def test_a_redrive_reads_the_smallest_range_and_sends_only_what_was_planned() -> None:
    messages = paused().letters
    letters = [read_letter(m) for m in messages]
    chosen = [letters[1], letters[3]]
    assert ranges(chosen) == {0: (1, 4)}
    sent = list(redrives(messages, chosen))
    assert [o.value for o in sent] == [messages[1].value, messages[3].value]


# ---- what the checkpoints still hold ----------------------------------------------------------------------------


def standing(root: Path, partition: Partition) -> StandingRefusals:
    config = settings(checkpoints={"url": str(root)})
    spec = partition.spec
    write_birth(
        str(root),
        Birth(spec.application, 1, "", {}, {0: 0}, "c", partition.topic, None, 1, {}, 1),
    )
    CheckpointStore(str(root), spec.application, 1, partition.topic, 0).save(
        partition.machine.next_offset,
        changed={},
        unchanged={},
        partition=partition.machine.partition_state(),
        last_record=None,
    )
    return StandingRefusals(config)


def test_a_checkpoint_tells_what_was_brought_back_already(tmp_path: Path) -> None:
    partition = paused()
    letters = [read_letter(m) for m in partition.letters]
    assert [standing(tmp_path / "1", partition).holds(x) for x in letters] == [True] * 4
    partition.redrive(partition.letters[:3])
    assert [standing(tmp_path / "2", partition).holds(x) for x in letters] == [False] * 3 + [True]


def test_a_checkpoint_that_is_behind_or_missing_leaves_nothing_out(tmp_path: Path) -> None:
    partition = paused()
    letters = [read_letter(m) for m in partition.letters]
    behind = builder()
    behind.log = partition.log[:6]
    behind.run()
    assert [standing(tmp_path / "1", behind).holds(x) for x in letters] == [True, None, None, None]
    assert StandingRefusals(settings(checkpoints={"url": str(tmp_path / "2")})).holds(letters[0]) is None
    unknown = replace(letters[0], consumer="nobody")
    assert standing(tmp_path / "3", partition).holds(unknown) is None
