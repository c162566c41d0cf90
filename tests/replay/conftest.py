"""The system that the tests of replay run beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.replay.system import System

MakeSystem = Callable[..., System]


@pytest.fixture
def make_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSystem:
    """Makes a system whose topics replay reads."""

    def make(**changes: Any) -> System:
        system = System(tmp_path / "checkpoints", **changes)
        monkeypatch.setattr("kinstream.replay.log.sources.read_range", system.read_range)
        monkeypatch.setattr("kinstream.streams.agents.generations.generation.read_range", system.read_range)
        monkeypatch.setattr("kinstream.streams.agents.generations.ending.read_range", system.read_range)
        return system

    return make


@pytest.fixture
def system(make_system: MakeSystem) -> System:
    """One that has learned from three spaces on two partitions, with a checkpoint at the end of every topic."""
    running = make_system()
    running.load()
    running.run()
    return running
