"""How often queries, people and items have come, in a fixed number of counters."""

from __future__ import annotations

from copy import copy
from typing import Final

import numpy as np

from kinstream.streams.records.state import State

#: Counters in each of the two rows; what is counted before all are halved; bits that tell new queries from old ones.
_COUNTERS: Final = 1 << 13
_HALVED: Final = _COUNTERS
_BITS: Final = 1 << 18


class Counts:
    """Counts that are never too low while nothing was halved, and a set of what has come.

    References
    ----------
    Cormode, Muthukrishnan: An improved data stream summary: the count-min sketch and its applications. J. Algorithms
    2005.
    Bloom: Space/time trade-offs in hash coding with allowable errors. CACM 1970.
    """

    def __init__(self) -> None:
        self._rows = np.zeros((2, _COUNTERS), np.uint16)
        self._added = 0
        self._seen = np.zeros(_BITS // 8, np.uint8)

    def copy(self) -> Counts:
        found = copy(self)
        found._rows, found._seen = self._rows.copy(), self._seen.copy()
        return found

    def meet(self, key: int) -> bool:
        """Whether a key comes for the first time, as far as one can tell; now it has come."""
        new = False
        for bit in (key % _BITS, (key >> 32) % _BITS):
            if not self._seen[bit >> 3] >> (bit & 7) & 1:
                self._seen[bit >> 3] |= np.uint8(1 << (bit & 7))
                new = True
        return new

    def add(self, key: int) -> int:
        """Count a key; how often it has come, this time included."""
        places = key % _COUNTERS, (key >> 32) % _COUNTERS
        found = 1 + min(int(self._rows[0, places[0]]), int(self._rows[1, places[1]]))
        for row, place in enumerate(places):
            self._rows[row, place] = min(int(self._rows[row, place]) + 1, 0xFFFF)
        self._added += 1
        if self._added >= _HALVED:
            self._rows >>= np.uint16(1)
            self._added //= 2
        return found

    def state(self) -> State:
        return {"rows": self._rows.copy(), "added": self._added, "seen": self._seen.copy()}

    def restore(self, state: State) -> None:
        self._rows, self._added = np.array(state["rows"], np.uint16), int(state["added"])
        self._seen = np.array(state["seen"], np.uint8)
