"""POLA with and without its cap, from pairs and from triplets."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype in ("float64", "float32"):
        make = partial(create, "pola", dtype=dtype)
        found.append(Case(f"pola:{dtype}", make, pair_blocks(1, 7), 0.0))
        found.append(Case(f"pola:{dtype}-triplets", make, triplet_blocks(2, 5), 0.0))
    found.append(Case("pola:one", partial(create, "pola"), pair_blocks(3, 1), 0.0))
    found.append(Case("pola:wide", partial(create, "pola"), pair_blocks(3, 40), 0.0, elsewhere=True))
    found.append(Case("pola:cap", partial(create, "pola", cap=1e-3), pair_blocks(4, 4), 0.0))
    for scaler in ("zscore", "unit"):
        make = partial(create, "pola", scaler=scaler, warm_up=30)
        found.append(Case(f"pola:{scaler}", make, pair_blocks(5, 4, scale=30.0), 0.0, SCALER_STATE))
    return found
