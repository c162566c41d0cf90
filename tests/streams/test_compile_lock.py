"""Processes that need the same kernels at once compile each of them once."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from kinstream.streams.compute import compile_lock
from kinstream.streams.compute.compile_lock import CompileLock
from tests.streams.test_compilation import SHARED, USER

ROOT = Path(__file__).parents[2]
#: Waits until all processes are there, then calls a kernel that uses another one.
TOGETHER = """
import sys, time
from pathlib import Path
import numba
from kinstream.learners import kernels
folder = Path(sys.argv[1])
kernels.__path__.insert(0, str(folder))
from kinstream.learners.kernels.shared_piece import piece
from kinstream.learners.kernels.user_of_piece import twice
(folder / f"here.{sys.argv[2]}").touch()
deadline = time.monotonic() + 60
while len(list(folder.glob("here.*"))) < int(sys.argv[3]) and time.monotonic() < deadline:
    time.sleep(0.01)
print(twice(1), piece(1))
"""
#: Holds a lock until it is killed.
HOLDER = """
import sys, threading
from pathlib import Path
from kinstream.streams.compute.compile_lock import CompileLock
print(CompileLock(Path(sys.argv[1])).acquire(), flush=True)
threading.Event().wait()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "opml.triplets-45.py311.lock"


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_lock, "_told", -compile_lock.REPEAT_SECONDS)


@pytest.mark.long
def test_processes_that_start_together_compile_each_kernel_once(tmp_path: Path) -> None:
    (tmp_path / "user_of_piece.py").write_text(USER)
    (tmp_path / "shared_piece.py").write_text(SHARED.format(number=10))
    cache = tmp_path / "cache"
    count = 4
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(tmp_path), str(number), str(count)],
            env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "NUMBA_DEBUG_CACHE": "1"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    told = [process.communicate(timeout=120)[0] for process in running]
    assert [text.splitlines()[-1] for text in told] == ["22 11"] * count
    assert sum(text.count("data saved to") for text in told) == len(list(cache.rglob("*.nbc"))) == 2
    assert not list(cache.rglob("*.lock"))


def test_who_waits_says_for_which_process_and_goes_on_when_it_is_killed(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_lock, "QUIET_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "kinstream.kernels")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "True\n"
        lock, taken = CompileLock(path), threading.Event()

        def wait() -> None:
            if lock.acquire():
                taken.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        try:
            assert not taken.wait(0.3)
        finally:
            holder.kill()
            holder.wait()
        waiter.join(30)
    assert taken.is_set()
    (line,) = caplog.messages
    assert line == (
        f"process {holder.pid} compiles opml.triplets, and this process waits: each kernel is compiled once"
    )
    lock.release()
    assert not path.exists()


def test_a_holder_that_does_not_end_is_waited_for_until_the_deadline(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = CompileLock(path)
    assert holder.acquire() and holder.acquire()
    assert not CompileLock(path, deadline_seconds=0.1).acquire()
    assert f"process {os.getpid()} compiles opml.triplets for" in caplog.text
    holder.release()
    assert CompileLock(path, deadline_seconds=0.1).acquire()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_where_files_cannot_be_locked_nobody_waits(
    number: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = CompileLock(path)
    assert not lock.acquire()
    lock.release()


def test_where_no_file_can_be_written_nobody_waits() -> None:
    lock = CompileLock(Path("/proc/self/no/folder/kernel.lock"))
    assert not lock.acquire()
    lock.release()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_first_start_of_five_compiles_each_kernel_once(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "kinstream.cli.main",
        "warm-up",
        "--jobs",
        "1",
        "--dtype",
        "float64",
        "opml",
    ]
    told, cache = [tmp_path / f"{number}.txt" for number in range(5)], tmp_path / "cache"
    more = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_DEBUG_CACHE": "1", "OPENBLAS_NUM_THREADS": "1"}
    with ExitStack() as stack:
        running = [
            subprocess.Popen(
                command, env=os.environ | more, cwd=ROOT, stdout=stack.enter_context(path.open("wb"))
            )
            for path in told
        ]
        assert [process.wait(600) for process in running] == [0] * len(running)
    compiled = len(list(cache.rglob("*.nbc")))
    assert compiled > 10
    assert sum(path.read_text().count("data saved to") for path in told) == compiled
    assert not list(cache.rglob("*.lock"))
