"""SORS and AdaSORS, on dense and on sparse vectors."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.cases.oasis import thinned
from tests.learners.published_unit import create

#: The count of constraints, by which thresholds come due that no entry has taken yet.
_COUNT = frozenset({"steps"})


def cases() -> list[Case]:
    found = []
    for kind in ("sors", "adasors"):
        for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
            make = partial(create, kind, sparsity=0.01, dtype=dtype)
            elsewhere = dtype == "float64"
            blocks = triplet_blocks(1, 7)
            found.append(Case(f"{kind}:{dtype}", make, blocks, tolerance, _COUNT, elsewhere))
        plain = partial(create, kind, sparsity=0.0)
        found.append(Case(f"{kind}:plain", plain, triplet_blocks(2, 5), watching=_COUNT))
        make = partial(create, kind, sparsity=0.01, penalty="all")
        mixed = [
            message
            for pair in zip(
                thinned(triplet_blocks(3, 64, 2), 0.06), triplet_blocks(3, 64, 2, m=10), strict=True
            )
            for message in pair
        ]
        found.append(Case(f"{kind}:sparse", make, mixed, watching=_COUNT))
        make = partial(create, kind, eta=0.01, sparsity=0.01, scaler="zscore", warm_up=50)
        blocks = triplet_blocks(4, 4, scale=30.0)
        found.append(Case(f"{kind}:zscore", make, blocks, watching=SCALER_STATE | _COUNT))
    return found
