"""OASIS in all its ways, on dense and on sparse vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing.blocks import SCALER_STATE, triplet_blocks
from kinstream.testing.learners import Case
from tests.learners.published_unit import create


def thinned(blocks: Sequence[ConstraintBlock], density: float) -> list[ConstraintBlock]:
    """The blocks with that share of their vectors' entries left, and zeros elsewhere."""
    draw = np.random.default_rng(len(blocks))
    found = []
    for message in blocks:
        table = message.tables[0]
        vectors = table.vectors * (draw.random(table.vectors.shape) < density).astype(np.float32)
        found.append(replace(message, tables=(replace(table, vectors=vectors),)))
    return found


def cases() -> list[Case]:
    found = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        for kernel in ("sequential", "blocked"):
            make = partial(create, "oasis", dtype=dtype, kernel=kernel)
            elsewhere = (dtype, kernel) == ("float32", "blocked")
            blocks = triplet_blocks(1, 7)
            found.append(Case(f"oasis:{dtype}-{kernel}", make, blocks, tolerance, elsewhere=elsewhere))
    found.append(Case("oasis:sparse", partial(create, "oasis"), thinned(triplet_blocks(2, 64), 0.06)))
    for scaler in ("zscore", "minmax", "unit"):
        make = partial(create, "oasis", aggressiveness=0.01, scaler=scaler, warm_up=50)
        blocks = triplet_blocks(3, 4, scale=30.0)
        found.append(Case(f"oasis:{scaler}", make, blocks, watching=SCALER_STATE))
    return found
