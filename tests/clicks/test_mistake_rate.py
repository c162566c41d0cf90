"""The lists that constraints name as their events are those that users saw: an oracle reads the lists themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import numpy as np
import pytest

from kinstream.streams.records.values import ConstraintBlock
from tests.clicks.lists_oracle import Triplets, catalogue, item_block, lists, opml, triplets_of
from tests.clicks.stream import builder_stream, constraint_blocks
from tests.processors.click_samples import NOW, block_of

GAMMA = 0.05
COUNT = 150


def events_of(blocks: Iterable[ConstraintBlock]) -> Iterator[Triplets]:
    """The triplets of each event in the blocks, as vectors."""
    for block in blocks:
        rows = block.tables[0].vectors[block.index].astype(np.float64)
        numbers = range(len(block)) if block.events is None else block.events.tolist()
        for _, some in groupby(zip(numbers, rows, strict=True), key=lambda row: row[0]):
            yield [row for _, row in some]


@pytest.mark.parametrize("in_a_block", [1, 25])
def test_the_events_of_constraints_are_the_lists(in_a_block: int) -> None:
    vectors, clicks = catalogue(), list(lists(COUNT))
    builder = builder_stream(NOW)
    builder(item_block(vectors))
    blocks: list[ConstraintBlock] = []
    for first in range(0, COUNT, in_a_block):
        some = clicks[first : first + in_a_block]
        blocks += constraint_blocks(builder(some[0] if in_a_block == 1 else block_of(some)))
    expected = opml((triplets_of(click, vectors) for click in clicks), GAMMA)
    assert opml(events_of(blocks), GAMMA) == expected
    # Judging each triplet after its siblings were learned flatters, and would not pass.
    assert expected.one_by_one < 0.8 * expected.mistakes
    assert expected.mistakes > 100
