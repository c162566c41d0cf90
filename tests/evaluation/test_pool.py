"""How the processes of an evaluation end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_a_process_of_an_evaluation_leaves_without_a_tear_down(tmp_path: Path) -> None:
    """It has a thread of its own, and those of libraries: beside them an interpreter that is torn down may abort."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.evaluation.ending", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    # What it printed is not lost.
    assert ended.stdout.splitlines() == [
        "a cell that fails",
        "ValueError('a cell that fails') and then status 0",
    ]
    assert not (tmp_path / "torn-down").exists()
