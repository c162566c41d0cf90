"""Mixtures of triplets and pairs, in both types, with features of very different scales."""

from __future__ import annotations

from functools import partial

from kinstream.learners.mixture.learner import LEARNED, NARROW, UNLEARNED
from kinstream.testing.blocks import DRIFT_STATE, SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.cases.softmax import FOLLOWS
from tests.learners.published_unit import create

NEIGHBOURS = (
    *("losses", "judged", "again_losses", "again_judged", "tally", "seen", "window", "hashes", "classes"),
    *("fresh", "pending", "pending_hashes", "pending_classes", "wanted", "wanted_hashes", "against", "apart"),
)
#: What follows the rows, whether or not a member learns from them.
WATCHING = (
    SCALER_STATE
    | DRIFT_STATE
    | {"lists", "spreads", "scaler.since"}
    | {f"first.{name}" for name in ("vectors", "rows", "signs", "ends")}
    | {f"served.{part}" for part in ("plain", "bounded", "cosine", "zscore-cosine")}
    | {f"neighbours.{name}" for name in NEIGHBOURS}
    | {f"before.{name}" for name in (*LEARNED, *NARROW)}
    | {f"member.{name}.{entry}" for name in (*LEARNED, "softmax-minmax") for entry in (*FOLLOWS, "accepted")}
    | {"member.lda.accepted"}
    | {f"member.{name}.{entry}" for name in UNLEARNED for entry in ("accepted", *TARGETS_STATE)}
)


def cases() -> list[Case]:
    found = []
    for dtype in ("float32", "float64"):
        make = partial(create, "mixture", dtype=dtype, warm_up=20)
        blocks = triplet_blocks(2, 5, messages=8, m=60)
        found.append(Case(f"mixture:{dtype}", make, blocks, 0.0, WATCHING, elsewhere=dtype == "float32"))
    make = partial(create, "mixture", warm_up=20)
    blocks = triplet_blocks(3, 4, messages=8, m=60, scale=30.0)
    found.append(Case("mixture:scaled", make, blocks, 0.0, WATCHING))
    found.append(Case("mixture:one", make, triplet_blocks(3, 1, messages=8, m=60), 0.0, WATCHING))
    both = [*triplet_blocks(3, 5, m=60), *pair_blocks(3, 5, m=60)]
    found.append(Case("mixture:both", make, both, 0.0, WATCHING))
    return found
