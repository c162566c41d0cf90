"""The processes that a test session has started, however deep, and their end with it.

Children inherit a mark in their environment. A sweeper process waits until the session ends, however it ends,
and kills what still carries the mark: pytest-timeout ends the session without running any fixture's end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Final
from uuid import uuid4

import psutil

MARK: Final = "KINSTREAM_TEST_SESSION"
GRACE_SECONDS: Final = 5.0


class Session:
    """Marks this process's children from now on."""

    def __init__(self) -> None:
        self._id = os.environ[MARK] = uuid4().hex
        self._sweeper = subprocess.Popen(
            [sys.executable, __file__, self._id], stdin=subprocess.PIPE, start_new_session=True
        )

    def left(self) -> list[str]:
        """Command lines of the processes that are still there after a moment's grace."""
        found = {*marked(self._id), *psutil.Process().children(recursive=True)}
        others = [
            one for one in found if one.pid not in (os.getpid(), self._sweeper.pid) and command_line(one)
        ]
        _, alive = psutil.wait_procs(others, GRACE_SECONDS)
        return [line for one in alive if (line := command_line(one))]

    def end(self) -> None:
        """Let the sweeper kill what is left, and wait for it."""
        self._sweeper.communicate()


def marked(session: str) -> list[psutil.Process]:
    """The processes that carry the session's mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == session:
                found.append(process)
    return found


def command_line(process: psutil.Process) -> str:
    """What a living process runs; empty for a dead one."""
    with contextlib.suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    return ""


def main() -> None:
    sys.stdin.read()
    for process in marked(sys.argv[1]):
        if process.pid != os.getpid():
            with contextlib.suppress(psutil.Error):
                process.kill()


if __name__ == "__main__":
    main()
