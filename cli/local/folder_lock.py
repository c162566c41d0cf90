"""Allows one `kinstream up` per folder: two would overwrite each other's logs, checkpoints and settings."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kinstream.streams.errors import FolderInUse

_NAME: Final = "up.lock"
#: The folder that all commands of one working folder share.
_SHARED: Final = ".kinstream"


class FolderLock:
    """Holds a folder until `release`, or until the process ends in any way. A context manager.

    Parameters
    ----------
    folder : what the process writes to. Folders within one `.kinstream` share one lock.

    Raises
    ------
    FolderInUse : another process holds it; the message has its id.
    """

    def __init__(self, folder: Path) -> None:
        home = folder.parent if folder.parent.name == _SHARED else folder
        self.path = home / _NAME
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FolderInUse(f"{self.path} cannot be created: {error.strerror or error}") from None
        try:
            # A lock of the open file: the kernel releases it with the process.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            raise FolderInUse(
                f"another kinstream up or demo{f' (process {holder})' if holder else ''} runs in this folder: it holds "
                f"{self.path}. Stop it, or start this one in another folder"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the folder. The file stays: otherwise two processes could lock two files of one name."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A temporary folder that ends with the process; those that killed processes have left with the prefix go first."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if (left / _NAME).exists():
            with suppress(FolderInUse), FolderLock(left):
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
        FolderLock(Path(folder)),
    ):
        yield folder
