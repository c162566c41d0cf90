"""Checks that every source of rows has to pass: the order never changes, and a load resumes at any row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kinstream.producers.loads.blocks import RowSource
from kinstream.testing.refusals import runs_assertions


def digest_of_rows(rows: Any) -> str:
    """Digest of the type, names and values of a dataclass of arrays, tables and tuples, such as a batch."""
    found = hashlib.sha256()
    for part in _parts(rows):
        found.update(part)
    return found.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if is_dataclass(value):
        for field in fields(value):
            yield f".{field.name} ".encode()
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, np.ndarray) and value.dtype != np.dtype(object):
        yield f"{value.dtype.str} {value.shape} ".encode() + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, (list, tuple, np.ndarray)):
        yield f"{len(value)} of ".encode()
        for one in value:
            yield from _parts(one)
    else:
        yield f"{type(value).__name__} {value!r} ".encode()


def batches(source: RowSource[Any], position: int = 0) -> list[tuple[int, Any]]:
    """Every batch from a position on, each with the position before it."""
    source.seek(position)
    found = []
    at = source.snapshot()
    while (batch := source.next_batch()) is not None:
        found.append((at, batch))
        at = source.snapshot()
    return found


def rows_one_by_one(source: RowSource[Any], position: int = 0) -> list[str]:
    """A digest of each row from a position on, independent of the ends of batches."""
    return [
        digest_of_rows(batch[n : n + 1]) for _, batch in batches(source, position) for n in range(len(batch))
    ]


def counts_its_rows(make: Callable[[], RowSource[Any]]) -> None:
    """`layout.rows` is the number of rows that `next_batch` gives, in batches that are never empty."""
    source = make()
    found = [len(batch) for _, batch in batches(source)]
    assert all(found) and sum(found) == source.layout.rows
    assert source.next_batch() is None


def gives_the_same_rows_again(make: Callable[[], RowSource[Any]]) -> None:
    """Equal sources have equal identities and equal rows; reading changes no identity."""
    one, other = make(), make()
    identity = one.identity
    assert identity and other.identity == identity
    assert rows_one_by_one(one) == rows_one_by_one(other) == rows_one_by_one(one)
    assert one.identity == identity


def reads_on_from_every_snapshot(make: Callable[[], RowSource[Any]]) -> None:
    """A new source that seeks to a snapshot gives the rows after it."""
    source = make()
    whole = rows_one_by_one(source)
    read = 0
    for position, batch in batches(source):
        fresh = make()
        fresh.seek(position)
        assert fresh.snapshot() == position
        assert rows_one_by_one(fresh, position) == whole[read:]
        read += len(batch)
    end = source.snapshot()
    fresh = make()
    fresh.seek(end)
    assert fresh.next_batch() is None


def knows_the_size_of_its_rows(make: Callable[[], RowSource[Any]]) -> None:
    """`sizes` has a positive number for each row, and `together` counts at least the first."""
    for _, batch in batches(make()):
        assert batch.sizes().shape == (len(batch),) and (batch.sizes() > 0).all()
        assert 1 <= batch.together() <= len(batch)


def joins_its_batches(make: Callable[[], RowSource[Any]]) -> None:
    """`then` and slices undo each other."""
    found = [batch for _, batch in batches(make())]
    for one, other in pairwise(found):
        both = one.then(other)
        assert len(both) == len(one) + len(other)
        assert digest_of_rows(both[: len(one)]) == digest_of_rows(one[: len(one)])
        assert digest_of_rows(both[len(one) :]) == digest_of_rows(other[: len(other)])


SOURCE_CHECKS: tuple[Callable[[Callable[[], RowSource[Any]]], None], ...] = (
    counts_its_rows,
    gives_the_same_rows_again,
    reads_on_from_every_snapshot,
    knows_the_size_of_its_rows,
    joins_its_batches,
)


def check_source(make: Callable[[], RowSource[Any]]) -> None:
    """Run every check on a source.

    Parameters
    ----------
    make : opens the source; each call returns a new one at its beginning.

    Raises
    ------
    AssertionError
        A check failed; its note names the check.
    RuntimeError
        Python runs with -O, which disables assertions.
    """
    runs_assertions()
    for check in SOURCE_CHECKS:
        try:
            check(make)
        except Exception as error:
            error.add_note(f"in the check {check.__name__}")
            raise
