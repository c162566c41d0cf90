"""A generation has ended only where its machine has passed what a crashed predecessor had emitted: nothing twice."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.records.codec.codec import decode_constraints, decode_outcome
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import ConstraintBlock, Outcome
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System, patched
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

BUILDER = "builder-one-pass"
LEARNER = "learner-opml"


@dataclass(frozen=True)
class Case:
    """An agent, its topics by role, and the setting by which its next generation differs."""

    application: str
    input_role: str
    output_role: str
    change: str
    value: float

    @property
    def command(self) -> tuple[str, ...]:
        role, name = self.application.split("-", 1)
        return "worker", role, name


CASES = [
    pytest.param(Case(BUILDER, "events", "constraints", "builders__one-pass__seed", 4), id="builder"),
    pytest.param(Case(LEARNER, "constraints", "outcomes", "learners__opml__gamma", 0.5), id="learner"),
]


def slow(folder: Path, seconds: float) -> dict[str, str]:
    """An environment in which a worker needs so long for each record."""
    return patched(
        folder,
        f"""
        import time
        from kinstream.streams.worker import partition_task
        from kinstream.streams.agents.partition import PartitionRunner

        work = PartitionRunner.work

        def slowly(self, messages):
            time.sleep({seconds})
            work(self, messages)

        PartitionRunner.work = slowly
        partition_task.BATCH = partition_task.MOST = 1
        """,
    )


def emitted(system: System, case: Case) -> dict[tuple[int, int], set[int]]:
    """The generations that have emitted outputs from each input record, by (partition, offset)."""
    found: dict[tuple[int, int], set[int]] = {}
    name = case.application.split("-", 1)[1].encode()
    for message in system.read(case.output_role):
        said = dict(message.headers)
        if said["kinstream-emitter"] == name:
            _, partition, offset, _ = (said["kinstream-origin"] or b"").decode().rsplit("/", 3)
            found.setdefault((int(partition), int(offset)), set()).add(int(said["kinstream-generation"] or 0))
    return found


def inputs(system: System, case: Case) -> set[tuple[int, int]]:
    return {(p, offset) for p, end in system.ends(case.input_role).items() for offset in range(end)}


def first_appearances(messages: list[Message]) -> list[bytes]:
    """The values of a topic of outputs, each identity once."""
    kept: dict[tuple[bytes | None, ...], bytes] = {}
    for m in messages:
        said = dict(m.headers)
        kept.setdefault((m.key, *(said[f"kinstream-{n}"] for n in ("generation", "origin"))), m.value or b"")
    return list(kept.values())


def rows_emitted(system: System) -> int:
    found = [decode_constraints(value) for value in first_appearances(system.read("constraints"))]
    return sum(len(block) for block in found if isinstance(block, ConstraintBlock))


def rows_learned(system: System) -> int:
    found = [decode_outcome(value) for value in first_appearances(system.read("outcomes"))]
    counts = [outcome.counts for outcome in found if isinstance(outcome, Outcome)]
    return sum(c.seen + c.rejected + c.ignored + c.held_out for c in counts)


def killed_before_its_first_checkpoint(system: System, case: Case) -> dict[tuple[int, int], set[int]]:
    """Let the agent emit all that its input gives and kill it; what it has emitted."""
    workers = [system.worker(BUILDER, "--create")]
    system.send([*blocks("a", 12), *blocks("d", 6)])
    if case.application == LEARNER:
        builder = Case(BUILDER, "events", "constraints", "", 0)
        until(lambda: set(emitted(system, builder)) == inputs(system, builder), "all constraints are there")
        assert workers.pop().stop() == 0
        workers.append(system.worker(LEARNER, "--create"))
    until(lambda: set(emitted(system, case)) == inputs(system, case), "all outputs are there")
    workers.pop().end()
    assert not any(system.checkpoints(case.application).values())
    until(lambda: not system.members(case.application), "the killed worker's session has ended")
    return emitted(system, case)


def failing(process: Process) -> dict[str, dict[str, Any]]:
    """The checks of `/readyz` that do not hold, by name."""
    checks = process.readiness()[1].get("checks", [])
    return {check["name"]: check for check in checks if not check["ok"]}


def new_generation_with(system: System, case: Case) -> Process:
    """Change what shapes the outputs, and begin a generation with it."""
    changes: dict[str, Any] = {case.change: case.value, "checkpoints__interval_seconds": 0.3}
    system.configure(**changes)
    return system.begin_generation(case.application)


def check_each_record_once(system: System, case: Case, before: dict[tuple[int, int], set[int]]) -> None:
    """More events come: what was there is the old generation's alone, and what came the new one's."""
    workers = (
        [system.worker(BUILDER)] if case.application == LEARNER else [system.worker(LEARNER, "--create")]
    )
    system.send(blocks("a", 5, start=12))
    system.settle()
    after = emitted(system, case)
    assert set(after) == inputs(system, case)
    assert after == {place: {1} if place in before else {2} for place in after}
    assert rows_learned(system) == rows_emitted(system) > 0
    assert [worker.stop() for worker in workers] == [0] * len(workers)


@pytest.mark.kafka
@pytest.mark.parametrize("case", CASES)
def test_started_once_more_and_stopped_when_ready_the_next_generation_learns_no_row_twice(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path, case: Case
) -> None:
    system = make_system(kafka, checkpoints__interval_seconds=3600.0)
    before = killed_before_its_first_checkpoint(system, case)
    again = system.worker(case.application, environment=slow(tmp_path / "patch", 0.2), tag="-again")
    again.until_ready()
    assert again.stop() == 0
    worker = new_generation_with(system, case)
    check_each_record_once(system, case, before)
    assert worker.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_stopped_while_it_catches_up_no_generation_follows_until_it_has(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path, case: Case
) -> None:
    system = make_system(kafka, checkpoints__interval_seconds=3600.0)
    before = killed_before_its_first_checkpoint(system, case)
    again = system.worker(case.application, environment=slow(tmp_path / "patch", 1.0), tag="-again")
    again.expect("catching up with its own outputs, 12 records")
    until(lambda: set(failing(again)) == {"catching_up_records"}, "it catches up, and all else is well")
    check = failing(again)["catching_up_records"]
    assert check["message"] == "catching up with its own outputs"
    assert 0 < check["value"] <= len(before)
    assert again.readiness()[0] == 503
    assert again.stop() == 0
    until(lambda: not system.members(case.application), "the group is empty")
    # The documented words, also from a start of all agents; and nothing has begun.
    refusal = (
        rf"{case.application} generation 1 did not end cleanly on partition 0: it may have emitted more than its last "
        r"checkpoint covers, which is at offset \d+\. The log ends at 12: \d+ records are left\n"
        rf"(?:{case.application} generation 1 did not end cleanly on partition 1: .*\n)?"
        rf"Start it once more with its old settings \(kinstream {' '.join(case.command)}\), wait until its /readyz "
        r"answers 200 \(until then it reports how many records are left\), and stop it with SIGTERM"
    )
    for command in ((*case.command, "--new-generation"), ("up", "--new-generation")):
        status, text = system.run(*command)
        assert status == 3, text
        assert re.search(refusal, text), text
    assert all(read_birth(str(system.root), name, 2) is None for name in (BUILDER, LEARNER))
    # As it says.
    once_more = system.worker(case.application)
    once_more.until_ready()
    assert once_more.stop() == 0
    worker = new_generation_with(system, case)
    check_each_record_once(system, case, before)
    assert worker.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_store_from_a_copy_is_not_believed_before_its_outputs_are_passed(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    system = make_system(kafka)
    case = Case(BUILDER, "events", "constraints", "builders__one-pass__seed", 4)
    builder = system.worker(BUILDER, "--create")
    system.send(blocks("a", 5))
    system.settle(upto=BUILDER)
    assert builder.stop() == 0
    shutil.copytree(system.root, tmp_path / "copy")
    builder = system.worker(BUILDER)
    system.send(blocks("a", 7, start=5))
    system.settle(upto=BUILDER)
    assert builder.stop() == 0
    shutil.rmtree(system.root)
    shutil.copytree(tmp_path / "copy", system.root)
    before = emitted(system, case)
    until(lambda: not system.members(BUILDER), "the group is empty")
    status, text = system.run(*case.command, "--new-generation")
    assert status == 3
    assert (
        "builder-one-pass generation 1 did not end cleanly on partition 0: it has emitted outputs of records up to "
        "offset 12, and its last checkpoint is at offset 5: 7 records are left" in text
    )
    builder = system.worker(BUILDER)
    builder.expect("partition 0: catching up with its own outputs, 7 records")
    builder.until_ready()
    assert builder.stop() == 0
    worker = new_generation_with(system, case)
    check_each_record_once(system, case, before)
    assert worker.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_where_nothing_was_emitted_an_ended_generation_stays_ended(
    make_system: MakeSystem, kafka: KafkaBroker, tmp_path: Path
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    system.send(blocks("a", 5))
    system.settle(upto=BUILDER)
    assert builder.stop() == 0
    system.send(blocks("a", 7, start=5))
    again = system.worker(BUILDER, environment=slow(tmp_path / "patch", 1.0), tag="-again")
    again.until_ready()
    assert not again.said("catching up")
    assert again.stop() == 0
    read = system.checkpoints(BUILDER)[0][-1]
    assert read < 12
    worker = system.begin_generation(BUILDER)
    system.settle(upto=BUILDER)
    case = Case(BUILDER, "events", "constraints", "", 0)
    assert emitted(system, case) == {(0, offset): {1} if offset < read else {2} for offset in range(12)}
    assert worker.stop() == 0
