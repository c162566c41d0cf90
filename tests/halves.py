"""Runs the suite as two halves at once: tests that mostly wait for processes and brokers, and tests that compute.

With arguments it is pytest with these arguments, in one process: `python -m tests.halves tests/learners -x`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

#: Folders of tests that wait, and as much of the others as evens the halves out.
WAITING: Final = (
    "tests/cli",
    "tests/crash",
    "tests/faults",
    "tests/kafka",
    "tests/replay",
    "tests/streams",
)


def commands() -> dict[str, list[str]]:
    """The halves; every folder that is not named above belongs to the second."""
    pytest = [sys.executable, "-m", "pytest", "-q"]
    return {
        "processes and brokers": [*pytest, *WAITING],
        "computation": [*pytest, *(f"--ignore={folder}" for folder in WAITING), "tests"],
    }


def main(arguments: list[str]) -> int:
    """Run; returns the first exit status that is not 0."""
    if arguments:
        return subprocess.call([sys.executable, "-m", "pytest", *arguments])
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kinstream-tests-") as folder:
        running: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        for number, (name, command) in enumerate(commands().items()):
            path = Path(folder) / str(number)
            with path.open("wb") as output:
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            running.append((name, process, path))
        try:
            statuses = [_told(*half, began) for half in running]
        finally:
            for _, process, _ in running:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
    return next((status for status in statuses if status), 0)


def _told(name: str, process: subprocess.Popen[bytes], path: Path, began: float) -> int:
    """Wait for a half, passing on what it writes."""
    print(f"== tests: {name}", flush=True)
    with path.open("rb") as output:
        ended = False
        while not ended:
            try:
                process.wait(1.0)
                ended = True
            except subprocess.TimeoutExpired:
                pass
            sys.stdout.buffer.write(output.read())
            sys.stdout.buffer.flush()
    print(f"== tests: {name}: status {process.returncode} after {time.monotonic() - began:.0f} s", flush=True)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
