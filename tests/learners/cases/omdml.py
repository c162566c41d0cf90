"""OMDML with one, two and three modalities."""

from __future__ import annotations

from functools import partial

from kinstream.testing.learners import Case
from tests.learners.multi import SCALERS_STATE, multi_blocks
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        make = partial(create, "omdml", margin=0.1, dtype=dtype)
        blocks = multi_blocks(1, (3, 7, 2))
        found.append(Case(f"omdml:{dtype}", make, blocks, tolerance, elsewhere=dtype == "float64"))
    found.append(Case("omdml:one", partial(create, "omdml"), multi_blocks(2, (4,))))
    make = partial(create, "omdml", margin=0.1, psd_every=7)
    found.append(Case("omdml:psd-every", make, multi_blocks(3, (5, 1)), elsewhere=True))
    for scaler in ("minmax", "unit"):
        make = partial(create, "omdml", margin=0.1, aggressiveness=1.0, scaler=scaler, warm_up=50)
        blocks = multi_blocks(4, (4, 3), scale=30.0)
        found.append(Case(f"omdml:{scaler}", make, blocks, watching=SCALERS_STATE))
    return found
