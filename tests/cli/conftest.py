"""The system that the commands are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.system import System, connect


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """A builder and two learners over an in-process log, which the commands take for Kafka."""
    found = System(tmp_path)
    connect(found.log, monkeypatch)
    return found
