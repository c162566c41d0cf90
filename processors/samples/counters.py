"""Counts of a builder's intended constraints by fate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Fates:
    """Numbers by name; they grow and never shrink.

    Parameters
    ----------
    total : name of the total, such as "pairs".
    fates : each case has exactly one; they add up to the total.
    others : further counters.
    """

    def __init__(self, total: str, fates: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
        self._names = (total, *fates, *others)
        self._fates = len(fates)
        self._numbers = np.zeros(len(self._names), np.int64)

    def meet(self, met: NDArray[np.integer]) -> None:
        """Count places in `fates`, in any shape."""
        self._numbers[1 : 1 + self._fates] += np.bincount(met.ravel(), minlength=self._fates)
        self._numbers[0] += met.size

    def set(self, name: str, number: int) -> None:
        """Set a further counter."""
        self._numbers[self._names.index(name)] = number

    def add(self, name: str, number: int) -> None:
        """Increment a further counter."""
        self._numbers[self._names.index(name)] += number

    def as_dict(self) -> dict[str, int]:
        return dict(zip(self._names, self._numbers.tolist(), strict=True))

    def state(self) -> NDArray[np.int64]:
        """The numbers, in the order of the names."""
        return self._numbers.copy()

    def restore(self, numbers: object) -> None:
        """The inverse of `state`."""
        self._numbers[:] = np.asarray(numbers, np.int64)
