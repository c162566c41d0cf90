"""Temporary files of a local folder: who still writes them, and what killed writers have left.

A writer holds a shared lock on the folder. The kernel releases it with the process, however that ends, so a folder that
can be locked for one alone has only what nobody continues; a process that is stopped keeps its lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

PREFIX: Final = ".tmp-"
#: Where a file system has no locks, a temporary file has no writer if its folder has changed so long after it.
_ABANDONED_SECONDS: Final = 24 * 3600
#: A writer waits this long for a sweep to end, and then continues without a lock.
_WAIT_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.01


class Writing:
    """The folders in which one write has temporary files. A context manager."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        #: Paths of the temporary files.
        self.files: set[str] = set()

    def begin(self, folder: str) -> None:
        """Lock a folder that exists, until the end."""
        if folder not in self._held:
            self._held[folder] = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            _share(self._held[folder])

    def make_room(self, root: str) -> None:
        """Delete what killed writers have left anywhere below `root`, and keep the files of this write."""
        for folder, _, names in os.walk(root):
            if any(name.startswith(PREFIX) for name in names):
                mine = self._held.pop(folder, None)
                if mine is not None:
                    os.close(mine)
                with suppress(OSError):
                    sweep(folder, keep=self.files)
                if mine is not None:
                    self.begin(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._held.values():
            os.close(number)


def sweep(folder: str, keep: Collection[str] = ()) -> None:
    """Delete the temporary files of a folder that nobody writes any more.

    Parameters
    ----------
    keep : paths that stay.

    Raises
    ------
    OSError : the folder cannot be listed, or a file not deleted.
    """
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before: float | None = None
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                return
            # By the clock of the file system: ours may be ahead of it.
            before = os.fstat(number).st_mtime - _ABANDONED_SECONDS
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.startswith(PREFIX) and path not in keep:
                with suppress(FileNotFoundError):
                    if before is None or os.stat(path).st_mtime < before:
                        os.unlink(path)
    finally:
        os.close(number)


def _share(number: int) -> None:
    limit = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < limit:
        try:
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                return
            time.sleep(_LOOK_SECONDS)
        else:
            return
