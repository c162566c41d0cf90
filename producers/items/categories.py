"""Categories as features: one-hot over a vocabulary, or hashed into buckets with a sign."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from kinstream.producers.files.numbers import Where, is_list, is_text
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


def category_values(column: pa.Array, where: Where) -> list[str]:
    """A column as the names of categories, "" for missing ones.

    Raises
    ------
    SourceError : the column holds lists or a similar type.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_list(column.type) or pa.types.is_nested(column.type):
        raise where.wrong(f"holds {column.type}, not categories")
    texts = column if is_text(column.type) else column.cast(pa.string())
    return [value or "" for value in texts.to_pylist()]
