"""The small system that the tests of repartitions begin with, and a small disk."""

from __future__ import annotations

import copy
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.streams.growing_system import SMALL, GrowingSystem, in_memory, small


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> GrowingSystem:
    """Made once: what is durable takes its time."""
    with in_memory():
        return small(tmp_path_factory.mktemp("made") / "checkpoints")


@pytest.fixture
def system(made: GrowingSystem, tmp_path: Path) -> Iterator[GrowingSystem]:
    """A copy of it for one test."""
    with in_memory():
        shutil.copytree(made.root, tmp_path / "checkpoints")
        yield GrowingSystem(tmp_path / "checkpoints", 2, log=copy.deepcopy(made.log), **SMALL)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; where none may be mounted, a process that may write no larger file."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        yield tmp_path
        subprocess.run(["umount", str(tmp_path)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 * 1024, before[1]))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)
