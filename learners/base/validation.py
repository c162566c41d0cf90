"""Checks of hyper-parameters and of arrays. Every error names the setting, its value and the valid values."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.arrays import plain
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.values import Kind

T = TypeVar("T")
Index = NDArray[np.int32]
Rows = NDArray[np.floating[Any]]

#: Vectors of one constraint.
WIDTH: Final = {Kind.PAIR: 2, Kind.TRIPLET: 3}


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
    """`positive`, or None if the learner chooses the value."""
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
    """One table of all rows, and the index whose constraint k has the k-th rows of all tables."""
    arrays = [np.asarray(table) for table in tables]
    if any(array.ndim != 2 or array.shape != arrays[0].shape for array in arrays):
        raise ValueError(f"expected tables of one shape (m, d), got {[array.shape for array in arrays]}")
    m = len(arrays[0])
    return np.concatenate(arrays), np.arange(len(arrays) * m, dtype=np.int32).reshape(-1, m).T


def checked_index(vectors: Rows, index: Index, kind: Kind, dimension: int | None) -> Index:
    """`index` (m, 2 or 3) as kernels take it, if it points into the table `vectors` (n, d).

    Raises
    ------
    BadRecord
        A shape or the number of features is wrong, or the index points outside its table.
    """
    if vectors.ndim != 2 or index.ndim != 2 or index.shape[1] != WIDTH[kind]:
        shapes = f"{vectors.shape} and {index.shape}"
        raise BadRecord(
            Reason.BAD_SHAPE, f"{kind}s need a table (n, d) and an index (m, {WIDTH[kind]}): {shapes}"
        )
    if dimension is not None and vectors.shape[1] != dimension:
        raise BadRecord(Reason.WRONG_DIMENSION, f"the model has {dimension} features, not {vectors.shape[1]}")
    if vectors.shape[1] == 0:
        raise BadRecord(Reason.BAD_SHAPE, "vectors without features")
    if len(index) and (index.min() < 0 or index.max() >= len(vectors)):
        raise BadRecord(Reason.BAD_SHAPE, f"the index points outside its table of {len(vectors)} rows")
    return plain(index, np.int32)


def checked_signs(signs: NDArray[np.int8], kind: Kind, m: int) -> NDArray[np.int8]:
    """The signs (m,) of constraints in the form for kernels."""
    if signs.shape != (m,):
        raise BadRecord(Reason.BAD_SHAPE, f"{m} constraints need as many signs, not {signs.shape}")
    if kind is Kind.PAIR and not (np.abs(signs) == 1).all():
        raise BadRecord(Reason.BAD_SHAPE, "the sign of a pair must be 1 or -1")
    return plain(signs, np.int8)


def words_of(kinds: frozenset[Kind]) -> str:
    """Kinds as a text."""
    return " and ".join(f"{kind}s" for kind in sorted(kinds))
