"""LOMDML with one, two and three modalities."""

from __future__ import annotations

from functools import partial

from kinstream.testing.learners import Case
from tests.learners.multi import BUFFER_STATE, SCALERS_STATE, multi_blocks
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        make = partial(create, "lomdml", rank=3, margin=0.1, dtype=dtype)
        blocks = multi_blocks(1, (3, 7, 2))
        found.append(Case(f"lomdml:{dtype}", make, blocks, tolerance, elsewhere=dtype == "float64"))
    for init in ("orthogonal", "pca", "identity"):
        make = partial(create, "lomdml", rank=2, eta=0.1, margin=0.1, init=init, seed=5, warm_up=30)
        found.append(
            Case(
                f"lomdml:{init}",
                make,
                multi_blocks(2, (4, 3)),
                watching=BUFFER_STATE,
                elsewhere=init == "pca",
            )
        )
    make = partial(create, "lomdml", guard="raw", own_hinge=False)
    found.append(Case("lomdml:raw", make, multi_blocks(3, (5,))))
    for scaler in ("minmax", "zscore"):
        make = partial(create, "lomdml", rank=2, eta=0.1, init="pca", margin=0.1, scaler=scaler, warm_up=50)
        blocks = multi_blocks(4, (4, 3), scale=30.0)
        found.append(Case(f"lomdml:{scaler}", make, blocks, watching=SCALERS_STATE | BUFFER_STATE))
    return found
