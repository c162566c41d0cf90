"""OAHU in both variants, small."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinstream.learners.oahu.variants import varied
from kinstream.testing.blocks import SCALER_STATE, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

SMALL: dict[str, Any] = {"layers": 2, "hidden": 10}
#: The mean squared length follows every accepted triplet.
LIFT_STATE = frozenset({"taken", "lift_count", "lift_sum"})
#: A triplet without a direction counts too. None of these comes last in a batch, where it would go with a step.
BATCH_STATE = frozenset({"batch_count"})


def cases() -> list[Case]:
    found = []
    for variant in ("anchored", "published"):
        for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
            make = partial(create, "oahu", variant=variant, dtype=dtype, **SMALL)
            elsewhere = (variant, dtype) in (("anchored", "float32"), ("published", "float64"))
            name = f"oahu:{variant}-{dtype}"
            found.append(Case(name, make, triplet_blocks(1, 7), tolerance, LIFT_STATE, elsewhere))
    # Constraints enough that the mean squared length is frozen on the way.
    make = partial(create, "oahu", dtype="float64", scaler="zscore", warm_up=50, **SMALL)
    blocks = triplet_blocks(2, 4, messages=6, m=60, scale=30.0)
    found.append(Case("oahu:zscore", make, blocks, watching=SCALER_STATE | LIFT_STATE, elsewhere=True))
    make = partial(create, "oahu", variant=varied("published", biases=True), dtype="float64", **SMALL)
    found.append(Case("oahu:biases", make, triplet_blocks(3, 5), watching=LIFT_STATE))
    make = partial(create, "oahu", variant=varied(anchors=("lifted",)), dtype="float64", layers=0, hidden=6)
    found.append(Case("oahu:no-layers", make, triplet_blocks(4, 3), watching=LIFT_STATE))
    for path in ("compiled", "torch"):
        make = partial(
            create, "oahu", variant=varied(biases=True), dtype="float64", path=path, batch=8, **SMALL
        )
        name, watching = f"oahu:batches-{path}", LIFT_STATE | BATCH_STATE
        found.append(Case(name, make, triplet_blocks(7, 6), watching=watching, elsewhere=path == "compiled"))
    make = partial(create, "oahu", dtype="float64", path="torch", **SMALL)
    found.append(Case("oahu:torch", make, triplet_blocks(8, 5), watching=LIFT_STATE, elsewhere=True))
    make = partial(create, "oahu", dtype="float64", layers=1, hidden=5)
    found.append(Case("oahu:one-feature", make, triplet_blocks(5, 1), watching=LIFT_STATE))
    found.append(Case("oahu:as-it-comes", partial(create, "oahu"), triplet_blocks(6, 12), 2e-4, LIFT_STATE))
    return found
