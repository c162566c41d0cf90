"""The interface of a folder of files, local or remote, for the checkpoint store.

Every failure is a `CheckpointError` with the URL and the cause. Only a missing file is a `FileNotFoundError`, because a
reader must expect it while the owner prunes.
"""

from __future__ import annotations

import errno
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Final

from kinstream.streams.errors import CheckpointError
from kinstream.streams.secrets import hide
from kinstream.streams.secrets import without_secret as without_secret


def nothing() -> None:
    """Runs between two files if no failpoint is given."""


#: Largest file that is read whole: ten times a manifest of a hundred thousand spaces.
MAX_FILE_BYTES: Final = 256 * 2**20
#: Largest state of a space of unknown size: a full matrix of 30,000 dimensions.
MAX_STATE_BYTES: Final = 8 * 2**30
_BLOCK: Final = 2**20


def digest_of(stream: IO[bytes], size: int) -> tuple[str, int]:
    """The sha256 and size of a stream, of which at most `size` + 1 bytes are read."""
    digest, found = hashlib.sha256(), 0
    while found <= size and (block := stream.read(min(_BLOCK, size + 1 - found))):
        digest.update(block)
        found += len(block)
    return digest.hexdigest(), found


class Damaged(CheckpointError):
    """A file exists but differs from the written one; another checkpoint may still be complete."""


class Missing(CheckpointError):
    """An announced file is missing: a newer one has replaced it, or this is another store."""


class Files(ABC):
    """One folder and its subfolders. Names are relative, with `/` between their parts.

    Every method raises CheckpointError when the store refuses or fails.
    """

    def __init__(self, url: str) -> None:
        self.url = without_secret(url)

    @abstractmethod
    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """All bytes of a file.

        Raises
        ------
        FileNotFoundError : the file does not exist.
        Damaged : it is not a regular file, or has more than `limit` bytes, and no more than that are read.
        """

    @abstractmethod
    def digest(self, name: str, size: int) -> tuple[str, int]:
        """The sha256 and true size of a file whose recorded size is `size` bytes. Raises FileNotFoundError.

        No more than that is read: without that size there is no digest, and of a longer file perhaps only `size` + 1 is
        known.
        """

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """The files directly in `folder` ("" for the top), with their sizes. Empty without a folder."""

    @abstractmethod
    def modified(self, name: str) -> float:
        """When a file was last written, in seconds since the epoch. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, items: Iterable[tuple[str, bytes]], between: Callable[[], None] = nothing) -> None:
        """Write or replace files, all durable on return; `between` runs from file to file."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write a durable file, unless a file of this name exists: then leave it and return False."""

    @abstractmethod
    def delete(self, names: Iterable[str], between: Callable[[], None] = nothing) -> None:
        """Delete files; missing files are ignored."""

    @abstractmethod
    def sweep(self, folder: str) -> None:
        """Delete temporary files that killed writers left in `folder`: those that nobody writes any more."""

    def _too_large(self, name: str, limit: int) -> Damaged:
        return Damaged(f"checkpoint store: {self.url}/{name}: has more than {limit} bytes")

    @contextmanager
    def _reported(self, action: str, name: str, failures: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, CheckpointError):
            raise
        except failures as error:
            place = f"{self.url}/{name}".rstrip("/")
            cause = hide(str(error)) or type(error).__name__
            kind = Damaged if isinstance(error, OSError) and error.errno == errno.EIO else CheckpointError
            raise kind(f"checkpoint store: cannot {action} {place}: {cause}") from error
