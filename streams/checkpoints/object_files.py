"""Files in an object store, or in any other store of fsspec."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from kinstream.streams.checkpoints.files import MAX_FILE_BYTES, Files, digest_of, nothing
from kinstream.streams.compute.memory import ask
from kinstream.streams.errors import CheckpointError

#: Objects above this size are digested as a stream.
_STREAM_ABOVE: Final = 64 * 2**20
_CONNECTIONS: Final = 16


class ObjectFiles(Files):
    """Files written by puts. The digests in the manifest detect an incomplete write."""

    def __init__(self, system: Any, folder: str, url: str) -> None:
        super().__init__(url)
        self._system = system
        self._folder = folder

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        if limit > MAX_FILE_BYTES:
            with self._reported("read", name, Exception):
                size = int(self._system.size(self._path(name)) or 0)
            ask(min(size, limit))
        with self._reported("read", name, Exception):
            data = bytes(self._system.cat_file(self._path(name), start=0, end=limit + 1))
        if len(data) > limit:
            raise self._too_large(name, limit)
        return data

    def digest(self, name: str, size: int) -> tuple[str, int]:
        if size <= _STREAM_ABOVE:
            data = self.read(name, size)
            return hashlib.sha256(data).hexdigest(), len(data)
        with self._reported("read", name, Exception), self._system.open(self._path(name), "rb") as file:
            return digest_of(file, size)

    def sizes(self, folder: str) -> dict[str, int]:
        with suppress(FileNotFoundError), self._reported("list", folder, Exception):
            self._system.invalidate_cache()
            entries = self._system.ls(self._path(folder), detail=True)
            files = (
                (entry["name"].rsplit("/", 1)[-1], entry) for entry in entries if entry["type"] == "file"
            )
            return {
                name: int(entry["size"] or 0) for name, entry in files if name and not name.startswith(".")
            }
        return {}

    def modified(self, name: str) -> float:
        with self._reported("read", name, Exception):
            return float(self._system.modified(self._path(name)).timestamp())

    def write(self, items: Iterable[tuple[str, bytes]], between: Callable[[], None] = nothing) -> None:
        self._all(((self._put, item) for item in items), between)

    def create(self, name: str, data: bytes) -> bool:
        with self._reported("write", name, Exception):
            try:
                self._system.pipe_file(self._path(name), data, mode="create")
            except FileExistsError:
                return False
        return True

    def delete(self, names: Iterable[str], between: Callable[[], None] = nothing) -> None:
        self._all(((self._remove, name) for name in names), between)

    def sweep(self, folder: str) -> None:
        """An object store keeps no incomplete files."""

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if name else self._folder

    def _put(self, item: tuple[str, bytes]) -> None:
        name, data = item
        with self._reported("write", name, Exception):
            try:
                self._system.pipe_file(self._path(name), data)
            except FileNotFoundError as error:  # the bucket, not the object
                raise CheckpointError(f"checkpoint store: cannot write {self.url}/{name}: {error}") from error

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._reported("delete", name, Exception):
            self._system.rm_file(self._path(name))

    @staticmethod
    def _all(calls: Iterable[tuple[Callable[[Any], None], Any]], between: Callable[[], None]) -> None:
        """Many calls on a few connections, with few items in memory at a time; the first failure ends it."""
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            for number, (call, item) in enumerate(calls):
                if number:
                    between()
                if len(pending) == 2 * _CONNECTIONS:
                    pending.popleft().result()
                pending.append(pool.submit(call, item))
            while pending:
                pending.popleft().result()
