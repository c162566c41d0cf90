"""Sources of constraints for the learners of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kinstream.processors import registry as builders
from kinstream.processors.shared.base import Origin
from kinstream.replay.evaluation.experiment.data import Labels, Tables
from kinstream.streams.records.values import ConstraintBlock, Kind, SampleBlock, Table

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
    limit : constraints at most; None for all of `passes` passes.
    passes : over the rows at most.
    block_rows : rows per block.
    called : a name other than the kind.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    passes: int = 1
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
        every = (start for _ in range(self.passes) for start in starts)
        for number, start in enumerate(every):
            part = slice(start, start + self.block_rows)
            columns = tuple(Table(name, table[part]) for name, table in tables.items())
            made = builder.process(
                SampleBlock(SPACE, columns, labels[part], time_ms=0), Origin(offset=number)
            )
            for refused in made.refused:
                raise refused
            yield from made.blocks

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
    """The constraints that a builder left in the log; see `kinstream.replay.evaluation.experiment.data.Recorded`."""

    builder: str
    emits: frozenset[Kind] = frozenset(Kind)

    @property
    def name(self) -> str:
        return self.builder

    def __call__(self, tables: Tables, labels: Labels, seed: int) -> Iterator[ConstraintBlock]:
        raise TypeError("recorded constraints are not made of rows")

    def describe(self) -> dict[str, Any]:
        return {"name": self.builder, "recorded": True}
