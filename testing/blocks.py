"""Constraint blocks to test learners with: triplets and pairs of two noisy classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import DEFAULT_MODALITY, PREFIX_RULE, ConstraintBlock, Kind, Table

#: Entries of a learner's state that belong to its scaler.
SCALER_STATE = frozenset(
    f"scaler.{n}" for n in ("rows", "constraints", "ready", "digests", "vectors", "first", "second")
) | frozenset(
    f"scaler.{n}"
    for n in ("renewals", "settling", "squared", "counts", "sums", "seen", "kept", "scale", "length")
)
#: Entries by which a learner of members notices that features have drifted.
DRIFT_STATE = frozenset(
    f"drift.{n}"
    for n in ("renewals", "windows", "suspected", "counts", "sums", "seen", "kept", "scale", "moments")
)
#: Entries that belong to its targets.
TARGETS_STATE = frozenset(f"targets.{n}" for n in ("similar", "dissimilar", "constraints", "vectors"))


def block(
    X: NDArray[Any],
    index: NDArray[np.integer[Any]],
    kind: Kind = Kind.TRIPLET,
    rule: str | None = None,
    signs: NDArray[Any] | None = None,
    targets: NDArray[Any] | None = None,
) -> ConstraintBlock:
    """A block of one rule over the table X (n, d); pairs are similar if no signs are given."""
    m = len(index)
    pair = kind is Kind.PAIR
    return ConstraintBlock(
        space="s",
        kind=kind,
        tables=(Table(DEFAULT_MODALITY, np.ascontiguousarray(X, np.float32)),),
        index=np.ascontiguousarray(index, np.int32),
        signs=np.full(m, 1 if pair else 0, np.int8) if signs is None else np.asarray(signs, np.int8),
        rules=(rule or (PREFIX_RULE if pair else "test"),),
        rule=np.zeros(m, np.uint8),
        derived=np.zeros(m, np.bool_),
        weights=np.ones(m, np.float32),
        time_ms=1_700_000_000_000,
        targets=None if targets is None else np.asarray(targets, np.float32),
    )


def triplet_blocks(
    seed: int, d: int, messages: int = 4, m: int = 40, scale: float = 1.0
) -> list[ConstraintBlock]:
    """Triplets of two noisy classes that share rows; one triplet a block is degenerate."""
    draw = np.random.default_rng((seed, d))
    centres = 0.3 * draw.normal(size=(2, d))
    blocks = []
    for _ in range(messages):
        label = np.concatenate([[0, 0, 1, 1], draw.integers(0, 2, m)])
        X = scale * (centres[label] + draw.normal(size=(len(label), d)))
        anchor = draw.integers(0, len(label), m)
        positive = np.array([draw.choice(np.flatnonzero(label == label[a])) for a in anchor])
        negative = np.array([draw.choice(np.flatnonzero(label != label[a])) for a in anchor])
        negative[m // 2] = positive[m // 2]
        blocks.append(block(X, np.column_stack([anchor, positive, negative])))
    return blocks


def pair_blocks(
    seed: int, d: int, messages: int = 4, m: int = 40, scale: float = 1.0, targets: bool = False
) -> list[ConstraintBlock]:
    """Similar and dissimilar pairs of two noisy classes that share rows; two pairs per block have no difference."""
    draw = np.random.default_rng((seed, d, 2))
    centres = 0.3 * draw.normal(size=(2, d))
    blocks = []
    for _ in range(messages):
        label = draw.integers(0, 2, m + 4)
        X = scale * (centres[label] + draw.normal(size=(len(label), d)))
        index = draw.integers(0, len(label), (m, 2))
        signs = np.where(label[index[:, 0]] == label[index[:, 1]], 1, -1)
        X[index[m // 2, 0]] = X[index[m // 2, 1]]
        index[m // 3] = index[m // 3, 0]
        signs[m // 3] = -1
        wanted = np.where(signs > 0, 0.5, 4.0) * d * scale**2
        blocks.append(
            block(X, index, Kind.PAIR, "test", signs, wanted * draw.uniform(0.8, 1.2, m) if targets else None)
        )
    return blocks


def prefix_blocks(
    seed: int, d: int, messages: int = 2, m: int = 10, scale: float = 1.0
) -> list[ConstraintBlock]:
    """Pairs of successive samples of one class, one of them of equal samples."""
    draw = np.random.default_rng((seed, d, 1))
    blocks = []
    for _ in range(messages):
        X = scale * draw.normal(size=(m + 1, d))
        X[m // 2] = X[m // 2 + 1]
        blocks.append(block(X, np.column_stack([np.arange(1, m + 1), np.arange(m)]), Kind.PAIR))
    return blocks


def rows_of(whole: ConstraintBlock, rows: slice) -> ConstraintBlock:
    """Some constraints of a block, as a block."""
    return whole.take(rows)


def singles(whole: ConstraintBlock) -> list[ConstraintBlock]:
    """N blocks of one constraint."""
    return [rows_of(whole, slice(t, t + 1)) for t in range(len(whole))]
