"""Sources of constraints for the learners of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Protocol

import numpy as np

from kinstream.evaluation.experiment.data import Labels, Tables
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import Origin
from kinstream.streams.records.values import ConstraintBlock, Kind, SampleBlock, Table

#: Number of constraints to reach by repeated passes, if no number is given.
ENOUGH: Final = 5_000
#: Space of all evaluations, on which a builder's random choices depend.
SPACE = "evaluation"


class Feed(Protocol):
    """Makes constraints of labelled rows. It can be pickled, and equal feeds make equal constraints."""

    @property
    def name(self) -> str:
        """The name in results, such as "one-pass"."""

    @property
    def emits(self) -> frozenset[Kind]:
        """Kinds of the constraints that it makes."""

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        """Blocks of constraints, in order.

        Parameters
        ----------
        tables : (n, d_i) of each modality, labels : (n,), both in the order of the stream.
        seed : of all choices, if the settings name none.
        """

    def describe(self) -> dict[str, Any]:
        """Name and settings, for the plan."""


@dataclass(frozen=True)
class Built:
    """A constraint builder over the rows, in blocks as a producer cuts them.

    Parameters
    ----------
    kind, settings : of the builder; see `kinstream.processors.registry`.
    limit : largest number of constraints; None for all of `passes` passes.
    passes : largest number of passes over the rows, in one order. None for as many as `limit` constraints take, or
        `ENOUGH` without a limit; every pass after the first has a new order, by the seed.
    block_rows : rows per block.
    called : a name other than the kind.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    passes: int | None = 1
    block_rows: int = 256
    called: str | None = None

    @property
    def name(self) -> str:
        return self.called or self.kind

    @property
    def emits(self) -> frozenset[Kind]:
        return builders.create(self.kind, **self.settings).emits

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        left = self.limit
        for block in self._blocks(tables, labels, seed):
            taken = block if left is None or len(block) <= left else block.take(slice(left))
            yield taken
            if left is not None:
                left -= len(taken)
                if left <= 0:
                    return

    def _blocks(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        builder = builders.create(self.kind, **({"seed": seed} | dict(self.settings)))
        starts = range(0, len(labels), self.block_rows)
        offset = made_so_far = 0
        for turn in count() if self.passes is None else range(self.passes):
            order = None
            if self.passes is None and turn:
                order = np.random.default_rng([seed, turn, 2_236]).permutation(len(labels))
            before = made_so_far
            for start in starts:
                rows = slice(start, start + self.block_rows)
                part = rows if order is None else order[rows]
                columns = tuple(Table(name, table[part]) for name, table in tables.items())
                made = builder.process(
                    SampleBlock(SPACE, columns, labels[part], time_ms=0), Origin(offset=offset)
                )
                offset += 1
                for refused in made.refused:
                    raise refused
                made_so_far += sum(map(len, made.blocks))
                yield from made.blocks
            if self.passes is None and (made_so_far == before or made_so_far >= (self.limit or ENOUGH)):
                return

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "settings": dict(self.settings),
            "limit": self.limit,
            "passes": self.passes,
            "block_rows": self.block_rows,
        }


@dataclass(frozen=True)
class Follows:
    """The constraints that a builder left in the log; see `kinstream.evaluation.experiment.data.Recorded`."""

    builder: str
    emits: frozenset[Kind] = frozenset(Kind)

    @property
    def name(self) -> str:
        return self.builder

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        raise TypeError("recorded constraints are not made of rows")

    def describe(self) -> dict[str, Any]:
        return {"name": self.builder, "recorded": True}
