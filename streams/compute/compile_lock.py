"""One process compiles a kernel, and the others that need it wait for its machine code."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger("kinstream.kernels")
#: Longest wait for one kernel. The slowest takes some ten seconds of a processor.
DEADLINE_SECONDS: Final = 120.0
#: Seconds of waiting until it is logged, and between two such lines.
QUIET_SECONDS: Final = 1.0
REPEAT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_HELD: Final = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class CompileLock:
    """A lock on one kernel, of all processes that share a folder of machine code.

    The kernel of the operating system releases it with the process that holds it. A folder that cannot be locked, for
    example one that is read-only, has no lock: each process compiles for itself.

    Parameters
    ----------
    path : the lock's file, in the folder of the machine code. It exists only while the lock is held.
    deadline_seconds : after this wait the process compiles by itself.
    """

    def __init__(self, path: Path, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.path = path
        self.deadline_seconds = deadline_seconds
        self._file: int | None = None

    def acquire(self) -> bool:
        """Wait for the lock. False if the process goes on without it: at the deadline, or where there are no locks."""
        if self._file is not None:
            return True
        began = time.monotonic()
        file = self._opened()
        while file is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                waited = time.monotonic() - began
                if error.errno in _HELD and waited < self.deadline_seconds:
                    self._tell(waited, file)
                    time.sleep(_POLL_SECONDS)
                    continue
                if error.errno in _HELD:
                    _LOG.warning("%s for %.0f s: this process compiles it too", self._holder(file), waited)
                os.close(file)
                return False
            if self._is_current(file):
                with suppress(OSError):
                    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
                self._file = file
                return True
            # The holder before has removed the file that this process waited for.
            os.close(file)
            file = self._opened()
        return False

    def release(self) -> None:
        """Let the next process have it. Does nothing if it is not held."""
        if self._file is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._file)
            self._file = None

    def _opened(self) -> int | None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return None

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except OSError:
            return False

    def _tell(self, waited: float, file: int) -> None:
        global _told
        now = time.monotonic()
        if waited >= QUIET_SECONDS and now - _told >= REPEAT_SECONDS:
            _told = now
            _LOG.info("%s, and this process waits: each kernel is compiled once", self._holder(file))

    def _holder(self, file: int) -> str:
        # Without the line and the version of Python, which numba adds.
        kernel = self.path.stem.rpartition("-")[0] or self.path.stem
        with suppress(OSError):
            number = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            if number:
                return f"process {number} compiles {kernel}"
        return f"another process compiles {kernel}"


#: When a wait was logged last in this process, by the monotonic clock.
_told: float = -REPEAT_SECONDS
