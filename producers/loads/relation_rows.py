"""Relations as rows of a load, and as a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kinstream.producers.loads.blocks import STRING_BYTES
from kinstream.producers.loads.record_rows import UNKNOWN_TIME, RecordRows
from kinstream.streams.records.values import LoadPosition, Relation, RelationBlock

#: left, right, source: int32; time: int64; similar: a byte.
_ROW_BYTES: Final = 4 + 4 + 4 + 8 + 1


@dataclass(frozen=True, slots=True)
class RelationRows(RecordRows[Relation]):
    """Consecutive relations."""

    def record(self, space: str, load: LoadPosition, time_ms: int) -> RelationBlock:
        """Their block."""
        return relation_block(self.entries, space, time_ms, load)


def relation_bytes(relation: Relation) -> int:
    """Upper bound of the bytes that a relation takes in a block."""
    names = (relation.left, relation.right, relation.source or "")
    return _ROW_BYTES + sum(len(name.encode()) + STRING_BYTES for name in names)


def relation_block(
    relations: Sequence[Relation], space: str, time_ms: int, load: LoadPosition | None = None
) -> RelationBlock:
    """Relations in columns.

    Parameters
    ----------
    time_ms : for those whose time is `UNKNOWN_TIME`.
    """
    ids: dict[str, int] = {}
    sources: dict[str, int] = {}
    pairs = [(ids.setdefault(r.left, len(ids)), ids.setdefault(r.right, len(ids))) for r in relations]
    source = [-1 if r.source is None else sources.setdefault(r.source, len(sources)) for r in relations]
    sides = np.array(pairs, np.int32).reshape(-1, 2)
    times = np.array([r.time_ms for r in relations], np.int64)
    return RelationBlock(
        space=space,
        ids=tuple(ids),
        left=np.ascontiguousarray(sides[:, 0]),
        right=np.ascontiguousarray(sides[:, 1]),
        similar=np.array([r.similar for r in relations], np.bool_),
        time_ms=np.where(times == UNKNOWN_TIME, time_ms, times),
        sources=tuple(sources),
        source=np.array(source, np.int32),
        load=load,
    )


class RelationTally:
    """Counts relations."""

    modalities: Final = ()

    def __init__(self) -> None:
        self.facts = {"similar": 0, "dissimilar": 0}

    def add(self, record: Relation, row: int) -> None:
        """Count a relation."""
        self.facts["similar" if record.similar else "dissimilar"] += 1
