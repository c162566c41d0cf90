"""The arrays of records, and what they hold: what a learner or a builder must not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import Table


def arrays(record: Any) -> Iterator[NDArray[Any]]:
    """Every array of a record."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, tuple):
            yield from (part.vectors for part in value if isinstance(part, Table))


def contents(records: Iterable[Any]) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bits of every array; the other values of a record cannot be changed."""
    return [(array.dtype.str, array.shape, array.tobytes()) for one in records for array in arrays(one)]
