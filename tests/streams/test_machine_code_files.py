"""A folder of machine code that is full or damaged costs time: kernels are compiled, and no call fails."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numba
import pytest

from kinstream.streams.compute import compilation

KERNEL = """
from kinstream.streams.compute.compilation import compiled

@compiled
def twice(x):
    return 2 * x
"""
_NUMBERS = count()


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    compilation._tell_not_kept.cache_clear()


def kernel(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel as a process that starts now has it."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    if not source.exists():
        source.write_text(KERNEL)
    found = importlib.util.spec_from_file_location("machine_code_files", source)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    # Each process has names of its own for what it writes.
    monkeypatch.setattr(compilation, "_PROCESS", f"process{next(_NUMBERS)}")
    found.loader.exec_module(module)
    return module.twice


@pytest.mark.parametrize("left", [0, 4_096], ids=["nothing", "a page"])
def test_a_full_folder_of_machine_code_is_told_and_kernels_run(
    left: int,
    small_disk: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where no small file system may be mounted, there is room in any case."""
    filler, room = small_disk / "filler", shutil.disk_usage(small_disk).free
    if os.path.ismount(small_disk):
        filler.write_bytes(bytes(room - left))
    source = tmp_path_factory.mktemp("source") / "one.py"
    for _ in range(2):
        assert kernel(source, small_disk / "cache", monkeypatch)(21) == 42
    assert ("machine code cannot be kept" in caplog.text) == os.path.ismount(small_disk)
    assert not list(small_disk.rglob("*.tmp.*"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 4)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [empty, cut, overwritten, a_folder])
def test_damaged_machine_code_is_compiled_again(
    damage: Callable[[Path], None],
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = tmp_path / "one.py"

    def call() -> int:
        found = kernel(source, tmp_path / "cache", monkeypatch)
        assert found(21) == 42
        return sum(found.stats.cache_hits.values())

    assert (call(), call()) == (0, 1)
    (file,) = (tmp_path / "cache").rglob(f"*.{ending}")
    damage(file)
    caplog.clear()
    assert call() == 0
    if damage is a_folder:
        assert "machine code cannot be kept" in caplog.text
    else:
        assert call() == 1
    assert not list(tmp_path.rglob("*.lock"))
