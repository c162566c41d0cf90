"""Constraints as rows of references, packed into blocks that stay under a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.records import ConstraintBlock, Kind, Table

#: References to sample vectors, whatever the builder means by them.
References = NDArray[np.int64]

#: Upper bounds of what a block takes beside vectors and rows: fixed fields, and the fields of one table.
_FIXED_BYTES: Final = 128
_TABLE_BYTES: Final = 32
#: Longest UTF-8 form of a character.
_CHARACTER_BYTES: Final = 4


def row_bytes(kind: Kind) -> int:
    """Bytes of one constraint without its vectors: index, rule, derived, and the sign of a pair."""
    return 4 * 2 + 3 if kind is Kind.PAIR else 4 * 3 + 2


@dataclass(frozen=True, slots=True)
class Packing:
    """What the blocks of a builder have in common.

    Parameters
    ----------
    space : of all blocks.
    modalities : name and dimension of each table.
    max_bytes : no encoded block is larger.
    """

    space: str
    modalities: tuple[tuple[str, int], ...]
    max_bytes: int

    @property
    def vector_bytes(self) -> int:
        """Bytes of one sample, in all modalities."""
        return 4 * sum(dimension for _, dimension in self.modalities)

    def room(self, rule: str) -> int:
        """Bytes of a block that are left for vectors and rows."""
        names = len(self.space) + len(rule) + sum(len(name) for name, _ in self.modalities)
        return self.max_bytes - _FIXED_BYTES - _TABLE_BYTES * len(self.modalities) - _CHARACTER_BYTES * names

    def fits(self, kind: Kind, rule: str) -> bool:
        """Whether one constraint with distinct vectors fits into a block."""
        vectors = 2 if kind is Kind.PAIR else 3
        return vectors * self.vector_bytes + row_bytes(kind) <= self.room(rule)

    def blocks(
        self,
        kind: Kind,
        rule: str,
        references: References,
        vectors: Callable[[References], tuple[Table, ...]],
        time_ms: int,
    ) -> list[ConstraintBlock]:
        """The constraints as blocks, in order, each with a table of the distinct vectors that it needs.

        Parameters
        ----------
        references : (m, 2) or (m, 3); pairs are similar ones.
        vectors : the tables that hold the given distinct references, in that order.
        """
        packed = []
        for part in self._parts(kind, rule, references):
            distinct, index = np.unique(part, return_inverse=True)
            rows = len(part)
            packed.append(
                ConstraintBlock(
                    space=self.space,
                    kind=kind,
                    tables=vectors(distinct),
                    index=index.reshape(part.shape).astype(np.int32),
                    signs=np.full(rows, 1 if kind is Kind.PAIR else 0, np.int8),
                    rules=(rule,),
                    rule=np.zeros(rows, np.uint8),
                    derived=np.zeros(rows, np.bool_),
                    weights=np.ones(rows, np.float32),
                    time_ms=time_ms,
                )
            )
        return packed

    def _parts(self, kind: Kind, rule: str, references: References) -> Iterator[References]:
        """Cut the rows where the next one would make the block too large."""
        room = self.room(rule)
        whole = np.unique(references).size * self.vector_bytes + len(references) * row_bytes(kind)
        if whole <= room:
            if len(references):
                yield references
            return
        first, used = 0, 0
        held: set[int] = set()
        for number, row in enumerate(references.tolist()):
            more = len(set(row) - held) * self.vector_bytes + row_bytes(kind)
            if number > first and used + more > room:
                yield references[first:number]
                first, used, held = number, 0, set()
                more = len(set(row)) * self.vector_bytes + row_bytes(kind)
            held.update(row)
            used += more
        yield references[first:]
