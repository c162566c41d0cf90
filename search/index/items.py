"""The searchable items of one space: names and raw vectors, by slot."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.models.model import Features
from kinstream.streams.records.values import Table, Vectors

Slots = NDArray[np.int64]
#: Name and dimension of each modality.
Modalities = tuple[tuple[str, int], ...]

_LEAST_SLOTS: Final = 1024
_GROWTH: Final = 1.5


class Items:
    """Vectors by name. A slot is the number of an item while the item exists; later it is reused.

    Vectors of several modalities are side by side in one row, in the order of the first block.
    It is not thread-safe: threads that share it need a lock.
    """

    def __init__(self) -> None:
        self.modalities: Modalities = ()
        #: Raw features (D,) near the items.
        self.centre: Vectors = np.empty(0, np.float32)
        self.names: list[str | None] = []
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._rows: Vectors = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, name: str) -> bool:
        return name in self._slots

    @property
    def dimension(self) -> int | None:
        """Numbers of a row, all modalities together; None before the first item."""
        return sum(size for _, size in self.modalities) or None

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors; names come on top."""
        return self._rows.nbytes

    def slot(self, name: str) -> int | None:
        """The slot of an item; None if it is missing."""
        return self._slots.get(name)

    def slots(self) -> Slots:
        """Slots of all items, ascending."""
        return np.sort(np.fromiter(self._slots.values(), np.int64, len(self._slots)))

    def rows(self, slots: Slots) -> Vectors:
        """A copy of the vectors in these slots, (n, D) float32."""
        return self._rows[slots]

    def first(self, slots: Slots, m: int) -> Slots:
        """The m of these slots whose items come first by name."""
        return least(slots, m, self.names)

    def declare(self, modalities: Modalities, centre: Vectors | None = None) -> None:
        """Set, once, the modalities of every item, and a centre near the items, by default the origin."""
        if not self.modalities:
            self.modalities = modalities
            width = sum(size for _, size in modalities)
            self.centre = np.zeros(width, np.float32) if centre is None else centre
            self._rows = np.zeros((_LEAST_SLOTS, sum(size for _, size in self.modalities)), np.float32)

    def put(self, names: Sequence[str], rows: Vectors) -> tuple[Slots, NDArray[np.int64]]:
        """Add or replace items of declared modalities. If a name occurs twice, the last row counts.

        Parameters
        ----------
        rows : (n, D) as `side_by_side` gives them.

        Returns
        -------
        Slots (m,) of the items, each once, and the rows (m,) that count.
        """
        last = {name: row for row, name in enumerate(names)}
        slots = np.fromiter((self._slot_for(name) for name in last), np.int64, len(last))
        counted = np.fromiter(last.values(), np.int64, len(last))
        self._reserve(len(self.names))
        self._rows[slots] = rows[counted]
        return slots, counted

    def drop(self, names: Sequence[str]) -> Slots:
        """Remove items and overwrite their vectors; unknown ones are ignored. Returns their slots."""
        found = [slot for slot in (self._slots.pop(name, None) for name in names) if slot is not None]
        slots = np.array(found, np.int64)
        for slot in found:
            self.names[slot] = None
        if found:
            self._rows[slots] = 0.0
        self._free += found
        return slots

    def _slot_for(self, name: str) -> int:
        slot = self._slots.get(name)
        if slot is None:
            slot = self._free.pop() if self._free else len(self.names)
            if slot == len(self.names):
                self.names.append(name)
            else:
                self.names[slot] = name
            self._slots[name] = slot
        return slot

    def _reserve(self, wanted: int) -> None:
        if wanted > len(self._rows):
            grown = np.zeros((max(wanted, int(len(self._rows) * _GROWTH)), self._rows.shape[1]), np.float32)
            grown[: len(self._rows)] = self._rows
            self._rows = grown


def least(places: Slots, m: int, names: Sequence[str | None]) -> Slots:
    """The m of these places in a list of names whose names come first, in the order of code points."""
    return np.array(nsmallest(m, places.tolist(), key=lambda place: names[place] or ""), np.int64)


def sizes_of(tables: Sequence[Table]) -> Modalities:
    """Name and dimension of each modality of a block."""
    return tuple((table.name, table.vectors.shape[1]) for table in tables)


def side_by_side(tables: Sequence[Table], modalities: Modalities) -> Vectors:
    """Vectors of every modality in one row, (n, D) float32, in this order.

    Raises
    ------
    KeyError : a modality is missing.
    """
    by_name = {table.name: table.vectors for table in tables}
    return np.concatenate([by_name[name] for name, _ in modalities], axis=1, dtype=np.float32)


def features(rows: Vectors, modalities: Modalities) -> Features:
    """Rows (n, D) as a learner takes them: one matrix, or one for each of several modalities by name."""
    if len(modalities) < 2:
        return rows
    ends = np.cumsum([size for _, size in modalities])[:-1]
    parts = np.split(rows, ends, axis=1)
    return {name: part for (name, _), part in zip(modalities, parts, strict=True)}
