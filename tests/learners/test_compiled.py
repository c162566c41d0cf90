"""What was compiled once is used until a file behind it changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kinstream.learners.kernels import blocked
from kinstream.streams.compute.compiled import sources

SHARED = """
from kinstream.streams.compute.compiled import compiled

@compiled
def piece(x):
    return x + {number}
"""
USER = """
from kinstream.streams.compute.compiled import compiled
from kinstream.learners.kernels.shared_piece import piece

@compiled
def twice(x):
    return 2 * piece(x)
"""
SCRIPT = """
import sys
from kinstream.learners import kernels
kernels.__path__.insert(0, sys.argv[1])
from kinstream.learners.kernels.user_of_piece import twice
print(twice(1), sum(twice.stats.cache_hits.values()))
"""


def test_a_change_of_a_shared_piece_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "user_of_piece.py").write_text(USER)

    def run() -> list[str]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
        root = Path(__file__).parents[2]
        return subprocess.run(
            command, env=environment, cwd=root, capture_output=True, text=True, timeout=120, check=True
        ).stdout.split()

    machine_code: list[set[str]] = []
    for number, answer in ((10, "22"), (2000, "4002")):
        (tmp_path / "shared_piece.py").write_text(SHARED.format(number=number))
        assert run() == [answer, "0"]
        assert run() == [answer, "1"]
        machine_code.append({path.name for path in (tmp_path / "cache").rglob("*.nbc")})
    # No file is written twice: another process may be about to read it.
    before, after = machine_code
    assert before < after and len(after) == 2 * len(before)


def test_files_that_are_imported_belong_to_the_stamp() -> None:
    assert {path.name for path in sources(Path(blocked.__file__))} == {
        "blocked.py",
        "compiled.py",
        "equal_vectors.py",
        "events.py",
        "opml.py",
        "shared.py",
        "spans.py",
        "threads.py",
    }
