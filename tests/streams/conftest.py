"""The small system that the tests of repartitions begin with."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.streams.growing import SMALL, GrowingSystem, in_memory, small


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
