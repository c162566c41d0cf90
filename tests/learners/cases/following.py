"""Learners in the unit that is their default, behind every scaler that it has."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinstream.learners.registry import create
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case

#: What follows the input, whether or not a constraint is learned.
WATCHING = (
    SCALER_STATE | TARGETS_STATE | {"null", "steps", "rows", "since", "waiting", "rounds", "pairs", "mu"}
)
#: Kinds, with settings that none of them can do without here.
KINDS: dict[str, dict[str, Any]] = {
    "copml": {},
    "itml-online": {},
    "kernel-lego": {"kernel": "linear"},
    "lego": {},
    "mdml": {},
    "oasis": {},
    "opml": {},
    "pola": {},
    "rdml": {},
    "soml-da": {},
    "soml-tg": {},
    "sors": {},
}


def cases() -> list[Case]:
    found = []
    for kind, settings in KINDS.items():
        make = partial(create, kind, warm_up=40, scaler="zscore", **settings)
        blocks = (pair_blocks if make().form is Kind.PAIR else triplet_blocks)(6, 4, scale=30.0)
        found.append(Case(f"{kind}:length", make, blocks, 1e-8, WATCHING, elsewhere=kind == "opml"))
    for scaler in ("none", "minmax", "unit"):
        for kind in ("opml", "oasis"):
            make = partial(create, kind, warm_up=40, scaler=scaler)
            found.append(
                Case(f"{kind}:length-{scaler}", make, triplet_blocks(7, 4, scale=30.0), 1e-8, WATCHING)
            )
    return found
