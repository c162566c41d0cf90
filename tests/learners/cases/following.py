"""Learners in the unit that is their default, behind every scaler that it has."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinstream.learners.registry import create
from kinstream.streams.records.values import Kind
from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.cases.softmax import FOLLOWS
from tests.learners.multi import BUFFER_STATE, SCALERS_STATE, multi_blocks

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
#: Of several modalities.
SEVERAL: dict[str, dict[str, Any]] = {
    "lomdml": {"margin": 0.1},
    "omdl-lr-like": {"margin": 0.1, "rank": 6},
    "omdml": {"margin": 0.1},
    "omks": {},
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
    for kind, own in SEVERAL.items():
        make = partial(create, kind, warm_up=40, scaler="zscore", **own)
        blocks = multi_blocks(6, (4, 3), scale=30.0)
        found.append(Case(f"{kind}:length", make, blocks, 1e-8, SCALERS_STATE | BUFFER_STATE))
    for kind in ("lda", "oahu", "softmax"):
        make = partial(create, kind, warm_up=40, scaler="zscore")
        blocks = triplet_blocks(7, 4, messages=8, scale=30.0)
        # Blocks cut OAHU's products.
        tolerance = 2e-3 if kind == "oahu" else 1e-8
        found.append(Case(f"{kind}:length", make, blocks, tolerance, WATCHING | FOLLOWS))
    return found
