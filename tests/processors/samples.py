"""Sample blocks to feed builders with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kinstream.processors.base.builder import Builder, Origin
from kinstream.streams.records.values import ConstraintBlock, LoadPosition, SampleBlock, Table

#: Modalities and dimensions of a space.
Sizes = tuple[tuple[str, int], ...]
Pair = tuple[int, int, int]


def block_of(
    labels: Sequence[int] | Sequence[str],
    *,
    first: int = 0,
    sizes: Sizes = (("x", 3),),
    load: LoadPosition | None = None,
    space: str = "toys",
) -> SampleBlock:
    """A block whose vectors tell their sample's number: (number, modality, column, ...)."""
    n = len(labels)
    tables = []
    for place, (name, size) in enumerate(sizes):
        vectors = np.zeros((n, size), np.float32)
        vectors[:, 0] = np.arange(first, first + n)
        vectors[:, 1:] = place
        tables.append(Table(name, vectors))
    text = bool(labels) and isinstance(labels[0], str)
    kept = tuple(map(str, labels)) if text else np.array(labels, np.int64)
    return SampleBlock(space, tuple(tables), kept, time_ms=1000 + first, load=load)


def blocks_of(
    labels: Sequence[int] | Sequence[str],
    cuts: Sequence[int],
    *,
    sizes: Sizes = (("x", 3),),
    load_id: str | None = None,
) -> list[SampleBlock]:
    """The samples in blocks that end at `cuts`."""
    edges = sorted({0, len(labels), *(cut for cut in cuts if 0 < cut < len(labels))})
    return [
        block_of(
            labels[low:high],
            first=low,
            sizes=sizes,
            load=None if load_id is None else LoadPosition(load_id, number),
        )
        for number, (low, high) in enumerate(pairwise(edges))
    ]


def random_labels(
    seed: int, n: int, classes: int, *, text: bool = False, prefix: int = 0
) -> list[int] | list[str]:
    """Labels of n samples, the first `prefix` of one class."""
    draw = np.random.default_rng(seed)
    numbers = np.concatenate(
        [np.zeros(min(prefix, n), np.int64), draw.integers(0, classes, max(n - prefix, 0))]
    )
    return [f"class {k}" for k in numbers] if text else [int(k) for k in numbers]


def pairs_of(blocks: Sequence[ConstraintBlock]) -> list[Pair]:
    """(earlier, later, sign) by the numbers of the samples, which stand in the first column of their vectors."""
    found = []
    for block in blocks:
        samples = block.tables[0].vectors[:, 0].astype(int).tolist()
        for (one, other), sign in zip(block.index.tolist(), block.signs.tolist(), strict=True):
            found.append((samples[one], samples[other], sign))
    return found


def pairs_by(builder: Builder, blocks: Sequence[SampleBlock]) -> list[Pair]:
    """What a builder makes of the blocks."""
    return [
        pair
        for at, block in enumerate(blocks)
        for pair in pairs_of(builder.process(block, Origin(at)).blocks)
    ]
