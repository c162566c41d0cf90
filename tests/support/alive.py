"""Whether a process that is not ours to wait for still works."""

from __future__ import annotations

import psutil


def alive(process: psutil.Process) -> bool:
    """Whether it runs. One that has ended and was not waited for yet does not; nor does another of the same number."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
