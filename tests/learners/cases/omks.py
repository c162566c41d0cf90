"""OMKS with both kernels, one, two and three modalities."""

from __future__ import annotations

from functools import partial

from kinstream.testing.learners import Case
from tests.learners.multi import BUFFER_STATE, SCALERS_STATE, multi_blocks
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        make = partial(create, "omks", kernels="rbf", budget=30, bandwidth=2.0, dtype=dtype)
        blocks = multi_blocks(1, (3, 7, 2))
        found.append(Case(f"omks:{dtype}", make, blocks, tolerance, elsewhere=dtype == "float64"))
    make = partial(create, "omks", kernels=["linear", "rbf"], budget=20, drop="smallest", warm_up=30)
    found.append(Case("omks:both", make, multi_blocks(2, (4, 3)), watching=BUFFER_STATE, elsewhere=True))
    found.append(
        Case("omks:one", partial(create, "omks", kernels="linear", budget=25), multi_blocks(3, (4,)))
    )
    make = partial(create, "omks", budget=20, scaler="minmax", warm_up=50)
    watching = SCALERS_STATE | BUFFER_STATE
    found.append(Case("omks:minmax", make, multi_blocks(4, (4, 3), scale=30.0), watching=watching))
    return found
