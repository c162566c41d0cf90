"""Adapters of low and of full rank, from pairs and triplets, with a memory that overflows."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

#: What follows the rows between two steps.
FOLLOWS = frozenset(
    {"tally"}
    | {f"memory_{name}" for name in ("vectors", "hashes", "pulls")}
    | {f"pending_{name}" for name in ("queries", "hashes", "links", "shares")}
)


def cases() -> list[Case]:
    found = []
    for dtype in ("float64", "float32"):
        for rank in (3, 0):
            make = partial(create, "adapter", rank=rank, dtype=dtype)
            name, tolerance = f"adapter:{dtype}-{rank}", 1e-9 if dtype == "float64" else 1e-4
            found.append(Case(name, make, triplet_blocks(2, 5, messages=8), tolerance, FOLLOWS))
            found.append(Case(f"{name}-pairs", make, pair_blocks(1, 5, messages=8), tolerance, FOLLOWS))
    small = partial(create, "adapter", memory=20, product="dot")
    blocks = triplet_blocks(3, 40, messages=8)
    found.append(Case("adapter:small-memory", small, blocks, 1e-4, FOLLOWS, elsewhere=True))
    found.append(
        Case("adapter:one", partial(create, "adapter"), triplet_blocks(3, 1, messages=8), 1e-4, FOLLOWS)
    )
    return found
