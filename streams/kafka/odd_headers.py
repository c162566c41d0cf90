"""Reads records with a header name that is not UTF-8, as producers in C can write them, as if without headers.

Both clients fail permanently on such a record, before they return any part of it, so it would stop every agent that
reads its partition. All headers of the record are dropped, so that both clients give the same.
"""

from __future__ import annotations

from typing import Any

from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy


class _Name(bytes):
    def decode(self, *_: Any, **__: Any) -> str:
        return super().decode("utf-8", "surrogateescape")


class _Buffer(bytearray):
    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _Name(found) if isinstance(key, slice) else found


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's reader of batches in Python, with a decoder of names that can be replaced."""

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        plain: Any = self
        plain._buffer = _Buffer(plain._buffer)

    def _read_msg(self, *arguments: Any) -> Any:
        record = super()._read_msg(*arguments)
        if any("\udc80" <= character <= "\udcff" for name, _ in record.headers for character in name):
            record.headers.clear()
        return record


class Records:
    """In place of aiokafka's MemoryRecords: the fast reader, until it meets a name that it cannot read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._reader: Any = MemoryRecords(data)
        self._wanted: int | None = None
        self._next: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def has_next(self) -> bool:
        if self._wanted is None:
            return bool(self._reader.has_next())
        return self._next is not None

    def next_batch(self) -> Any:
        if self._wanted is None:
            return self._reader.next_batch()
        batch = self._next
        self._advance()
        return batch

    def read_slowly(self, wanted: int) -> None:
        """Begin again at the batch that holds the offset `wanted`, with a reader that takes any name."""
        self._reader = _MemoryRecordsPy(self._data)
        self._wanted = wanted
        self._advance()

    def _advance(self) -> None:
        self._next = None
        while self._wanted is not None and self._reader.has_next():
            raw = bytes(self._reader._next_slice)
            batch = self._reader.next_batch()
            if batch.next_offset > self._wanted:
                # Older formats have no headers.
                self._next = _Batch(raw) if batch.magic >= 2 else batch
                return


def cannot_be_read(error: Exception) -> bool:
    """Whether a reader failed on a name."""
    return isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError)
