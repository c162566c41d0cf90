"""Durable files on this machine or on a mounted volume.

A file appears complete or not at all: temporary name, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from typing import Final

from kinstream.streams.checkpoints.files import MAX_FILE_BYTES, Damaged, Files, digest_of, nothing
from kinstream.streams.checkpoints.temporary_files import PREFIX, Writing, sweep
from kinstream.streams.compute.memory import ask
from kinstream.streams.errors import CheckpointError

#: Permissions of what is written, less those that the process takes away (umask): owner and group.
FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
#: From this many files on, one sync of the whole file system is quicker than one fsync for each.
_SYNC_AT_ONCE: Final = 32


class LocalFiles(Files):
    """A local folder.

    Parameters
    ----------
    root : of the store that it belongs to: where room is made when the volume is full.
    """

    def __init__(self, folder: str, root: str | None = None) -> None:
        super().__init__(folder)
        # What is relative now is so to another place after a change of the working directory.
        self._folder = os.path.abspath(folder)
        self._root = os.path.abspath(root or folder)

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        with self._reported("read", name, OSError), _regular(self._path(name)) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= limit:
                ask(size)
            data = b"" if size > limit else file.read(size + 1)
        if max(size, len(data)) > limit:
            raise self._too_large(name, limit)
        return data

    def digest(self, name: str, size: int) -> tuple[str, int]:
        with self._reported("read", name, OSError), _regular(self._path(name)) as file:
            found = os.fstat(file.fileno()).st_size
            return digest_of(file, size) if found == size else ("", found)

    def sizes(self, folder: str) -> dict[str, int]:
        found = {}
        with (
            suppress(FileNotFoundError),
            self._reported("list", folder, OSError),
            os.scandir(self._path(folder)) as entries,
        ):
            for entry in entries:
                if not entry.name.startswith("."):
                    with suppress(FileNotFoundError):
                        found[entry.name] = entry.stat().st_size
        return found

    def modified(self, name: str) -> float:
        with self._reported("read", name, OSError):
            return os.stat(self._path(name)).st_mtime

    def write(self, items: Iterable[tuple[str, bytes]], between: Callable[[], None] = nothing) -> None:
        written: list[tuple[str, str]] = []
        name = ""
        try:
            with Writing() as writing, self._written(lambda: name, writing):
                for name, data in items:
                    target = self._path(name)
                    written.append((self._temporary(target, data, writing), target))
                _sync([temporary for temporary, _ in written])
                for number, (temporary, target) in enumerate(written):
                    if number:
                        between()
                    os.replace(temporary, target)
                for folder in {os.path.dirname(target) for _, target in written}:
                    _sync_folder(folder)
        except BaseException:
            for temporary, _ in written:
                with suppress(OSError):
                    os.unlink(temporary)
            raise

    def create(self, name: str, data: bytes) -> bool:
        target = self._path(name)
        with Writing() as writing, self._written(lambda: name, writing):
            temporary = self._temporary(target, data, writing)
            try:
                _sync([temporary])
                _link(temporary, target)
            except FileExistsError:
                return False
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
            _sync_folder(os.path.dirname(target))
        return True

    def delete(self, names: Iterable[str], between: Callable[[], None] = nothing) -> None:
        for number, name in enumerate(names):
            if number:
                between()
            with suppress(FileNotFoundError), self._reported("delete", name, OSError):
                os.unlink(self._path(name))

    def sweep(self, folder: str) -> None:
        with suppress(FileNotFoundError), self._reported("delete temporary files in", folder, OSError):
            sweep(self._path(folder))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name) if name else self._folder

    @contextmanager
    def _written(self, name: Callable[[], str], writing: Writing) -> Iterator[None]:
        """As `_reported`, but a file or folder that vanishes under a writer is an error as well.

        A volume may be full only when a file is synced or named: then the next attempt finds room.
        """
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                writing.make_room(self._root)
            raise CheckpointError(f"checkpoint store: cannot write {self.url}/{name()}: {error}") from error

    def _temporary(self, target: str, data: bytes, writing: Writing) -> str:
        try:
            return _temporary(target, data, writing)
        except OSError as error:
            if error.errno not in _FULL:
                raise
        writing.make_room(self._root)
        return _temporary(target, data, writing)


def _temporary(target: str, data: bytes, writing: Writing) -> str:
    folder = os.path.dirname(target)
    _make_folder(folder)
    writing.begin(folder)
    path = os.path.join(folder, f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}")
    writing.files.add(path)
    try:
        # A state shows what users have clicked: no other user of the machine may read it.
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(number, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
    return path


def _regular(path: str) -> BufferedReader:
    """Open a regular file for reading. Opening a pipe or a device could block or have side effects.

    Raises
    ------
    Damaged : a folder, a pipe, a socket or a device, or a name that no file can have.
    """
    try:
        # Checked twice: the file may have been replaced before it was opened; opening must not block then either.
        if stat.S_ISREG(os.stat(path).st_mode):
            number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            file = os.fdopen(number, "rb")
            if stat.S_ISREG(os.fstat(number).st_mode):
                return file
            file.close()
    except ValueError as error:
        raise Damaged(f"checkpoint store: {path!r}: {error}") from error
    raise Damaged(f"checkpoint store: {path}: is not a regular file")


def _make_folder(path: str) -> None:
    """Make a folder and its parents, each durable in its own parent."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        _make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE)
        _sync_folder(parent)


def _link(temporary: str, target: str) -> None:
    """Give a file its name only if the name is free: FileExistsError otherwise."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        if os.path.exists(target):  # a volume without hard links offers no more than this
            raise FileExistsError(errno.EEXIST, "exists", target) from None
        os.rename(temporary, target)


def _sync(paths: list[str]) -> None:
    if len(paths) >= _SYNC_AT_ONCE and _sync_file_system(os.path.dirname(paths[0])):
        return
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(folder: str) -> bool:
    """Linux's syncfs, which Python does not wrap; False if it is missing."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if call(descriptor) == 0:
            return True
        if ctypes.get_errno() == errno.ENOSYS:
            return False
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    finally:
        os.close(descriptor)
