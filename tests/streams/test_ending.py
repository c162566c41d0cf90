"""When a generation has ended: what final marks say, who may write them, and what outputs say against them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kinstream.streams.agents.generations import ending
from kinstream.streams.agents.generations.ending import emitted_past
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.generations.open_generation import check_next, open_generation
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.agents.machine import Machine
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import AccessDenied, GenerationMismatch, OutsideUnavailable
from kinstream.streams.records.message import Message
from kinstream.streams.topics import partition_of
from kinstream.streams.worker import partition_task
from kinstream.streams.worker.partition_task import Owned
from tests.streams.growing_system import CONSTRAINTS, EVENTS, GrowingSystem, Worker, load

PARTITIONS = (0, 1)


def spec_of(system: GrowingSystem, application: str = "builder-one-pass") -> AgentSpec:
    return next(spec for spec in system.specs if spec.application == application)


def started(system: GrowingSystem, application: str = "builder-one-pass") -> Worker:
    return Worker(system, spec_of(system, application))


def emit(worker: Worker) -> Worker:
    """Apply all that waits and have the outputs land, without a checkpoint: the run is killed then."""
    for p, runner in worker.runners.items():
        runner.work(worker.system.log.read(worker.topic, p, runner.machine.next_offset))
    worker.sink.confirm()
    return worker


def refusal(system: GrowingSystem, application: str = "builder-one-pass") -> str:
    with pytest.raises(GenerationMismatch) as error:
        open_generation(spec_of(system, application), system.settings, system.asked, new=True)
    assert newest_generation(system.settings, application) == 1
    return str(error.value)


def begun(system: GrowingSystem, application: str = "builder-one-pass") -> dict[int, int]:
    """Where the next generation begins."""
    made = open_generation(spec_of(system, application), system.settings, system.asked, new=True)
    return dict(made.birth.start_offsets)


def ends(system: GrowingSystem, topic: str = EVENTS) -> dict[int, int]:
    return {p: system.log.end(topic, p) for p in PARTITIONS}


# ---- marks ----------------------------------------------------------------------------------------------------------


def test_an_ended_partition_that_a_run_takes_over_and_gives_back_unread_stays_ended(
    system: GrowingSystem,
) -> None:
    before = ends(system)
    load(system, "more")
    worker = started(system)
    assert worker.generation.final_offset(0) is None
    worker.stop()
    assert begun(system) == before


def test_without_a_final_mark_a_killed_run_may_have_emitted_up_to_the_log_s_end(
    system: GrowingSystem,
) -> None:
    first = ends(system)
    generation = started(system).generation
    load(system, "more")
    for p, end in ends(system).items():
        assert generation.emitted_to(p, end) == end > first[p]
    # And again: what came since then may have been applied by the run in between.
    load(system, "and more")
    again = started(system)
    for p, end in ends(system).items():
        assert again.generation.emitted_to(p, end) == end
    again.work().stop()
    load(system, "at last")
    for p in PARTITIONS:
        covered = again.generation.covered_offset(p)
        assert (
            again.generation.emitted_to(p, system.log.end(EVENTS, p)) == covered < system.log.end(EVENTS, p)
        )


def test_a_run_whose_partition_another_one_has_taken_over_writes_no_final_mark(system: GrowingSystem) -> None:
    load(system, "more")
    slow = started(system).work()
    emit(started(system))
    slow.stop()
    assert [slow.generation.final_offset(p) for p in PARTITIONS] == [None, None]
    assert "did not end cleanly on partition 0" in refusal(system)


def test_a_partition_that_nobody_has_taken_over_has_ended_where_it_began(system: GrowingSystem) -> None:
    made = open_generation(spec_of(system), system.settings, system.asked, new=True)
    assert [made.final_offset(p) for p in PARTITIONS] == [made.birth_offset(p) for p in PARTITIONS]


def mark_of(generation: Generation, partition: int = 0) -> Path:
    return Path(generation.settings.checkpoints.url, generation.spec.application, str(generation.number)) / (
        f"{generation.birth.input_topic}-{partition}.final"
    )


def test_a_lost_mark_beside_checkpoints_is_no_end(system: GrowingSystem) -> None:
    worker = started(system)
    mark_of(worker.generation).unlink()
    assert worker.generation.final_offset(0) is None


def test_marks_of_earlier_versions_are_read(system: GrowingSystem) -> None:
    generation = started(system).generation
    mark_of(generation).write_text("-1")
    assert generation.final_offset(0) is None
    covered = generation.covered_offset(0)
    mark_of(generation).write_text(str(covered))
    assert generation.final_offset(0) == covered
    mark_of(generation).write_text(str(covered - 1))
    assert generation.final_offset(0) is None


# ---- outputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("application", ["builder-one-pass", "learner-opml"])
def test_a_mark_with_outputs_behind_it_is_refused_and_the_next_run_catches_up(
    system: GrowingSystem, tmp_path: Path, application: str
) -> None:
    topic = EVENTS if application.startswith("builder") else CONSTRAINTS
    old = ends(system, topic)
    shutil.copytree(system.root / application, tmp_path / "copy")
    load(system, "more")
    system.drain()
    shutil.rmtree(system.root / application)
    shutil.copytree(tmp_path / "copy", system.root / application)
    emitted = ends(system, topic)
    load(system, "unread")
    text = refusal(system, application)
    for p in PARTITIONS:
        assert (
            f"{application} generation 1 did not end cleanly on partition {p}: it has emitted outputs of records up to "
            f"offset {emitted[p]}, and its last checkpoint is at offset {old[p]}: {emitted[p] - old[p]} records are "
            "left"
        ) in text
    # The marks are taken back, so that a run knows that it has to catch up.
    generation = open_generation(spec_of(system, application), system.settings, system.asked)
    now = ends(system, topic)
    assert [generation.emitted_to(p, now[p]) for p in PARTITIONS] == [now[p] for p in PARTITIONS]
    started(system, application).work().stop()
    assert begun(system, application) == ends(system, topic)


def test_outputs_are_read_from_the_time_of_the_first_unread_record_on(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, written = ends(system), ends(system, CONSTRAINTS)
    load(system, "more")
    worker = emit(started(system))
    load(system, "unread")
    read: list[tuple[int, int]] = []
    inner = system.read_range

    def reading(kafka: Any, topic: str, ranges: Any, **more: Any) -> Any:
        read.extend((p, start) for p, (start, _) in ranges.items() if topic == CONSTRAINTS)
        return inner(topic, ranges)

    monkeypatch.setattr(ending, "read_range", reading)
    monkeypatch.setattr(ending, "SKEW_MS", 0)
    monkeypatch.setattr(ending, "BEFORE", 0)
    reached = emitted_past(worker.generation, system.asked, old)
    assert reached == {p: runner.machine.next_offset for p, runner in worker.runners.items()}
    # Both partitions' outputs may lie on either; those of before are left alone.
    assert sorted(read) == sorted(written.items())


@pytest.mark.parametrize("ahead", [0, 3_600_000, 200 * 3_600_000])
def test_outputs_are_seen_whatever_the_clock_of_one_writer_says(system: GrowingSystem, ahead: int) -> None:
    old = ends(system)
    system.log.clock += ahead
    for p in PARTITIONS:
        space = next(name for n in range(9) if partition_of(name := f"space {n}", 2) == p)
        system.send(space, b"\x00")
    system.log.clock -= ahead
    load(system, "more")
    worker = emit(started(system))
    assert emitted_past(worker.generation, system.asked, old) == {
        p: runner.machine.next_offset for p, runner in worker.runners.items()
    }


def test_outputs_of_other_emitters_generations_and_partitions_do_not_count(system: GrowingSystem) -> None:
    generation = started(system).generation
    system.send("space 0", b"\x00")
    at = partition_of("space 0", 2)
    offset = system.log.end(EVENTS, at) - 1

    def headers(**changes: str) -> Any:
        said = {"emitter": "one-pass", "generation": "1", "epoch": "0", "origin": f"{EVENTS}/{at}/{offset}/0"}
        return tuple((f"kinstream-{name}", text.encode()) for name, text in {**said, **changes}.items())

    for changes in (
        {"emitter": "another"},
        {"generation": "2"},
        {"origin": f"{EVENTS}/{1 - at}/{offset + 100}/0"},
        {"origin": f"{EVENTS}/{at}/{offset - 1}/0"},
        {"origin": f"other/{at}/{offset}/0"},
        {"origin": "nonsense"},
    ):
        system.log.append(CONSTRAINTS, b"space 0", b"", headers(**changes), 0)
    wanted = {at: offset}
    assert emitted_past(generation, system.asked, wanted) == {}
    system.log.append(CONSTRAINTS, b"space 0", b"", headers(), 1)
    assert emitted_past(generation, system.asked, wanted) == {at: offset + 1}


def test_who_may_not_read_the_outputs_begins_a_generation_by_the_marks_alone(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = ends(system)
    load(system, "more")

    def refuse(*arguments: Any, **more: Any) -> Any:
        if arguments[1] == CONSTRAINTS:
            raise AccessDenied("lacks READ on topic kinstream.constraints")
        return iter(system.read_range(arguments[1], arguments[2]))

    monkeypatch.setattr(ending, "read_range", refuse)
    assert begun(system) == before
    assert "its outputs were not compared with its final marks: lacks READ" in caplog.text


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_the_refusal_names_every_partition_the_records_left_and_what_to_do(system: GrowingSystem) -> None:
    old = ends(system)
    load(system, "more")
    emit(started(system))
    now = ends(system)
    text = refusal(system)
    for p in PARTITIONS:
        assert (
            f"builder-one-pass generation 1 did not end cleanly on partition {p}: it may have emitted more than its "
            f"last checkpoint covers, which is at offset {old[p]}. The log ends at {now[p]}: {now[p] - old[p]} records "
            "are left"
        ) in text
    assert text.endswith(
        "Start it once more with its old settings (kinstream worker builder one-pass), wait until its /readyz answers "
        "200 (until then it reports how many records are left), and stop it with SIGTERM; or begin at the log's start: "
        "kinstream worker builder one-pass --new-generation --from-start"
    )


def test_a_parked_partition_is_named_with_its_command(system: GrowingSystem) -> None:
    load(system, "more")
    worker = started(system)
    offset = system.log.end(EVENTS, 0) - 1
    parking = Parking(str(system.root), "builder-one-pass", 1)
    for _ in range(3):
        parking.record_fault(EVENTS, 0, offset, "ValueError")
    text = refusal(system)
    assert (
        f"on partition 0, which is parked at offset {offset}: kinstream skip builder-one-pass --partition 0 --offset "
        f"{offset}" in text
    )
    assert worker.generation.parking.parked_offset(EVENTS, 0) == offset


def test_what_could_not_follow_is_said_before_anything_begins(system: GrowingSystem) -> None:
    for spec in system.specs:
        check_next(spec, system.settings, system.asked, from_start=False)
    load(system, "more")
    emit(started(system))
    with pytest.raises(GenerationMismatch, match="did not end cleanly on partition 0"):
        check_next(spec_of(system), system.settings, system.asked, from_start=False)
    check_next(spec_of(system), system.settings, system.asked, from_start=True)
    system.cluster.members["kinstream-builder-one-pass-v1"] = 1
    with pytest.raises(GenerationMismatch, match="once their /readyz answers 200"):
        check_next(spec_of(system), system.settings, system.asked, from_start=True)
    assert {newest_generation(system.settings, spec.application) for spec in system.specs} == {1}


# ---- many ends ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_whatever_ends_the_runs_no_record_is_in_two_generations(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Runs end by kills, by early stops and by stops at the end; after each a new generation is asked for."""
    rng = random.Random(seed)
    # The marks alone must do: nothing outlives its run here.
    monkeypatch.setattr(ending, "emitted_past", lambda *arguments: {})
    generations = 1
    for turn in range(20):
        load(system, f"load {turn}", blocks=1)
        worker = started(system)
        for p, runner in worker.runners.items():
            waiting = system.log.read(EVENTS, p, runner.machine.next_offset)
            runner.work(waiting[: rng.choice([0, 1, 3, *([len(waiting)] * 6)])])
        if rng.random() < 0.4:
            worker.sink.deliver(rng.randint(0, len(worker.sink.waiting)))
        else:
            for runner in worker.runners.values():
                if runner.dirty:
                    runner.checkpoint()
            worker.stop()
        with suppress(GenerationMismatch):
            begun(system)
            generations += 1
    made: dict[str, set[bytes | None]] = {}
    for p in PARTITIONS:
        for message in system.log.read(CONSTRAINTS, p, 0):
            said = dict(message.headers)
            made.setdefault(str(said["kinstream-origin"]), set()).add(said["kinstream-generation"])
    assert all(len(which) == 1 for which in made.values())
    assert 1 < generations <= 20


