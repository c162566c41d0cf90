"""The reconstruction of OMDL-LR with one, two and three modalities."""

from __future__ import annotations

from functools import partial

from kinstream.testing.learners import Case
from tests.learners.multi import BUFFER_STATE, SCALERS_STATE, multi_blocks
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-8), ("float32", 2e-3)):
        make = partial(create, "omdl-lr-like", rank=6, warm_up=20, margin=0.1, dtype=dtype)
        blocks = multi_blocks(1, (3, 7, 2))
        case = Case(f"omdl-lr-like:{dtype}", make, blocks, tolerance, BUFFER_STATE, dtype == "float64")
        found.append(case)
    make = partial(create, "omdl-lr-like", rank=5, warm_up=30, smoothness=0.0, margin=1.0)
    found.append(Case("omdl-lr-like:one", make, multi_blocks(2, (4,)), watching=BUFFER_STATE))
    make = partial(create, "omdl-lr-like", rank=5, warm_up=30, margin=1.0, scaler="zscore")
    watching = SCALERS_STATE | BUFFER_STATE
    found.append(Case("omdl-lr-like:zscore", make, multi_blocks(3, (4, 3), scale=30.0), watching=watching))
    return found
