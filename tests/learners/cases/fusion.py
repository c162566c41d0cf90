"""Learners of one modality over several, in all three ways."""

from __future__ import annotations

from functools import partial

from kinstream.testing.blocks import SCALER_STATE
from kinstream.testing.learners import Case
from tests.learners.multi import multi_blocks
from tests.learners.published_unit import create

#: Entries of the metrics that follow the input, and how often each modality was wrong.
WATCHING = frozenset(f"{i}.{name}" for i in range(3) for name in ("accepted", *SCALER_STATE)) | {
    "wrong",
    "seen",
}


def cases() -> list[Case]:
    found = []
    for how in ("concatenate", "uniform", "best"):
        settings = {"gamma": 1e-2}
        make = partial(create, "fusion", base="opml", how=how, settings=settings)
        blocks = multi_blocks(1, (3, 7, 2))
        found.append(Case(f"fusion:{how}", make, blocks, watching=WATCHING, elsewhere=how == "best"))
        scaled = partial(
            create, "fusion", base="opml", how=how, settings=settings | {"warm_up": 50}, scaler="zscore"
        )
        blocks = multi_blocks(2, (4, 3), scale=30.0)
        found.append(Case(f"fusion:{how}-zscore", scaled, blocks, watching=WATCHING))
    make = partial(create, "fusion", how="uniform", settings={"dtype": "float32"})
    found.append(Case("fusion:one", make, multi_blocks(3, (4,)), 2e-4, watching=WATCHING))
    return found
