"""Categories as features: one-hot over a vocabulary, or hashed into buckets with a sign."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinstream.producers.files.cells import is_missing
from kinstream.producers.files.numbers import Where
from kinstream.producers.files.text import name_of, timely
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.checks import MAX_DIMENSION
from kinstream.streams.records.values import Vectors


class OneHot:
    """One feature for each value of a column, in order of first appearance. A missing value is all zeros.

    Parameters
    ----------
    column : of the file.
    """

    def __init__(self, column: str) -> None:
        self.column = column
        self._places: dict[str, int] = {}

    @property
    def vocabulary(self) -> list[str]:
        """The values seen, in the order of their features."""
        return list(self._places)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self._places)

    @property
    def described(self) -> list[Any]:
        """Everything that the features depend on, for an identity."""
        return ["one-hot", self.column]

    def learn(self, values: Sequence[str], where: Where) -> None:
        """Add values; "" is a missing one.

        Raises
        ------
        SourceError : there are too many different ones.
        """
        for row, value in enumerate(values):
            if value and value not in self._places:
                self._places[value] = len(self._places)
                if len(self._places) > MAX_DIMENSION:
                    raise where.error(row, f"more than {MAX_DIMENSION} different values; use --hashed")

    def vectors(self, values: Sequence[str]) -> Vectors:
        """(n, width) float32."""
        found = np.zeros((len(values), self.width), np.float32)
        for row, value in enumerate(values):
            if value:
                found[row, self._places[value]] = 1.0
        return found


class Hashed:
    """Values hashed into a fixed number of features, each with a sign from its hash.

    The sign makes collisions cancel on average: inner products stay unbiased.

    Parameters
    ----------
    column : of the file.
    buckets : the number of features.

    Raises
    ------
    SettingsError : the number of buckets is out of range.

    References
    ----------
    Weinberger, Dasgupta, Langford, Smola, Attenberg. Feature hashing for large scale multitask learning. 2009.
    """

    def __init__(self, column: str, buckets: int) -> None:
        if not 1 <= buckets <= MAX_DIMENSION:
            raise SettingsError(f"--hashed {column}: 1 to {MAX_DIMENSION} buckets, not {buckets}")
        self.column = column
        self.width = buckets
        self._known: dict[str, tuple[int, float]] = {}

    @property
    def described(self) -> list[Any]:
        """Everything that the features depend on, for an identity."""
        return ["hashed", self.column, self.width]

    def learn(self, values: Sequence[str], where: Where) -> None:
        """Do nothing: a value's feature depends on the column and the value alone."""

    def vectors(self, values: Sequence[str]) -> Vectors:
        """(n, buckets) float32."""
        found = np.zeros((len(values), self.width), np.float32)
        for row, value in enumerate(values):
            if value:
                bucket, sign = self._place(value)
                found[row, bucket] = sign
        return found

    def _place(self, value: str) -> tuple[int, float]:
        if value not in self._known:
            self._known[value] = hashed(self.column, value, self.width)
        return self._known[value]


Category = OneHot | Hashed


def hashed(column: str, value: str, buckets: int) -> tuple[int, float]:
    """The bucket of a value and its sign, the same on every machine.

    Examples
    --------
    >>> hashed("brand", "acme", 16) == hashed("brand", "acme", 16)
    True
    """
    digest = blake2b(f"{column}\0{value}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    return (number >> 1) % buckets, 1.0 if number & 1 else -1.0


def category_values(column: pa.Array, where: Where, *, typed: bool) -> list[str]:
    """A column as the names of categories, "" for missing ones; `typed` as of `name_of`.

    Raises
    ------
    SourceError : a value is no name.
    """
    if pa.types.is_nested(column.type):
        raise where.wrong(f"holds {column.type}, not categories")
    if pa.types.is_floating(column.type):
        # Where a category is missing, pandas writes NaN.
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), None, column)
    return [
        "" if is_missing(value) else name_of(value, where, row, typed=typed)
        for row, value in enumerate(timely(column).to_pylist())
    ]
