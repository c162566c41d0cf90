"""The clicks that a memory counted last: what each added, so that it can be taken away."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.state import State

Keys = NDArray[np.uint64]
#: (n,) of what clicks added to a memory.
Added = NDArray[np.void]

#: Hashes of the list's id and of the item's name, 0 where nothing is left to take away; the row of the query, and which
#: of its lists it was; the sums of clicks and of looks.
FIELDS: Final = np.dtype(
    [
        ("list", np.uint64),
        ("item", np.uint64),
        ("row", np.int64),
        ("turn", np.int64),
        ("clicks", np.float32),
        ("seen", np.float32),
    ]
)


class LastClicks:
    """A ring of the last clicks.

    Parameters
    ----------
    most : of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: Added = np.zeros(0, FIELDS)
        self._count = 0

    def add(self, clicks: Added) -> None:
        """Add some in order; the oldest make room."""
        first = max(0, len(clicks) - self._most)
        self._make_room(min(self._most, self._count + len(clicks)))
        self._kept[(self._count + np.arange(first, len(clicks))) % self._most] = clicks[first:]
        self._count += len(clicks)

    def _make_room(self, wanted: int) -> None:
        had = len(self._kept)
        if wanted > had:
            more = min(max(wanted, 2 * had), self._most) - had
            self._kept = np.concatenate([self._kept, np.zeros(more, FIELDS)])

    def take(self, of: int, item: int) -> Added:
        """What a list added for an item; nothing, from then on."""
        return self._taken((self._kept["list"] == of) & (self._kept["item"] == item))

    def forget(self, items: Keys) -> None:
        """Drop those of some items."""
        self._taken(np.isin(self._kept["item"], items))

    def _taken(self, which: NDArray[np.bool_]) -> Added:
        found = self._kept[which].copy()
        for name in ("list", "item"):
            self._kept[name][which] = 0
        return found

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All that later results depend on; arrays are copies."""
        used = min(self._count, self._most)
        kept: dict[str, Any] = {name: self._kept[name][:used].copy() for name in FIELDS.names or ()}
        return kept | {"count": np.array([self._count], np.int64)}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._kept = np.zeros(len(np.asarray(state["list"])), FIELDS)
        for name in FIELDS.names or ():
            self._kept[name] = state[name]
        self._count = int(np.asarray(state["count"])[0])
