"""OPML and COPML in all their ways."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kinstream.testing.blocks import SCALER_STATE, prefix_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        for kernel in ("sequential", "blocked"):
            make = partial(create, "opml", gamma=1e-2, dtype=dtype, kernel=kernel)
            case = Case(f"opml:{dtype}-{kernel}", make, triplet_blocks(1, 7), tolerance)
            found.append(replace(case, elsewhere=(dtype, kernel) == ("float32", "blocked")))
    for guard in ("raw", "normalise"):
        make = partial(create, "opml", gamma=1e-2, guard=guard)
        found.append(Case(f"opml:{guard}", make, triplet_blocks(2, 3), watching=frozenset({"radius"})))
    for scaler in ("zscore", "minmax", "unit"):
        make = partial(create, "opml", gamma=1e-1, scaler=scaler, warm_up=50)
        blocks = triplet_blocks(3, 4, scale=30.0)
        found.append(
            Case(f"opml:{scaler}", make, blocks, watching=SCALER_STATE, elsewhere=scaler == "zscore")
        )
    for kernel in ("sequential", "blocked"):
        make = partial(create, "copml", gamma1=1e-2, gamma2=1e-2, kernel=kernel, max_prefix_updates=30)
        blocks = prefix_blocks(4, 5) + triplet_blocks(4, 5)
        watching = frozenset({"prefix_updates"})
        found.append(Case(f"copml:{kernel}", make, blocks, watching=watching, elsewhere=kernel == "blocked"))
    found.append(Case("copml:pairs", partial(create, "copml"), prefix_blocks(5, 6, m=40), 1e-9, watching))
    return found
