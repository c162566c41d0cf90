"""The frame of Confluent's serializers: a zero byte and the id of a schema in four bytes, before the body."""

from __future__ import annotations

from typing import Final

_MAGIC: Final = 0
FRAME_SIZE: Final = 5


def is_framed(data: bytes) -> bool:
    """Whether data begins with a frame."""
    return len(data) >= FRAME_SIZE and data[0] == _MAGIC


def unframed(data: bytes) -> bytes:
    """Text without its frame, if it has one: no text in UTF-8 that people write begins with a zero byte.

    Examples
    --------
    >>> unframed(b"\\0\\0\\0\\0\\x05{}"), unframed(b"{}")
    (b'{}', b'{}')
    """
    return data[FRAME_SIZE:] if is_framed(data) else data
