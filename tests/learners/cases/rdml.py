"""RDML with both ways to stay positive semi-definite, and from both starts."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

#: Known of A, and no part of what was learned.
WATCHING = frozenset({"null"})


def cases() -> list[Case]:
    found = []
    for psd in ("paper", "exact"):
        for start in ("zero", "identity"):
            make = partial(create, "rdml", learning_rate=1e-2, psd=psd, start=start)
            name = f"rdml:{psd}-{start}"
            found.append(Case(name, make, pair_blocks(1, 3), 0.0, WATCHING, elsewhere=start == "identity"))
            # The pairs of a triplet with x+ = x- can undo each other to the bit: none of these does.
            found.append(Case(f"{name}-triplets", make, triplet_blocks(5, 3), 0.0, WATCHING))
        make = partial(create, "rdml", learning_rate=1e-3, psd=psd, dtype="float32")
        found.append(Case(f"rdml:{psd}-float32", make, pair_blocks(3, 7), 0.0, WATCHING))
        make = partial(create, "rdml", learning_rate=0.1, psd=psd, scaler="minmax", warm_up=30)
        watching = WATCHING | SCALER_STATE
        found.append(Case(f"rdml:{psd}-minmax", make, pair_blocks(4, 2, scale=30.0), 0.0, watching))
    return found
