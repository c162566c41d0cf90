"""Checks of hyper-parameters and of arrays. Every refusal of a setting names it, what it was and what it may be."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.values import Kind

T = TypeVar("T")
Index = NDArray[np.int32]
Rows = NDArray[np.floating[Any]]


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


def positive_or_none(name: str, value: float | None, below: float = math.inf) -> float | None:
    """`positive`, or None where the value is left to the learner."""
    return None if value is None else positive(name, value, below)


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


def stacked_rows(*tables: Rows) -> tuple[Rows, Index]:
    """One table of all rows, and the index that takes the k-th rows of all tables as constraint k."""
    arrays = [np.asarray(table) for table in tables]
    if any(array.ndim != 2 or array.shape != arrays[0].shape for array in arrays):
        raise ValueError(f"expected tables of one shape (m, d), got {[array.shape for array in arrays]}")
    m = len(arrays[0])
    return np.concatenate(arrays), np.arange(len(arrays) * m, dtype=np.int32).reshape(-1, m).T


def checked_signs(signs: NDArray[np.int8], kind: Kind, m: int) -> NDArray[np.int8]:
    """The signs (m,) of constraints, as kernels take them."""
    if signs.shape != (m,):
        raise BadRecord(Reason.BAD_SHAPE, f"{m} constraints need as many signs, not {signs.shape}")
    if kind is Kind.PAIR and not np.isin(signs, (-1, 1)).all():
        raise BadRecord(Reason.BAD_SHAPE, "the sign of a pair must be 1 or -1")
    return np.require(signs, np.int8, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


def words_of(kinds: frozenset[Kind]) -> str:
    """Kinds as a text."""
    return " and ".join(f"{kind}s" for kind in sorted(kinds))
