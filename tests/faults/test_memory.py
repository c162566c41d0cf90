"""A record that takes all memory, in a learner on a real broker: its space is named, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.streams.agents.machine import Place
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.codec.codec import decode_constraints
from kinstream.streams.records.values import ConstraintBlock
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System, patched
from tests.faults.reference import blocks
from tests.faults.test_poison import headers_of, letters
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

BUILDER = "builder-one-pass"
LEARNER = "learner-opml"
#: Of one partition: in one of them is a record that takes all memory.
WIDE, OTHER = "a", "b"
AT = 1_007

#: A model of that record is half changed when there is no memory for the rest.
NO_MEMORY = """
    import os
    import resource

    import numpy as np

    from kinstream.learners.one_modality.opml import OPML

    learn = OPML.learn

    def failing(self, block):
        if (block.space, block.time_ms) != ("a", 1_007):
            return learn(self, block)
        learn(self, block.take(slice(0, 4)))
        taken = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**26, before[1]))
        try:
            np.ones(2**28)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    OPML.learn = failing
"""
KILLED = """
    import os
    import signal

    from kinstream.learners.one_modality.opml import OPML

    learn = OPML.learn

    def failing(self, block):
        if (block.space, block.time_ms) == ("a", 1_007):
            os.kill(os.getpid(), signal.{signal})
        return learn(self, block)

    OPML.learn = failing
"""


def constraint_offset(system: System) -> int:
    """Where in its partition the record stands."""
    found = [
        message.offset
        for message in system.read("constraints")
        if message.key == WIDE.encode()
        and isinstance(block := decode_constraints(message.value or b""), ConstraintBlock)
        and block.time_ms == AT
    ]
    assert len(found) == 1
    return found[0]


def without(system: System, offset: int) -> dict[str, bytes]:
    """The learner's spaces of partition 0 after all but the record at that offset."""
    names = (system.topic(role) for role in ("constraints", "outcomes", "dead-letters"))
    constraints, outcomes, dead = names
    place = Place("opml", 1, constraints, 0, 2, outcomes, 2, dead, skipped=frozenset({offset}))
    machine = learner_spec(system.settings, "opml").make_machine(place, lambda name: {})
    for message in system.read("constraints"):
        if message.partition == 0:
            machine.step(message)
    found = {}
    for name in (WIDE, OTHER):
        space = machine.find(name)
        assert space is not None and space.core is not None
        found[name] = to_bytes(space.core.state())
    return found


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize(
    "code", [NO_MEMORY, KILLED.format(signal="SIGKILL")], ids=["no memory", "killed for its memory"]
)
def test_a_record_that_takes_all_memory_is_skipped_alone(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path, code: str
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    learner = system.worker(LEARNER, "--create", environment=patched(tmp_path / "patch", code))
    system.send([*blocks(WIDE, 5), *blocks(OTHER, 5)])
    system.settle()
    # The record stands among others, of which a checkpoint may or may not hold some.
    mixed = [pair for n in range(5, 12) for pair in (*blocks(OTHER, 1, start=n), *blocks(WIDE, 1, start=n))]
    system.send(mixed)
    system.settle()
    system.send([*blocks(OTHER, 3, start=12), *blocks(WIDE, 3, start=12)])
    system.settle()
    (letter,) = letters(system, "opml").values()
    said, offset = headers_of(letter), constraint_offset(system)
    assert said["kinstream-dead-reason"] == b"skipped"
    assert said["kinstream-dead-refused"] == f"{system.topic('constraints')}/0/{offset}".encode()
    assert b"space 'a'" in said["kinstream-dead-detail"]
    until(lambda: learner.metric("kinstream_dead_letters_total", reason="skipped") == 1, "it is counted")
    assert learner.metric("kinstream_partition_parked", partition="0") == 0
    # All others are learned, and what of the model was half changed is not in it.
    assert system.states(LEARNER) == without(system, offset)
    assert [builder.stop(), learner.stop()] == [0, 0]


@pytest.mark.kafka
@pytest.mark.long
def test_a_record_in_which_the_process_crashes_parks_its_partition_wherever_it_stands(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    """A fault of a library is none of the record's memory: an operator decides, and the other partition goes on."""
    code = KILLED.format(signal="SIGSEGV")
    system = make_system(kafka, worker__stall_seconds=5.0)
    system.worker(BUILDER, "--create")
    learner = system.worker(LEARNER, "--create", environment=patched(tmp_path / "patch", code))
    system.send([*blocks(WIDE, 7), *blocks(OTHER, 5), *blocks(WIDE, 3, start=7)])
    learner.expect(r"partition 0 is parked: the record at offset \d+ has ended the worker three times")
    assert f"--offset {constraint_offset(system)}" in learner.log()
    system.send(blocks("d", 5))
    system.settle(upto=BUILDER)
    system.wait_for(LEARNER, {1: system.ends("constraints")[1]})
    assert not letters(system, "opml")
