"""Checks of the settings of builders. Every error names the setting, its value and the allowed values."""

from __future__ import annotations

import math
from collections.abc import Collection

from kinstream.streams.errors import SettingsError


def whole(name: str, value: int, least: int, most: int) -> int:
    """`value` if it is a whole number from `least` to `most`.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingsError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def number(name: str, value: float, least: float, most: float) -> float:
    """`value` as a float if it is a number from `least` to `most`.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or not least <= value <= most:
        raise SettingsError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


def flag(name: str, value: bool) -> bool:
    """`value` if it is true or false.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if not isinstance(value, bool):
        raise SettingsError(f"{name} must be true or false, not {value!r}")
    return value


def one_of(name: str, value: str, known: Collection[str]) -> str:
    """`value` if it is one of `known`.

    Raises
    ------
    SettingsError
        Otherwise.
    """
    if value not in tuple(known):  # which asks for no hash
        raise SettingsError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value