# ---- a partition that a worker owns ---------------------------------------------------------------------------------


class Host:
    """What a partition's task asks of its worker; `at` is what the client has got past."""

    at = 0

    async def run_in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    async def seek_back(self, place: tuple[str, int], offset: int) -> None: ...

    async def commit(self, place: tuple[str, int], offset: int) -> bool:
        return True

    def position(self, place: tuple[str, int], applied: int) -> int:
        return max(self.at, applied)

    def fail(self, error: BaseException) -> None:
        raise error


def owned_at(
    host: Host, offset: int, emitted_to: int, parking: Parking | None = None, careful: bool = False
) -> tuple[Owned, Machine]:
    machine = cast(Machine, SimpleNamespace(next_offset=offset))
    runner = cast(PartitionRunner, SimpleNamespace(machine=machine, dirty=False, checkpointed_offset=-1))
    made = Owned(
        (EVENTS, 0),
        runner,
        host,
        parking or Parking("memory://none", "builder-one-pass", 1),
        interval_seconds=1.0,
        live_at=0,
        live=True,
        emitted_to=emitted_to,
        careful=careful,
    )
    return made, machine


def test_a_partition_catches_up_record_by_record_and_stays_caught_up() -> None:
    owned, machine = owned_at(Host(), 5, 12)
    assert owned.catching_up == 7
    for offset, left in ((5, 7), (11, 1), (12, 0), (13, 0)):
        machine.next_offset = offset
        owned.note_position()
        assert owned.catching_up == left
    assert owned_at(Host(), 12, 12)[0].catching_up == owned_at(Host(), 20, 12)[0].catching_up == 0


