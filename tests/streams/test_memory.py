"""Memory is asked for before it is used: a library that gets none panics, aborts or hangs."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kinstream.streams.agents import partition
from kinstream.streams.agents.space import Space
from kinstream.streams.checkpoints import state_bytes, store
from kinstream.streams.checkpoints.files import MAX_STATE_BYTES
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.compute import memory
from kinstream.streams.errors import CheckpointError, MemoryShort
from kinstream.streams.records.message import Message
from tests.streams.growing_system import EVENTS, SMALL, GrowingSystem, Worker, comparable, in_memory, load
from tests.streams.test_ending import Host, emit, owned_at, spec_of, started
from tests.support.pipeline import samples

MB = 2**20
#: Encodes and decodes a state with room for `argv[2]` more bytes of addresses.
_LIMITED = """
import resource, sys
import numpy as np
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
state = {"x": np.zeros(50_000_000, np.float32)}
data = to_bytes(state) if sys.argv[1] == "decode" else b""
pages = int(open("/proc/self/statm").read().split()[0])
limit = 4096 * pages + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    from_bytes(data) if data else to_bytes(state)
except MemoryError as error:
    print(error)
"""


@pytest.mark.parametrize(("what", "room"), [("encode", 1e8), ("encode", 3e8), ("decode", 1e8)])
def test_a_state_without_memory_for_its_bytes_is_told_as_that(what: str, room: float) -> None:
    run = [sys.executable, "-c", _LIMITED, what, str(int(room))]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    wanted = "381 MiB" if what == "encode" else "191 MiB"
    assert ended.stdout.startswith(f"{wanted} of memory are wanted, and this process may take ")


def test_small_states_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_left", lambda: 0)
    assert state_bytes.from_bytes(state_bytes.to_bytes({"x": np.zeros(8)}))["x"].shape == (8,)  # type: ignore[union-attr]
    with pytest.raises(MemoryError):
        state_bytes.to_bytes({"x": np.zeros(memory.LARGE)})


def test_the_least_of_the_limits_counts_less_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of this process alone: the others of the machine take and leave memory meanwhile.
    before = memory._own(memory._RESIDENT)
    held = np.ones(8 * 2**20)
    assert memory._own(memory._RESIDENT) - before > held.nbytes // 2
    limits = [memory._Limit(30, lambda: 10), memory._Limit(25, lambda: 1)]
    monkeypatch.setattr(memory, "_limits", lambda: iter(limits))
    assert memory.memory_left() == 20
    monkeypatch.setattr(memory, "_limits", lambda: iter([memory._Limit(10, lambda: 11)]))
    assert memory.memory_left() == 0


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], int]]]:
    """A process that may take 160 MiB. What it has taken is what the function in the list returns."""
    held: list[Callable[[], int]] = [lambda: 0]
    monkeypatch.setattr(memory, "_limits", lambda: iter([memory._Limit(160 * MB, lambda: held[0]())]))
    monkeypatch.setattr(memory, "_LONGEST_SECONDS", 0.0)
    monkeypatch.setattr(partition, "LARGE", 0)
    memory.memory_limit.cache_clear()
    yield held
    memory.memory_limit.cache_clear()


def test_memory_is_looked_at_before_it_can_be_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    gib, now, looks = 2**30, 0.0, []
    taken = 0

    def left() -> int:
        looks.append(now)
        return 16 * gib - taken

    monkeypatch.setattr(memory, "memory_left", left)
    monkeypatch.setattr(memory, "memory_limit", lambda: 16 * gib)
    pressure = memory.Pressure(lambda: now)
    found = []
    # Eight GiB a second from 6 GiB on: scarce above 10 GiB, which is reached after half a second.
    for step in range(1_000):
        now = step / 1_000
        taken = 6 * gib + int(8 * gib * now)
        if pressure.felt():
            found.append(now)
    assert 0.5 < found[0] < 0.52 and np.diff(found).max() < 0.012
    # While much is left there are few looks.
    assert len([at for at in looks if at < 0.45]) < 10
    looks.clear()
    taken = 0
    for step in range(5_000):
        now = 1.0 + step / 1_000
        assert not pressure.felt()
    assert len(looks) <= 6


@pytest.mark.long
@pytest.mark.parametrize("application", ["builder-one-pass", "learner-opml"])
def test_what_many_spaces_take_is_given_back_before_there_is_none(
    application: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with in_memory():
        first = GrowingSystem(tmp_path / "first", 1, **SMALL)
        names = [f"space {number}" for number in range(13)]
        for turn in ("one", "two"):
            for name in names:
                first.send(name, *samples(name, 1, load=turn, seed=len(turn)))
        first.drain()
        undisturbed = started(first, application).spaces()
        assert len(undisturbed) == len(names)
        held = request.getfixturevalue("taken")
        worker = Worker(
            GrowingSystem(tmp_path / "second", 1, log=first.log, **SMALL),
            spec_of(first, application),
            create=True,
        )
        machine = worker.runners[0].machine
        most = 0

        def residents() -> int:
            nonlocal most
            number = len(machine.resident())
            most = max(most, number)
            return 10 * MB * number

        held[0] = residents
        emit(worker)
        # Ten leave three eighths.
        assert most == 11
        assert comparable(worker.spaces()) == comparable(undisturbed)


def test_a_process_that_has_nothing_to_give_back_writes_no_checkpoints_for_it(
    tmp_path: Path, taken: list[Callable[[], int]]
) -> None:
    with in_memory():
        system = GrowingSystem(tmp_path / "checkpoints", 1, **SMALL)
        load(system)
        taken[0] = lambda: 150 * MB
        worker = emit(Worker(system, spec_of(system, "builder-one-pass"), create=True))
        assert worker.runners[0].manifest is None


def test_a_checkpoint_copies_one_space_at_a_time(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(system, "more")
    worker = emit(started(system))
    copied: list[Space] = []
    inner = Space.state

    def state(self: Space) -> Any:
        copied.append(self)
        return inner(self)

    monkeypatch.setattr(Space, "state", state)
    states = worker.runners[0].machine.space_states()
    assert states
    assert not copied
    assert states[next(iter(states))]
    assert len(copied) == 1


def test_spaces_that_files_hold_make_room_for_one_that_is_read(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "LARGE", 0)
    worker = started(system)
    runner = next(one for one in worker.runners.values() if len(one.machine) > 1)
    first, second = list(runner.machine.names())[:2]
    monkeypatch.setattr(partition, "memory_left", lambda: 0 if runner.machine.resident() else 2**30)
    assert runner.machine.find(first) is not None
    assert runner.machine.find(second) is not None
    assert runner.machine.resident() == [second]
    # What no file holds stays, and a restart reads it again.
    runner.machine.open(second)
    with pytest.raises(CheckpointError, match="other spaces have taken it"):
        runner.machine.find(first)
    assert runner.machine.resident() == [second]


def test_a_file_is_read_only_if_there_is_memory_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 3 * memory.LARGE
    (tmp_path / "file").write_bytes(bytes(size))
    monkeypatch.setattr(memory, "memory_left", lambda: size)
    url = f"memory://{tmp_path.name}"
    open_files(url).write([("file", bytes(size))])
    for files in (open_files(str(tmp_path)), open_files(url)):
        assert len(files.read("file", MAX_STATE_BYTES)) == size
    monkeypatch.setattr(memory, "memory_left", lambda: size - 1)
    for files in (open_files(str(tmp_path)), open_files(url)):
        with pytest.raises(MemoryError, match="3 MiB of memory are wanted"):
            files.read("file", MAX_STATE_BYTES)


def test_a_space_that_does_not_fit_is_refused_before_it_is_read(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partition, "LARGE", 0)
    monkeypatch.setattr(store, "LONG_BYTES", 0)
    monkeypatch.setattr(partition, "LONG_BYTES", 0)
    read: list[str] = []
    inner = store.CheckpointStore.load_space

    def reading(self: Any, file: Any) -> Any:
        read.append(file.path)
        return inner(self, file)

    monkeypatch.setattr(store.CheckpointStore, "load_space", reading)
    with monkeypatch.context() as full:
        full.setattr(partition, "memory_left", lambda: 100)
        with pytest.raises(MemoryShort) as refusal:
            started(system)
    assert refusal.value.exit_status == 3
    for part in ("space 'space ", "may take 0 MiB more", "Give the worker more memory", "max_resident_bytes"):
        assert part in str(refusal.value)
    assert not read
    # With memory, what takes long is said before it begins.
    with caplog.at_level(logging.INFO):
        load(system, "more")
        started(system).work()
    assert read
    assert any("checking the checkpoint at offset" in line for line in caplog.messages)
    assert any("reading space 'space " in line for line in caplog.messages)


def test_a_space_that_gets_no_memory_while_it_is_read_is_refused_as_well(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(system, "more")
    worker = started(system)

    def none_left(size: int) -> None:
        raise MemoryError("9 MiB of memory are wanted")

    monkeypatch.setattr(state_bytes, "ask", none_left)
    with pytest.raises(
        MemoryShort, match=r"^space 'space \d+': .* 9 MiB of memory are wanted\. Give the worker more"
    ):
        worker.work()


def test_a_checkpoint_without_memory_names_its_space(
    system: GrowingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(system, "more")
    worker = emit(started(system))

    def none_left(size: int) -> None:
        raise MemoryError("9 MiB of memory are wanted")

    monkeypatch.setattr(state_bytes, "ask", none_left)
    with pytest.raises(CheckpointError, match=r"space 'space \d+': 9 MiB of memory are wanted"):
        for runner in worker.runners.values():
            runner.checkpoint()


class Panic(BaseException):
    """As the panics of libraries in Rust: no Exception."""


@pytest.mark.parametrize("where", ["step", "checkpoint"])
def test_a_panic_of_a_library_ends_the_worker_at_once(where: str) -> None:
    failed: list[BaseException] = []

    class Ending(Host):
        def fail(self, error: BaseException) -> None:
            failed.append(error)

    owned, _ = owned_at(Ending(), 2, 0)
    runner = cast(Any, owned.runner)

    def panic(*arguments: Any) -> None:
        raise Panic("PyObject pointer is null")

    def applied(messages: Any) -> None:
        runner.machine.next_offset += len(list(messages))

    runner.in_flight = None
    runner.work = panic if where == "step" else applied
    runner.checkpoint, runner.dirty, runner.checkpointed_at = panic, True, float("-inf")
    runner.checkpointed_offset = 2

    async def serve() -> None:
        await owned.put([Message(EVENTS, 0, 2, 0, None, None, (), 1)])
        await asyncio.wait_for(owned.serve(), 30)

    asyncio.run(serve())
    assert [str(error) for error in failed] == ["PyObject pointer is null"]
