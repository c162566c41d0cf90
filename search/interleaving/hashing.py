"""Short names for long ones."""

from __future__ import annotations

import hashlib


def hash_of(text: str) -> int:
    """64 bits of a name."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
