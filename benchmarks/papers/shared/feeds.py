"""Constraints as in the papers' experiments, drawn at random among all training rows.

The builders of `processors` process each row once and pair it with earlier ones, as a stream requires. The experiments
draw a fixed number of constraints among all rows at once; these feeds do that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.experiment.data import Labels, Tables
from kinstream.evaluation.experiment.feeds import SPACE
from kinstream.learners.baselines.sampling import squared_percentiles
from kinstream.processors.base.builder import Origin
from kinstream.processors.closure.closure import Closure
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock, ItemBlock, Kind, RelationBlock, Table

Index = NDArray[np.int64]
Signs = NDArray[np.int8]

#: Constraints of a block.
BLOCK: Final = 250
#: Separates the random numbers of feeds with the same seed.
_PAIRS, _TRIPLETS, _CLOSURE = 1, 2, 3


@dataclass(frozen=True)
class DrawnPairs:
    """Pairs of two different rows, each with the same probability; similar if their classes are equal.

    Parameters
    ----------
    limit : how many.
    targets : whether they have target distances: the 5th percentile of the squared distances of all rows for similar
        ones, the 95th for the others (`kinstream.learners.baselines.sampling.squared_percentiles`).
    """

    limit: int
    targets: bool = False
    name: ClassVar[str] = "drawn-pairs"
    emits: ClassVar[frozenset[Kind]] = frozenset({Kind.PAIR})

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        n = len(labels)
        if n < 2:
            raise SettingsError("pairs need two rows")
        draw = np.random.default_rng([seed, _PAIRS])
        left = draw.integers(0, n, self.limit)
        index = np.column_stack([left, (left + draw.integers(1, n, self.limit)) % n])
        signs = np.where(labels[index[:, 0]] == labels[index[:, 1]], 1, -1).astype(np.int8)
        yield from blocks(tables, index, self.name, signs, _targets(tables, seed) if self.targets else None)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class DrawnTriplets:
    """Triplets: a row, another one of its class, and one of another class, each with the same probability.

    Parameters
    ----------
    limit : how many.
    """

    limit: int
    name: ClassVar[str] = "drawn-triplets"
    emits: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        draw = np.random.default_rng([seed, _TRIPLETS])
        yield from blocks(tables, triplets(labels, self.limit, draw), self.name)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class SeedsAndClosure:
    """Random seeds, then constraints that follow from all of them, drawn at random (the OAHU paper's).

    Parameters
    ----------
    emit : "triplets", whose seeds are triplets; or "pairs", half of whose seeds are similar.
    seeds, derived : how many of each; fewer are derived if no more follow.
    pool : the rows among which seeds are drawn: the first ones of the stream.
    """

    emit: str
    seeds: int = 5_000
    derived: int = 5_000
    pool: int = 3_000

    @property
    def name(self) -> str:
        return f"seeds-and-closure, {self.emit}"

    @property
    def emits(self) -> frozenset[Kind]:
        return frozenset({Kind.TRIPLET if self.emit == "triplets" else Kind.PAIR})

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        draw = np.random.default_rng([seed, _CLOSURE])
        first = labels[: self.pool]
        if self.emit == "triplets":
            index = triplets(first, self.seeds, draw)
            left, right = np.tile(index[:, 0], 2), np.concatenate([index[:, 1], index[:, 2]])
            signs = np.repeat(np.array([1, -1], np.int8), self.seeds)
            yield from blocks(tables, index, "seed")
        else:
            index, signs = balanced_pairs(first, self.seeds, draw)
            left, right = index.T
            yield from blocks(tables, index, "seed", signs)
        yield from chosen(closed(tables, left, right, signs, self.emit), self.derived, draw)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


def triplets(labels: Labels, m: int, draw: np.random.Generator) -> Index:
    """Random triplets (m, 3) of row numbers.

    Raises
    ------
    SettingsError : there is one class only, or none has two rows.
    """
    order = np.argsort(labels, kind="stable")
    _, own, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    starts = np.cumsum(sizes) - sizes
    place = np.empty(len(labels), np.int64)
    place[order] = np.arange(len(labels))
    usable = np.flatnonzero(sizes[own] > 1)
    if len(sizes) < 2 or not len(usable):
        raise SettingsError("triplets need two classes, of which one has two rows")
    anchor = usable[draw.integers(0, len(usable), m)]
    start, size = starts[own[anchor]], sizes[own[anchor]]
    near = start + draw.integers(0, size - 1)
    near += near >= place[anchor]
    far = draw.integers(0, len(labels) - size)
    far += np.where(far >= start, size, 0)
    return np.column_stack([anchor, order[near], order[far]]).astype(np.int64)


def balanced_pairs(labels: Labels, m: int, draw: np.random.Generator) -> tuple[Index, Signs]:
    """Random pairs (m, 2), similar and dissimilar ones in turn, and their signs."""
    index = triplets(labels, m, draw)
    similar = np.arange(m) % 2 == 0
    pairs = np.column_stack([index[:, 0], np.where(similar, index[:, 1], index[:, 2])])
    return pairs, np.where(similar, 1, -1).astype(np.int8)


def closed(tables: Tables, left: Index, right: Index, signs: Signs, emit: str) -> list[ConstraintBlock]:
    """The constraints derived from relations between rows, by the product's builder."""
    builder = Closure(emit=emit, max_new_pairs=50, max_new_triplets=50)
    rows = np.unique(np.concatenate([left, right]))
    ids = tuple(str(row) for row in rows)
    builder.process(ItemBlock(SPACE, ids, _columns(tables, rows), 0), Origin(0))
    relations = RelationBlock(
        SPACE,
        ids,
        np.searchsorted(rows, left).astype(np.int32),
        np.searchsorted(rows, right).astype(np.int32),
        signs > 0,
        np.zeros(len(left), np.int64),
        (),
        np.full(len(left), -1, np.int32),
    )
    return builder.process(relations, Origin(1)).blocks


def chosen(found: Sequence[ConstraintBlock], m: int, draw: np.random.Generator) -> Iterator[ConstraintBlock]:
    """m random derived constraints, in their order; all of them if there are fewer."""
    usable = [np.flatnonzero(block.derived) for block in found]
    n = sum(len(rows) for rows in usable)
    kept = np.zeros(n, np.bool_)
    kept[draw.choice(n, min(m, n), replace=False)] = True
    ends = np.cumsum([len(rows) for rows in usable])[:-1]
    for block, rows, keep in zip(found, usable, np.split(kept, ends), strict=True):
        if keep.any():
            yield block.take(rows[keep])


def blocks(
    tables: Tables,
    index: Index,
    rule: str,
    signs: Signs | None = None,
    targets: tuple[float, float] | None = None,
) -> Iterator[ConstraintBlock]:
    """Constraints (m, 2) or (m, 3) of row numbers, cut into blocks over the rows that they name.

    Parameters
    ----------
    signs : (m,) of pairs.
    targets : squared distances of similar and of dissimilar pairs.
    """
    for start in range(0, len(index), BLOCK):
        part = slice(start, start + BLOCK)
        rows, at = np.unique(index[part], return_inverse=True)
        m = len(index[part])
        own = np.zeros(m, np.int8) if signs is None else signs[part]
        yield ConstraintBlock(
            space=SPACE,
            kind=Kind.PAIR if index.shape[1] == 2 else Kind.TRIPLET,
            tables=_columns(tables, rows),
            index=at.reshape(m, -1).astype(np.int32),
            signs=own,
            rules=(rule,),
            rule=np.zeros(m, np.uint8),
            derived=np.zeros(m, np.bool_),
            weights=np.ones(m, np.float32),
            time_ms=0,
            targets=None if targets is None else np.where(own > 0, *targets).astype(np.float32),
        )


def _columns(tables: Tables, rows: Index) -> tuple[Table, ...]:
    return tuple(Table(name, np.ascontiguousarray(table[rows])) for name, table in tables.items())


def _targets(tables: Tables, seed: int) -> tuple[float, float]:
    if len(tables) != 1:
        raise SettingsError(
            "target distances belong to one table: use a view of one modality, or side-by-side"
        )
    (table,) = tables.values()
    found = squared_percentiles(table.astype(np.float64), seed)
    if found is None:
        raise SettingsError("there are no target distances: all rows are equal")
    return found
