"""Constraints of an experiment are those that the builder makes live."""

from __future__ import annotations

import numpy as np
import pytest

from kinstream.evaluation.experiment.feeds import ENOUGH, SPACE, Built
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import Origin
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import SampleBlock, Table
from tests.evaluation.plans import blobs

KINDS = ["one-pass", "adjacent-pairs", "random-pairs", "random-triplets"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_feed_gives_what_the_builder_gives(kind: str) -> None:
    data = blobs()
    builder = builders.create(kind, seed=7)
    live = []
    for number, start in enumerate(range(0, len(data), 16)):
        part = slice(start, start + 16)
        block = SampleBlock(SPACE, (Table("x", data.tables["x"][part]),), data.labels[part], 0)
        live += builder.process(block, Origin(offset=number)).blocks
    fed = list(Built(kind, block_rows=16)(data.tables, data.labels, 7))
    assert fed
    assert [encode(block) for block in fed] == [encode(block) for block in live]


@pytest.mark.parametrize("limit", [1, 15, 16, 17, 1_000])
def test_a_limit_cuts_the_same_constraints_short(limit: int) -> None:
    data = blobs()
    whole = list(Built("random-triplets", passes=30, block_rows=16)(data.tables, data.labels, 0))
    cut = list(Built("random-triplets", limit=limit, passes=30, block_rows=16)(data.tables, data.labels, 0))
    assert sum(map(len, cut)) == limit
    for one, other in zip(cut, whole, strict=False):
        first, second = (b.tables[0].vectors[b.index[: len(one)]] for b in (one, other))
        assert np.array_equal(first, second)


def test_the_settings_name_the_seed_first() -> None:
    data = blobs()
    own = Built("random-triplets", {"seed": 3})
    assert [encode(b) for b in own(data.tables, data.labels, 0)] == [
        encode(b) for b in own(data.tables, data.labels, 1)
    ]
    free = Built("random-triplets")
    assert [encode(b) for b in free(data.tables, data.labels, 0)] != [
        encode(b) for b in free(data.tables, data.labels, 1)
    ]


def test_without_a_number_of_passes_rows_come_in_new_orders_until_there_are_enough() -> None:
    data = blobs()
    fed = list(Built("one-pass", passes=None)(data.tables, data.labels, 3))
    once = list(Built("one-pass")(data.tables, data.labels, 3))
    sizes = [len(block) for block in fed]
    # Whole passes, and not one more than it takes.
    assert sum(sizes) >= ENOUGH > sum(sizes[:-1])
    assert [encode(block) for block in fed[: len(once)]] == [encode(block) for block in once]
    first, second = (set(map(bytes, block.tables[0].vectors)) for block in fed[:2])
    assert second <= set(map(bytes, data.tables["x"])) and len(first | second) == len(data)
    orders = {block.tables[0].vectors[block.index[:20, 0]].tobytes() for block in fed}
    assert len(orders) == len(fed)
    again = list(Built("one-pass", passes=None)(data.tables, data.labels, 3))
    assert [encode(block) for block in again] == [encode(block) for block in fed]


def test_a_limit_ends_the_passes_and_rows_that_make_nothing_are_not_repeated() -> None:
    data = blobs()
    fed = list(Built("one-pass", passes=None, limit=6_000)(data.tables, data.labels, 0))
    assert sum(map(len, fed)) == 6_000
    alone = {"x": data.tables["x"][:1]}
    assert list(Built("one-pass", passes=None)(alone, data.labels[:1], 0)) == []
