from __future__ import annotations

from pathlib import Path

import pytest

from tests.search.learned_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A builder and two learners over an in-process log."""
    return World(tmp_path)
