"""Portfolios of the usual members, of pairs, of triplets only, and of one member."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinstream.testing.blocks import DRIFT_STATE, SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.cases.oahu import LIFT_STATE, SMALL
from tests.learners.published import create

UNLEARNED = ("euclidean", "cosine")
#: What follows the members' mistakes, whether or not they learn.
STANDING = frozenset({"losses", "refused", "sizes", "seen", "views.bits", "views.tally"}) | {
    f"hubs.{name}" for name in ("prior", "sample", "scored")
}


def watching(*names: str) -> frozenset[str]:
    """Entries that follow the input: the portfolio's own, and those of members."""
    own = {"accepted", *TARGETS_STATE, *LIFT_STATE, "steps"}
    members = {f"member.{name}.{entry}" for name in (*names, *UNLEARNED) for entry in own}
    return STANDING | SCALER_STATE | DRIFT_STATE | members | {"scaler.sampled", "scaler.sample"}


def cases() -> list[Case]:
    found = []
    usual = ("oahu", "opml", "oasis", "lego")
    few: dict[str, Any] = {
        "oahu": {"anchors": [], **SMALL},
        "opml": {"gamma": 0.03, "scaler": "unit"},
        "lego": {"eta": 0.01},
    }
    # Rounding may make another vector the tenth neighbour of one of 384, which is a thousandth of a prior weight.
    for dtype, tolerance in (("float64", 1e-8), ("float32", 5e-3)):
        make = partial(create, "portfolio", members=few, dtype=dtype, warm_up=20, window=50)
        name = f"portfolio:{dtype}"
        found.append(Case(name, make, triplet_blocks(1, 7), tolerance, watching(*few), dtype == "float32"))
    make = partial(create, "portfolio", dtype="float64", warm_up=20, scaler="zscore")
    blocks = triplet_blocks(2, 4, messages=6, m=60, scale=30.0)
    found.append(Case("portfolio:zscore", make, blocks, 1e-8, watching(*usual)))
    make = partial(create, "portfolio", dtype="float64", warm_up=20)
    both = [*triplet_blocks(3, 5, m=60), *pair_blocks(3, 5, m=60)]
    found.append(Case("portfolio:both", make, both, 1e-8, watching(*usual)))
    pairs: dict[str, Any] = {"lego": {"eta": 0.01}, "rdml": {"learning_rate": 0.01, "start": "identity"}}
    make = partial(create, "portfolio", members=pairs, dtype="float64", warm_up=20, floor=0.0)
    null = frozenset({"member.rdml.null"})
    found.append(Case("portfolio:pairs", make, pair_blocks(4, 3, m=60), 1e-8, watching(*pairs) | null, True))
    one: dict[str, Any] = {"it": {"kind": "soml-tg", "scaler": "unit"}}
    make = partial(create, "portfolio", members=one, dtype="float64", warm_up=20, scaler="minmax")
    blocks = triplet_blocks(5, 6, scale=30.0)
    counts = frozenset({"member.it.waiting", "member.it.rounds"})
    found.append(Case("portfolio:one", make, blocks, 1e-8, watching("it") | counts))
    return found
