"""LEGO under each kernel."""

from __future__ import annotations

from functools import partial

import numpy as np

from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import SCALER_STATE, TARGETS_STATE, block, pair_blocks, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def catalogue_blocks(seed: int, d: int, messages: int = 4, m: int = 40) -> list[ConstraintBlock]:
    """Pairs of a catalogue of 24 vectors, all of which occur in the first block, and of others in the last."""
    draw = np.random.default_rng((seed, d))
    X = draw.normal(size=(24, d))
    blocks = []
    for n in range(messages):
        index = np.array([draw.choice(24, 2, replace=False) for _ in range(m)])
        index[:24] = np.column_stack([np.arange(24), (np.arange(24) + 1) % 24])
        index[m // 2 + 10] = 3
        table = draw.normal(size=(24, d)) if n == messages - 1 else X
        blocks.append(block(table, index, Kind.PAIR, "test", draw.choice([-1, 1], m)))
    return blocks


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        fixed = {"dtype": dtype, "loss": "squared", "y_similar": 0.2, "y_dissimilar": 1.5}
        make = partial(create, "kernel-lego", eta=0.1, budget=30, **fixed)
        elsewhere = dtype == "float64"
        found.append(
            Case(f"kernel-lego:rbf-{dtype}", make, catalogue_blocks(1, 7), tolerance, elsewhere=elsewhere)
        )
    make = partial(create, "kernel-lego", kernel="polynomial", loss="squared", budget=24, warm_up=2)
    found.append(Case("kernel-lego:polynomial", make, catalogue_blocks(2, 3), watching=TARGETS_STATE))
    make = partial(create, "kernel-lego", eta=1e-2, kernel="linear", budget=50, targets="block")
    found.append(Case("kernel-lego:linear", make, pair_blocks(3, 6, targets=True), watching=TARGETS_STATE))
    make = partial(
        create, "kernel-lego", eta=1e-2, kernel="linear", budget=50, y_similar=2.0, y_dissimilar=30.0
    )
    found.append(Case("kernel-lego:triplets", make, triplet_blocks(4, 5)))
    make = partial(create, "kernel-lego", eta=1e-2, kernel="linear", budget=40, scaler="zscore", warm_up=30)
    watching = SCALER_STATE | TARGETS_STATE
    found.append(
        Case("kernel-lego:zscore", make, pair_blocks(5, 4, scale=30.0), watching=watching, elsewhere=True)
    )
    return found
