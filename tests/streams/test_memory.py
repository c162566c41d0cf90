"""Memory is asked for before it is used: a library that gets none panics, aborts or hangs."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest

from kinstream.streams.agents import partition
from kinstream.streams.checkpoints import state_bytes, store
from kinstream.streams.compute import memory
from kinstream.streams.errors import CheckpointError, MemoryShort
from kinstream.streams.records.message import Message
from tests.streams.growing import EVENTS, GrowingSystem, load
from tests.streams.test_ending import Host, emit, owned_at, started

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
    before = memory.memory_left()
    held = np.ones(8 * 2**20)
    assert before - memory.memory_left() > held.nbytes // 2
    monkeypatch.setattr(memory, "_limits", lambda: iter([memory._Limit(10, memory._RESIDENT)]))
    assert memory.memory_left() == 0


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