@pytest.mark.parametrize("careful", [False, True])
def test_a_partition_that_is_given_back_waits_for_one_message_of_its_batch(
    tmp_path: Path, careful: bool
) -> None:
    owned, machine = owned_at(Host(), 0, 0, Parking(str(tmp_path), "builder-one-pass", 1), careful)

    def work(messages: Iterable[Message]) -> None:
        for message in messages:
            machine.next_offset = message.offset + 1
            # What a worker does that stops, or whose partition is taken away.
            owned.closing |= message.offset == 2
            owned.drain()

    cast(Any, owned.runner).work = work
    cast(Any, owned.runner).dirty = False
    cast(Any, owned.runner).checkpointed_offset = -1

    async def serve() -> None:
        await owned.put([Message(EVENTS, 0, offset, 0, None, None, (), offset - 1) for offset in range(6)])
        await owned.serve()

    asyncio.run(serve())
    assert machine.next_offset == 3
    assert not owned.waiting


@pytest.mark.parametrize("careful", [False, True])
def test_a_record_waits_for_another_system_and_ends_nothing(
    tmp_path: Path, careful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_task, "ATTEMPT_SECONDS", (0.0,))
    parking = Parking(str(tmp_path), "source-shop", 1)
    owned, machine = owned_at(Host(), 0, 0, parking, careful)
    applied: list[int] = []
    refusals = iter(range(5))

    def work(messages: Iterable[Message]) -> None:
        for message in messages:
            if message.offset == 2 and next(refusals, None) is not None:
                raise OutsideUnavailable("the registry does not answer")
            applied.append(message.offset)
            machine.next_offset = message.offset + 1
            owned.closing |= message.offset == 5

    cast(Any, owned.runner).work = work
    cast(Any, owned.runner).dirty = False
    cast(Any, owned.runner).checkpointed_offset = -1

    async def serve() -> None:
        await owned.put([Message(EVENTS, 0, offset, 0, None, None, (), offset - 1) for offset in range(4)])
        await owned.put([Message(EVENTS, 0, offset, 0, None, None, (), offset - 1) for offset in (4, 5)])
        await asyncio.wait_for(owned.serve(), 30)

    asyncio.run(serve())
    assert applied == [0, 1, 2, 3, 4, 5] and owned.attempts == 0
    assert parking.parked_offset(EVENTS, 0) is None


