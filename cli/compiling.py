"""Compiles kernels in several processes: one process compiles one kernel at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Final

#: A learner, a builder or "index", and a number type if it has one.
Part = tuple[str, str | None]
_POLL_SECONDS: Final = 0.05


def compile_together(
    parts: Iterable[Part], jobs: int | None = None, stopping: threading.Event | None = None
) -> bool:
    """Compile each part in its own process, `jobs` at a time; parts that cannot be compiled are left out.

    Parameters
    ----------
    parts : as `kinstream warm-up` takes them.
    jobs : processes at a time, by default one for each processor.
    stopping : ends the processes.

    Returns
    -------
    bool
        False if it was stopped early.
    """
    waiting = list(dict.fromkeys(parts))
    running: list[subprocess.Popen[bytes]] = []
    stopping = stopping or threading.Event()
    try:
        while waiting or running:
            running = [process for process in running if process.poll() is None]
            while waiting and len(running) < (jobs or os.cpu_count() or 1):
                running.append(_start(*waiting.pop(0)))
            if stopping.wait(_POLL_SECONDS):
                return False
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    return True


def _start(kind: str, dtype: str | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kinstream.cli.main", "warm-up", "--jobs", "1", kind]
    command += [] if dtype is None else ["--dtype", dtype]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
