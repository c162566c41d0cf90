"""Events to feed the closure with. The vector of an item tells its number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kinstream.processors.base.builder import Made, Origin
from kinstream.processors.closure.closure import Closure
from kinstream.streams.records.values import (
    ConstraintBlock,
    ItemBlock,
    Kind,
    LoadPosition,
    RelationBlock,
    SampleBlock,
    Table,
)
from tests.processors.bounds import closure

SPACE = "toys"
#: left, right, similar, source.
Said = tuple[int, int, bool, str | None]


def vectors(numbers: Sequence[int], dimension: int = 3) -> tuple[Table, ...]:
    made = np.zeros((len(numbers), dimension), np.float32)
    made[:, 0] = numbers
    return (Table("x", made),)


def items(numbers: Sequence[int], gone: Sequence[int] = (), dimension: int = 3) -> ItemBlock:
    names = tuple(f"item {n}" for n in numbers)
    return ItemBlock(SPACE, names, vectors(numbers, dimension), 5, tuple(f"item {n}" for n in gone))


def relations(said: Iterable[Said], load: LoadPosition | None = None, time_ms: int = 100) -> RelationBlock:
    rows = list(said)
    ids = sorted({item for left, right, *_ in rows for item in (left, right)})
    place = {item: n for n, item in enumerate(ids)}
    sources = sorted({source for *_, source in rows if source is not None})
    return RelationBlock(
        SPACE,
        tuple(f"item {n}" for n in ids),
        np.array([place[row[0]] for row in rows], np.int32),
        np.array([place[row[1]] for row in rows], np.int32),
        np.array([row[2] for row in rows], np.bool_),
        np.arange(time_ms, time_ms + len(rows), dtype=np.int64),
        tuple(sources),
        np.array([-1 if row[3] is None else sources.index(row[3]) for row in rows], np.int32),
        load,
    )


def samples(numbers: Sequence[int], labels: Sequence[int] | Sequence[str]) -> SampleBlock:
    text = isinstance(labels[0], str)
    kept = tuple(map(str, labels)) if text else np.array(labels, np.int64)
    return SampleBlock(SPACE, vectors(numbers), kept, 7, tuple(f"item {n}" for n in numbers))


def builder_of(count: int, **settings: object) -> Closure:
    """A closure that knows the items below `count`."""
    builder = closure(**settings)
    builder.process(items(range(count)), Origin(0))
    return builder


def unlimited(count: int, **settings: object) -> Closure:
    return builder_of(count, max_new_pairs=0, max_new_triplets=0, max_component=0, **settings)


def tell(builder: Closure, *said: Said, offset: int = 1) -> Made:
    return builder.process(relations(said), Origin(offset))


def pairs_of(blocks: Iterable[ConstraintBlock]) -> list[tuple[frozenset[int], int, str, bool]]:
    """Pairs of item numbers, with sign, rule and whether they are derived."""
    found = []
    for block in blocks:
        if block.kind is Kind.PAIR:
            numbers = block.tables[0].vectors[:, 0].astype(int)
            for row, (left, right) in enumerate(block.index.tolist()):
                pair = frozenset((int(numbers[left]), int(numbers[right])))
                rule = block.rules[block.rule[row]]
                found.append((pair, int(block.signs[row]), rule, bool(block.derived[row])))
    return found


def triplets_of(blocks: Iterable[ConstraintBlock]) -> list[tuple[int, int, int]]:
    found = []
    for block in blocks:
        if block.kind is Kind.TRIPLET:
            numbers = block.tables[0].vectors[:, 0].astype(int)
            found += [tuple(int(n) for n in numbers[row]) for row in block.index]
    return found  # type: ignore[return-value]
