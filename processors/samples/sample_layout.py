"""The layout of a space of labelled samples, and the refusal of blocks that do not fit it."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from kinstream.processors.base.builder import State
from kinstream.processors.base.packing import Packing
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import Kind, SampleBlock, Table

#: The label type of a space in messages and states.
_WORDS: Final[dict[type[int | str] | None, str]] = {int: "integer", str: "string", None: ""}
_VECTORS: Final = {Kind.PAIR: "two", Kind.TRIPLET: "three"}


class SampleSpace:
    """One label type, one set of modalities and one dimension for each: those of the first block."""

    def __init__(self) -> None:
        self.labels: type[int | str] | None = None
        self.modalities: tuple[tuple[str, int], ...] = ()

    def admit(
        self,
        block: SampleBlock,
        max_bytes: int,
        kind: Kind,
        rule: str,
        *,
        targeted: bool = False,
        grouped: bool = False,
    ) -> tuple[list[Any], tuple[Table, ...], Packing]:
        """Labels and tables of a block that fits, the tables in the order of the first block, and how to pack them.

        Parameters
        ----------
        max_bytes, kind, rule, targeted, grouped : of its blocks: one constraint must fit into a block.

        Raises
        ------
        BadRecord
            The block does not fit; nothing has changed.
        """
        labels, label_type, tables = self._checked(block)
        packing = Packing(block.space, tuple((t.name, t.vectors.shape[1]) for t in tables), max_bytes)
        if not packing.fits(kind, rule, targeted=targeted, grouped=grouped):
            raise BadRecord(
                Reason.TOO_LARGE, f"{_VECTORS[kind]} of these vectors do not fit into {max_bytes} bytes"
            )
        self.labels = label_type
        self.modalities = packing.modalities
        return labels, tables, packing

    def _checked(self, block: SampleBlock) -> tuple[list[Any], type[int | str], tuple[Table, ...]]:
        rows = len(block.tables[0].vectors) if block.tables else 0
        if not rows:
            raise BadRecord(Reason.EMPTY, "a sample block without rows")
        if any(len(t.vectors) != rows for t in block.tables) or len(block.labels) != rows:
            raise BadRecord(
                Reason.BAD_SHAPE, f"{len(block.labels)} labels and tables of {rows} rows do not match"
            )
        labels, label_type = labels_of(block)
        if self.labels not in (None, label_type):
            raise BadRecord(
                Reason.WRONG_LABEL_TYPE,
                f"{_WORDS[label_type]} labels in a space of {_WORDS[self.labels]} ones",
            )
        given = {t.name: t for t in block.tables}
        sizes = {name: t.vectors.shape[1] for name, t in given.items()}
        if self.modalities and sizes != dict(self.modalities):
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"{_sizes(sizes)} in a space of {_sizes(dict(self.modalities))}"
            )
        tables = tuple(given[name] for name, _ in self.modalities) or block.tables
        broken = np.flatnonzero(~np.all([np.isfinite(t.vectors).all(axis=1) for t in tables], axis=0))
        if broken.size:
            raise BadRecord(Reason.NOT_FINITE, "NaN or infinity in some rows", tuple(broken.tolist()))
        return labels, label_type, tables

    def state(self) -> State:
        """The layout fixed by the first block."""
        return {"labels": _WORDS[self.labels], "modalities": json.dumps(self.modalities)}

    def restore(self, state: State) -> None:
        """The inverse of `state`; other entries are ignored."""
        self.labels = {word: label_type for label_type, word in _WORDS.items()}[str(state["labels"])]
        self.modalities = tuple((name, size) for name, size in json.loads(str(state["modalities"])))


def row_bytes(block: SampleBlock) -> int:
    """Bytes of a sample's vectors."""
    return 4 * sum(int(table.vectors.shape[1]) for table in block.tables)


def labels_of(block: SampleBlock) -> tuple[list[Any], type[int | str]]:
    """The labels of a block, and their type.

    Raises
    ------
    BadRecord : of another type.
    """
    if not isinstance(block.labels, np.ndarray):
        return list(block.labels), str
    if not np.can_cast(block.labels.dtype, np.int64):
        raise BadRecord(Reason.WRONG_LABEL_TYPE, f"labels of type {block.labels.dtype}")
    return block.labels.tolist(), int


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}: {size}" for name, size in sizes.items())