@pytest.mark.parametrize(("error", "parked"), [(MemoryError(), False), (ValueError("a bug"), True)])
def test_a_record_that_takes_all_memory_is_skipped_where_another_fault_parks(
    tmp_path: Path, error: Exception, parked: bool
) -> None:
    parking = Parking(str(tmp_path), "builder-one-pass", 1)
    for _ in range(3):
        owned, _ = owned_at(Host(), 2, 0, parking)

        def work(messages: Iterable[Message]) -> None:
            raise error

        cast(Any, owned.runner).work = work
        cast(Any, owned.runner).in_flight = 2

        async def serve(owned: Owned = owned) -> None:
            await owned.put([Message(EVENTS, 0, 2, 0, None, None, (), 1)])
            await owned.serve()

        assert parking.parked_offset(EVENTS, 0) is None
        with pytest.raises(type(error)):
            asyncio.run(serve())
    assert parking.parked_offset(EVENTS, 0) == (2 if parked else None)
    assert parking.skipped(EVENTS, 0) == (frozenset() if parked else {2})


def test_markers_of_transactions_at_the_end_are_passed_without_being_applied() -> None:
    host = Host()
    owned, machine = owned_at(host, 5, 12)
    machine.next_offset = 10
    host.at = 12
    owned.note_position()
    assert owned.catching_up == 0
    # More has come, and the client has got it.
    host.at = 0
    owned.note_position()
    assert owned.catching_up == 0


def test_a_run_that_has_not_caught_up_ends_without_a_final_mark(system: GrowingSystem) -> None:
    generation = started(system).generation
    covered = generation.covered_offset(0)
    owned, machine = owned_at(Host(), covered, covered + 3)
    cast(Any, owned.runner).manifest = SimpleNamespace(offset=covered)
    owned.begin_run(generation)
    owned.end_run(generation)
    assert generation.final_offset(0) is None
    machine.next_offset = covered + 3
    owned.note_position()
    owned.end_run(generation)
    assert generation.final_offset(0) == covered
    # Another run has begun meanwhile, here or elsewhere.
    generation.mark_started(0)
    owned.end_run(generation)
    assert generation.final_offset(0) is None
