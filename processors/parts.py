"""States within a state."""

from __future__ import annotations

from kinstream.processors.base import State


def put(name: str, part: State) -> State:
    """The entries of a part under names that begin with its own."""
    return {f"{name}.{key}": value for key, value in part.items()}


def take(state: State, name: str) -> State:
    """The inverse of `put`."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
