"""Constraint blocks of several modalities for tests of learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import ConstraintBlock, Table
from kinstream.testing.blocks import block

#: Names of three modalities, in no particular order.
NAMES = ("shape", "colour", "text")
#: Entries of a learner's state that belong to the scalers of these modalities.
SCALERS_STATE = frozenset(
    f"scaler.{n}.{name}"
    for n in (
        *("rows", "constraints", "ready", "digests", "vectors", "first", "second"),
        *("renewals", "settling", "squared", "counts", "sums", "seen", "kept", "scale", "length"),
    )
    for name in NAMES
)
#: Entries that belong to the buffer of the warm-up.
BUFFER_STATE = frozenset({"buffer.rows", "buffer.constraints"})


def multi_blocks(
    seed: int, sizes: Sequence[int], messages: int = 4, m: int = 40, scale: float = 1.0
) -> list[ConstraintBlock]:
    """Triplets of two noisy classes that share rows, told apart less by each further modality; one triplet a block
    is degenerate in all modalities, and one in the first only."""
    draw = np.random.default_rng((seed, *sizes))
    centres = [0.6 / (1 + place) * draw.normal(size=(2, d)) for place, d in enumerate(sizes)]
    blocks = []
    for _ in range(messages):
        label = np.concatenate([[0, 0, 1, 1], draw.integers(0, 2, m)])
        parts = [scale * (c[label] + 0.5 * draw.normal(size=(len(label), c.shape[1]))) for c in centres]
        anchor = draw.integers(0, len(label), m)
        positive = np.array([draw.choice(np.flatnonzero(label == label[a])) for a in anchor])
        negative = np.array([draw.choice(np.flatnonzero(label != label[a])) for a in anchor])
        negative[m // 2] = positive[m // 2]
        parts[0][negative[m // 3]] = parts[0][positive[m // 3]]
        blocks.append(tables(parts, np.column_stack([anchor, positive, negative])))
    return blocks


def tables(parts: Sequence[NDArray[Any]], index: NDArray[Any]) -> ConstraintBlock:
    """A block of triplets over one table (n, d) for each modality."""
    found = tuple(
        Table(name, np.ascontiguousarray(part, np.float32)) for name, part in zip(NAMES, parts, strict=False)
    )
    return replace(block(parts[0], index), tables=found)


def features(message: ConstraintBlock) -> dict[str, NDArray[np.float32]]:
    """The vectors of a block by modality."""
    return {table.name: table.vectors for table in message.tables}
