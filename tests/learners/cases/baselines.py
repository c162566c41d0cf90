"""Baselines: every kind refits several times within its messages."""

from __future__ import annotations

from functools import partial
from typing import Any

from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create

#: What follows the input between two fits.
WATCHING = TARGETS_STATE | {"since", "vectors", "signs"}
SMALL: dict[str, Any] = {"warm_up": 20, "buffer": 60, "refit_every": 40}
#: Short fits: the checks make hundreds.
SHORT: dict[str, dict[str, Any]] = {"lmnn": {"max_iter": 6}, "itml": {"max_iter": 6}}


def cases() -> list[Case]:
    found = [
        _case("euclidean", "triplets", triplet_blocks(1, 5), {"warm_up": 20}),
        _case("euclidean", "pairs", pair_blocks(1, 5), {"warm_up": 20}, elsewhere=True),
        _case("euclidean", "float32", pair_blocks(1, 3), {"dtype": "float32", "warm_up": 20}),
    ]
    for kind in ("mahalanobis", "rca", "lmnn", "itml"):
        small = SMALL | SHORT.get(kind, {})
        both = triplet_blocks(4, 3)[:2] + pair_blocks(4, 3)[:2]
        found += [
            _case(kind, "triplets", triplet_blocks(2, 7), small, elsewhere=True),
            _case(kind, "both", both, small | {"dtype": "float32"}),
            _case(kind, "pairs-once", pair_blocks(6, 3), small | {"scaler": "zscore", "refit_every": 0}),
        ]
    return found


def _case(
    kind: str, name: str, blocks: list[ConstraintBlock], arguments: dict[str, Any], elsewhere: bool = False
) -> Case:
    make = partial(create, kind, **arguments)
    return Case(f"{kind}:{name}", make, blocks, watching=WATCHING | SCALER_STATE, elsewhere=elsewhere)
