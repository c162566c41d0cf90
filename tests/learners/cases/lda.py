"""Discriminants of pairs and of triplets, of low rank, in a subspace, and of a window."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype in ("float64", "float32"):
        make = partial(create, "lda", dtype=dtype)
        tolerance = 0.0 if dtype == "float64" else 1e-6
        found.append(Case(f"lda:{dtype}", make, pair_blocks(1, 5, messages=8), tolerance))
        found.append(Case(f"lda:{dtype}-triplets", make, triplet_blocks(2, 5, messages=8), tolerance))
    for name, blocks in (("", pair_blocks), ("-triplets", triplet_blocks)):
        make = partial(create, "lda", rank=3, window=50, subspace=6)
        found.append(Case(f"lda:subspace{name}", make, blocks(3, 40, messages=8), 0.0, elsewhere=True))
    found.append(Case("lda:one", partial(create, "lda"), triplet_blocks(3, 1, messages=8), 0.0))
    make = partial(create, "lda", scaler="zscore", warm_up=30)
    blocks_of = triplet_blocks(5, 4, messages=8, scale=30.0)
    found.append(Case("lda:zscore", make, blocks_of, 0.0, SCALER_STATE))
    return found
