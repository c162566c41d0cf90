"""What killed writers leave in a store: who may delete it, and when there is room again."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest

from kinstream.cli.system.store_checks import checkpoint_store
from kinstream.evaluation.runner.store import Store
from kinstream.processors.agent import builder_spec
from kinstream.producers.loads.progress import ProgressFolder
from kinstream.search.models.model_copies import KeptModels
from kinstream.streams.checkpoints.files import Damaged, digest_of
from kinstream.streams.checkpoints.folder import CheckpointFolder
from kinstream.streams.checkpoints.local_files import LocalFiles
from kinstream.streams.checkpoints.manifest import DataFile
from kinstream.streams.checkpoints.names import open_files
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.errors import CheckpointError
from kinstream.streams.settings import Settings
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, settings

#: Writes one file of a checkpoint, and stays in the middle of the next.
_WRITER: Final = """
import sys
from kinstream.streams.checkpoints.names import open_files
def items():
    yield "spaces/a", bytes(int(sys.argv[2]))
    print("begun", flush=True)
    sys.stdin.read()
    yield "spaces/b", b"b"
open_files(sys.argv[1], *sys.argv[3:]).write(items())
"""


@contextmanager
def writer(
    root: Path, size: int = 1_000, folder: tuple[str, ...] = ("learner", "1")
) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a write."""
    command = [sys.executable, "-c", _WRITER, str(root), str(size), *folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


def unfinished(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".tmp-*")]


def swept(root: Path) -> list[str]:
    open_files(str(root), "learner", "1").sweep("spaces")
    return unfinished(root)


def test_what_a_writer_is_at_stays_until_it_is_killed(tmp_path: Path) -> None:
    with writer(tmp_path) as zombie:
        assert len(swept(tmp_path)) == 1
        os.kill(zombie.pid, signal.SIGSTOP)  # stopped, as a frozen worker is
        assert len(swept(tmp_path)) == 1
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.stdin is not None
        zombie.stdin.close()
        assert zombie.wait(60) == 0
    assert (tmp_path / "learner" / "1" / "spaces" / "a").stat().st_size == 1_000
    with writer(tmp_path) as killed:
        killed.kill()
        killed.wait(60)
        assert len(unfinished(tmp_path)) == 1
        assert swept(tmp_path) == []


def test_a_folder_is_made_where_its_name_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = LocalFiles(os.path.join("new", "loads"))
    files.write([("one", b"1")])
    monkeypatch.chdir("/")
    files.write([("two", b"2")])
    assert sorted(file.name for file in (tmp_path / "new" / "loads").iterdir()) == ["one", "two"]


def test_a_partition_that_is_taken_over_has_nothing_of_killed_writers(tmp_path: Path) -> None:
    def agent() -> Agent:
        return Agent(builder_spec(settings(), "one-pass"), settings(), MemoryLog(), tmp_path)

    agent().run()
    folders = [path for path in tmp_path.rglob("*-0") if path.is_dir()]
    for folder in folders:
        (folder / ".tmp-7-abc").write_bytes(b"half")
    assert unfinished(tmp_path)
    agent()
    assert unfinished(tmp_path) == []


@pytest.mark.parametrize(
    ("folder", "begin"),
    [
        (".", lambda root: ProgressFolder(root, {}).begin("load", {})),
        ("cells", lambda root: Store(root)),
        (".", lambda root: Store(root)),
        (
            "gate-models/s/l",
            lambda root: KeptModels(Settings(checkpoints={"url": str(root)}), "s", "l").prune([]),  # type: ignore[arg-type]
        ),
    ],
    ids=["load", "cells of an experiment", "report", "models of a gate"],
)
def test_other_writers_sweep_their_folders_too(
    tmp_path: Path, folder: str, begin: Callable[[Path], object]
) -> None:
    fill(tmp_path, folder, 5)
    begin(tmp_path)
    assert unfinished(tmp_path) == []


def fill(root: Path, folder: str, size: int) -> Path:
    """Leave a temporary file of a writer that is dead."""
    path = root / folder / ".tmp-7-abc"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


