"""Checks of hyper-parameters. Every refusal names the setting, what it was and what it may be."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TypeVar

from kinstream.streams.errors import SettingsError

T = TypeVar("T")


def positive(name: str, value: float, below: float = math.inf) -> float:
    """`value` as a float if it lies in (0, below).

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < below:
        limit = "a finite number above 0" if below == math.inf else f"above 0 and below {below:g}"
        raise SettingsError(f"{name} must be {limit}, not {value!r}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """`value` as a float if it is a finite number of at least 0.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise SettingsError(f"{name} must be a finite number of at least 0, not {value!r}")
    return float(value)


def whole(name: str, value: int, least: int) -> int:
    """`value` if it is a whole number of at least `least`.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SettingsError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def one_of(name: str, value: T, known: Collection[T]) -> T:
    """`value` if it is one of `known`.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if value not in tuple(known):  # which asks for no hash
        raise SettingsError(f"{name} must be one of {', '.join(map(str, known))}, not {value!r}")
    return value


def a_list(name: str, value: Collection[T]) -> Collection[T]:
    """`value` if it is a list of something.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Collection):
        raise SettingsError(f"{name} must be a list, not {value!r}")
    return value
