"""Equality of states, bit for bit."""

from __future__ import annotations

from typing import Any

from kinstream.streams.checkpoints.state_bytes import to_bytes


def same_states(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether two tables of states hold the same bytes."""
    return left.keys() == right.keys() and all(to_bytes(left[name]) == to_bytes(right[name]) for name in left)
