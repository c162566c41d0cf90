"""Rankings over the map of low and of full rank, from pairs and triplets without lists."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.cases.adapter import FOLLOWS
from tests.learners.published_unit import create


def cases() -> list[Case]:
    low = partial(create, "ranking", start={"similarity": 0.5, "text": 0.5}, rank=3)
    full = partial(create, "ranking", memory=20, product="dot")
    return [
        Case("ranking:low", low, triplet_blocks(2, 5, messages=8), 1e-4, FOLLOWS),
        Case("ranking:low-pairs", low, pair_blocks(1, 5, messages=8), 1e-4, FOLLOWS),
        Case("ranking:full", full, triplet_blocks(3, 40, messages=8), 1e-4, FOLLOWS, elsewhere=True),
    ]
