"""What is held out holds no end of an event whose beginning was learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kinstream.evaluation.runner.cells import _begun
from kinstream.streams.records.values import ConstraintBlock, Kind
from tests.golden.write_records import records


def block(events: list[int] | None, earlier: Kind | None = None) -> ConstraintBlock:
    """Rows with their place among all rows as the weight."""
    one = records()["triplets"]
    assert isinstance(one, ConstraintBlock)
    m = 2 if events is None else len(events)
    rows = np.zeros(m, np.int64)
    own = None if events is None else np.array(events, np.int32)
    return replace(one.take(rows), events=own, earlier=earlier, weights=np.arange(m, dtype=np.float32))


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        ([block(None), block([0, 1])], [[0, 1], [0, 1]]),
        ([block([0, 0]), block([0, 1, 1]), block([0, 0, 1])], [[1, 2], [0, 1, 2]]),
        ([block([1, 2], Kind.PAIR), block([1, 1])], [[0, 1]]),
        ([block([1, 1]), block([1, 2], Kind.PAIR)], [[0, 1], [0, 1]]),
        ([block([0, 0])], []),
    ],
)
def test_the_end_of_an_event_that_began_before_is_left_out(
    blocks: list[ConstraintBlock], kept: list[list[int]]
) -> None:
    assert [found.weights.tolist() for found in _begun(blocks)] == kept
