"""Softmax by chains and by lists, of full and of low rank, with a memory that overflows."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

#: What follows the rows between two steps.
FOLLOWS = frozenset(
    {"tally", "apart"}
    | {f"memory_{n}" for n in ("vectors", "hashes", "groups", "stamps")}
    | {f"pending_{n}" for n in ("vectors", "hashes", "groups")}
)


def cases() -> list[Case]:
    found = []
    for dtype in ("float64", "float32"):
        for groups in ("chains", "none"):
            make = partial(create, "softmax", dtype=dtype, groups=groups)
            found.append(
                Case(f"softmax:{dtype}-{groups}", make, triplet_blocks(2, 5, messages=8), 0.0, FOLLOWS)
            )
    low = partial(create, "softmax", rank=3, memory=20, per_group=3)
    found.append(
        Case("softmax:low-rank", low, triplet_blocks(3, 40, messages=8), 0.0, FOLLOWS, elsewhere=True)
    )
    none = partial(create, "softmax", groups="none", memory=20)
    found.append(Case("softmax:small-memory", none, triplet_blocks(3, 40, messages=8), 0.0, FOLLOWS))
    found.append(
        Case("softmax:one", partial(create, "softmax"), triplet_blocks(3, 1, messages=8), 0.0, FOLLOWS)
    )
    make = partial(create, "softmax", scaler="zscore", warm_up=30)
    blocks = triplet_blocks(5, 4, messages=8, scale=30.0)
    found.append(Case("softmax:zscore", make, blocks, 0.0, FOLLOWS | SCALER_STATE))
    return found