@pytest.mark.parametrize("write", [LocalFiles.write, LocalFiles.create])
def test_a_store_that_killed_writers_have_filled_makes_room(
    small_disk: Path, write: Callable[..., object]
) -> None:
    """Where no small file system may be mounted, there is room in any case."""
    fill(small_disk, "learner/1/constraints-3/spaces", 90_000)
    fill(small_disk, "learner/2/constraints-0", 90_000)
    files = open_files(str(small_disk), "builder", "1", "events-0")
    data = bytes(98_000)
    assert isinstance(files, LocalFiles)
    if write is LocalFiles.create:
        assert files.create("spaces/new", data)
    else:
        files.write([("spaces/first", data), ("spaces/new", data)])
    assert files.read("spaces/new") == data


def test_a_living_writer_keeps_its_room(small_disk: Path) -> None:
    with writer(small_disk, 90_000):
        files = open_files(str(small_disk), "builder", "1")
        with pytest.raises(CheckpointError, match=r"No space left|File too large"):
            files.write([("a", bytes(200_000))])
        assert len(unfinished(small_disk)) == 1


@pytest.mark.parametrize(
    ("write", "call"),
    [
        (LocalFiles.write, "fsync"),
        (LocalFiles.write, "replace"),
        (LocalFiles.create, "fsync"),
        (LocalFiles.create, "link"),
    ],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_volume_that_is_full_only_when_a_file_is_complete_has_room_the_next_time(
    write: Callable[..., object], call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As volumes of networks are."""
    fill(tmp_path, "learner/2/constraints-0/spaces", 10)
    files = open_files(str(tmp_path), "builder", "1")
    arguments = ([("a", b"state")],) if write is LocalFiles.write else ("a", b"state")
    files.write([("before", b"")])

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(CheckpointError, match=os.strerror(number)):
            write(files, *arguments)
    assert unfinished(tmp_path) == []
    write(files, *arguments)
    assert files.read("a") == b"state"


@pytest.mark.parametrize("locks", [True, False])
def test_a_clock_that_is_ahead_takes_no_file_of_a_living_writer(
    locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a partition deletes old files after each checkpoint."""
    if not locks:

        def flock(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", flock)

    def ahead() -> float:
        return 1e11

    store = CheckpointStore(str(tmp_path), "learner", 1, "t", 0, clock=ahead)
    monkeypatch.setattr("time.time", ahead)
    with writer(tmp_path, folder=("learner", "1", "t-0")) as zombie:
        store.save(1, changed={"s": {"a": 1}}, unchanged={}, partition={}, last_record=None)
        store.prune()
        assert len(unfinished(tmp_path)) == 1
        assert zombie.stdin is not None
        zombie.stdin.close()
        assert zombie.wait(60) == 0


def test_check_says_what_fills_a_store(tmp_path: Path) -> None:
    fill(tmp_path, "learner-opml/1/constraints-0/spaces", 3 * 2**20)
    (tmp_path / "builder-one-pass").mkdir()
    (tmp_path / "builder-one-pass" / "newest").write_bytes(bytes(2**20))
    found = checkpoint_store(Settings(checkpoints={"url": str(tmp_path)}))  # type: ignore[arg-type]
    assert found.good
    assert "3.0 MiB in learner-opml/1\n1.0 MiB in builder-one-pass\n" in found.text
    assert "3.0 MiB of all are 1 temporary files" in found.text


# ---- files that are longer than they should be -----------------------------------------------------------------------


class Endless(io.RawIOBase):
    """A stream that counts what is read of it."""

    count = 0

    def read(self, size: int = -1) -> bytes:
        assert size > 0
        self.count += size
        return bytes(size)


@pytest.mark.parametrize("size", [0, 5, 3 * 2**20])
def test_of_a_file_no_more_is_read_than_its_recorded_size_and_a_byte(size: int) -> None:
    stream = Endless()
    assert digest_of(cast(Any, stream), size)[1] == stream.count == size + 1


@pytest.mark.parametrize("root", ["local", "memory"])
def test_a_data_file_that_is_longer_than_its_manifest_says_is_not_hashed(tmp_path: Path, root: str) -> None:
    files = open_files(str(tmp_path) if root == "local" else "memory://longer")
    files.write([("a.safetensors", b"four")])
    if root == "local":
        os.truncate(tmp_path / "a.safetensors", 2**40)  # sparse: reading all of it takes minutes
    else:
        files.write([("a.safetensors", b"longer")])
    folder = CheckpointFolder(files, ("learner", 1, "constraints", 0))
    file = DataFile("a.safetensors", "0" * 64, 4)
    for read in (folder.content, lambda one: folder._check([one])):
        with pytest.raises(Damaged, match=r"has .*bytes"):
            read(file)
