"""Constraints of an experiment are those that the builder makes live."""

from __future__ import annotations

import numpy as np
import pytest

from kinstream.processors import registry as builders
from kinstream.processors.shared.base import Origin
from kinstream.replay.evaluation.experiment.feeds import SPACE, Built
from kinstream.streams.records.codec.every_kind import encode
from kinstream.streams.records.values import SampleBlock, Table
from tests.replay.evaluation.plans import blobs

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
