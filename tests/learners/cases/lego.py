"""LEGO in all its ways."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        for kernel in ("sequential", "blocked"):
            make = partial(
                create, "lego", eta=1e-2, dtype=dtype, kernel=kernel, y_similar=2.0, y_dissimilar=30.0
            )
            case = Case(f"lego:{dtype}-{kernel}", make, pair_blocks(1, 7), tolerance)
            found.append(replace(case, elsewhere=(dtype, kernel) == ("float32", "blocked")))
            found.append(Case(f"lego:triplets-{dtype}-{kernel}", make, triplet_blocks(2, 5), tolerance))
    for kernel in ("sequential", "blocked"):
        make = partial(create, "lego", eta=1e-2, loss="squared", targets="block", kernel=kernel)
        blocks = pair_blocks(3, 6, targets=True)
        found.append(Case(f"lego:squared-{kernel}", make, blocks, watching=TARGETS_STATE))
    for scaler in ("zscore", "unit"):
        make = partial(create, "lego", eta=1e-2, scaler=scaler, warm_up=30)
        blocks, watching = pair_blocks(4, 4, scale=30.0), SCALER_STATE | TARGETS_STATE
        found.append(Case(f"lego:{scaler}", make, blocks, watching=watching, elsewhere=scaler == "zscore"))
    return found
