"""The vectors of an index by id: dense arrays with free slots, so that an item needs no Python object except its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int64]
#: Items that are multiplied at once.
CHUNK: Final = 4_096
_FIRST: Final = 64


class VectorSlots:
    """Vectors in slots.

    Attributes
    ----------
    X : (slots, d) vectors; the content of a free slot has no meaning.
    norms : (slots,) float64, Euclidean norms.
    order : (slots,) int64, in the order of insertion; -1 for a free slot.
    top : slots from this one on have never been used.
    """

    def __init__(self, d: int, dtype: str) -> None:
        self.d = d
        self.X = np.zeros((_FIRST, d), dtype)
        self.norms = np.zeros(_FIRST)
        self.order = np.full(_FIRST, -1, np.int64)
        self.ids: list[str] = []
        self.top = 0
        self._slot: dict[str, int] = {}
        self._free: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._slot)

    @property
    def slots(self) -> int:
        return len(self.order)

    def put(self, ids: Sequence[str], X: NDArray[Any]) -> Slots:
        """Insert or replace; returns the slots that changed, in ascending order.

        Parameters
        ----------
        X : (n, d) finite.
        """
        last = {name: row for row, name in enumerate(ids)}
        new = [name for name in last if name not in self._slot]
        self._reserve(self.top + max(0, len(new) - len(self._free)))
        for name in new:
            if self._free:
                slot = self._free.pop()
                self.ids[slot] = name
            else:
                slot = self.top
                self.top += 1
                self.ids.append(name)
            self._slot[name] = slot
            self.order[slot] = self._next
            self._next += 1
        slots = np.fromiter((self._slot[name] for name in last), np.int64, len(last))
        rows = np.fromiter(last.values(), np.int64, len(last))
        ascending = np.argsort(slots)
        slots, rows = slots[ascending], rows[ascending]
        self.X[slots] = X[rows]
        stored = self.X[slots].astype(np.float64)
        self.norms[slots] = np.sqrt(np.einsum("ij,ij->i", stored, stored))
        return slots

    def drop(self, ids: Sequence[str]) -> Slots:
        """Delete; returns the freed slots."""
        freed = []
        for name in ids:
            slot = self._slot.pop(name, None)
            if slot is not None:
                self.order[slot] = -1
                self.ids[slot] = ""
                freed.append(slot)
        self._free += freed
        return np.array(freed, np.int64)

    def rows(self, slots: Slots) -> NDArray[Any]:
        """The vectors of some slots (m, d), not copied if they are contiguous."""
        if len(slots) and slots[-1] - slots[0] == len(slots) - 1 and (np.diff(slots) == 1).all():
            return self.X[slots[0] : slots[-1] + 1]
        return self.X[slots]

    def taken(self) -> Slots:
        """Slots that hold an item, in ascending order."""
        return np.flatnonzero(self.order[: self.top] >= 0)

    def _reserve(self, wanted: int) -> None:
        if wanted <= self.slots:
            return
        slots = max(wanted, self.slots + self.slots // 2)
        self.X = grown(self.X, slots)
        self.norms = grown(self.norms, slots)
        self.order = grown(self.order, slots, -1)


def grown(array: NDArray[Any], slots: int, fill: float = 0) -> NDArray[Any]:
    """A copy with more rows."""
    made = np.full((slots, *array.shape[1:]), fill, array.dtype)
    made[: len(array)] = array
    return made


def vectors(X: NDArray[Any], d: int | None, what: str, dtype: str = "float64") -> NDArray[Any]:
    """X as an array (n, d) of that type.

    Raises
    ------
    ValueError
        It has another shape, or a row is not finite; the message names it.
    """
    with np.errstate(over="ignore"):
        X = np.asarray(X).astype(dtype, copy=False)
    if X.ndim != 2 or (d is not None and X.shape[1] != d) or X.shape[1] == 0:
        wanted = "d" if d is None else d
        raise ValueError(f"{what} must have the shape (n, {wanted}), not {X.shape}")
    good = np.isfinite(X).all(axis=1)
    if not good.all():
        raise ValueError(f"row {int(np.argmin(good))} of {what} is not finite in {dtype}")
    return X
