"""The state of an algorithm as a value: names to arrays and scalars only; and states within a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

State = dict[str, NDArray[Any] | int | float | str | bool]


def with_prefix(prefix: str, part: Mapping[str, NDArray[Any] | int | float | str | bool]) -> State:
    """The entries of a part, as entries of a whole: the prefix goes before every name."""
    return {prefix + name: value for name, value in part.items()}


def without_prefix(prefix: str, state: Mapping[str, NDArray[Any] | int | float | str | bool]) -> State:
    """The inverse of `with_prefix`: the entries whose names begin with a prefix, named without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
