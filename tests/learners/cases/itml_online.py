"""ITML-Online in all its ways."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        for kernel in ("sequential", "blocked"):
            make = partial(
                create, "itml-online", eta=1e-3, dtype=dtype, kernel=kernel, y_similar=2.0, y_dissimilar=30.0
            )
            name, elsewhere = f"itml-online:{dtype}-{kernel}", (dtype, kernel) == ("float64", "blocked")
            found.append(Case(name, make, pair_blocks(1, 7), tolerance, elsewhere=elsewhere))
    make = partial(create, "itml-online", eta=1e-3, y_similar=2.0, y_dissimilar=30.0)
    found.append(Case("itml-online:triplets", make, triplet_blocks(2, 5)))
    make = partial(create, "itml-online", eta=1e-3, loss="squared", targets="block")
    found.append(Case("itml-online:squared", make, pair_blocks(3, 6, targets=True), watching=TARGETS_STATE))
    make = partial(create, "itml-online", eta=1e-2, scaler="zscore", warm_up=30)
    watching = SCALER_STATE | TARGETS_STATE
    found.append(Case("itml-online:zscore", make, pair_blocks(4, 4, scale=30.0), watching=watching))
    return found
