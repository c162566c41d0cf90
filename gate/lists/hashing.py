"""Short names for long ones."""

from __future__ import annotations

import hashlib


def hash_of(text: str) -> int:
    """64 bits of a name."""
    return hash_of_bytes(text.encode("utf-8", "surrogatepass"))


def hash_of_bytes(data: bytes) -> int:
    """64 bits of any bytes."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
