"""A worker or service that this process supervises itself."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from kinstream.streams.processes.supervisor import Supervisor


class Supervised(threading.Thread):
    """Supervises a command in a thread, and is to its owner what a `subprocess.Popen` of a supervisor would be.

    Parameters
    ----------
    name, command, popen : as `Supervisor` takes them.
    """

    def __init__(self, name: str, command: Sequence[str], **popen: Any) -> None:
        super().__init__(name=f"supervisor-{name}", daemon=True)
        self.pid = os.getpid()
        self.returncode: int | None = None
        self._supervisor = Supervisor(command, name=name, **popen)
        self.start()

    def run(self) -> None:
        status = 1
        try:
            status = self._supervisor.supervise()
        finally:
            self.returncode = status

    def poll(self) -> int | None:
        """The exit status; None while it goes on."""
        return self.returncode

    def terminate(self) -> None:
        """Ask the child to end."""
        self._supervisor.stop()

    def kill(self) -> None:
        """End the child and its session at once."""
        self._supervisor.stop()
        self._supervisor.kill()

    def wait(self, timeout: float | None = None) -> int:
        """The exit status at the end. Raises `subprocess.TimeoutExpired`."""
        self.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.name, timeout or 0.0)
        return self.returncode
