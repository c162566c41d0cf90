"""SOML by truncated gradient and by dual averaging."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinstream.testing.blocks import SCALER_STATE, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

#: Counts of constraints that say which w is meant, and move where nothing is learned.
_COUNTS = frozenset({"waiting", "rounds"})


def cases() -> list[Case]:
    found = []
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("soml-tg", "truncated", {"sparsity": 0.05}),
        ("soml-tg", "always-from-zero", {"sparsity": 0.05, "always_shrink": True, "start": "zero"}),
        ("soml-da", "centred", {"sparsity": 0.05}),
        ("soml-da", "sparse", {"sparsity": 0.05, "centre": False}),
    ]
    for kind, name, settings in ways:
        for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
            make = partial(create, kind, dtype=dtype, **settings)
            elsewhere = dtype == "float64" and name in ("truncated", "centred")
            case = Case(f"{kind}:{name}-{dtype}", make, triplet_blocks(1, 7), tolerance, _COUNTS, elsewhere)
            found.append(case)
    for kind in ("soml-tg", "soml-da"):
        make = partial(create, kind, scaler="zscore", warm_up=50)
        blocks = triplet_blocks(3, 4, scale=30.0)
        found.append(Case(f"{kind}:zscore", make, blocks, watching=SCALER_STATE | _COUNTS))
    return found
