"""A bounded memory of keys: the last time and the count of each key."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.id_table import Hashes
from kinstream.streams.compute.compilation import compiled

Times = NDArray[np.int64]
Counts = NDArray[np.int32]
#: keys (c, 2), times (c,), counts (c,), extra (c, w, 2), slots (power of two,), used (1,): the arguments of kernels.
Parts = tuple[Hashes, Times, Counts, NDArray[np.uint64], Counts, Times]

_LEAST: Final = 64
#: Quarters of a full memory that stay when the oldest entries are dropped.
_QUARTERS_KEPT: Final = 3


class Memory:
    """Entries by 128-bit key, in order of arrival, and a hash table of their numbers.

    Kernels look entries up and append them; between events the memory makes room. It first drops entries so old that no
    answer depends on them, and above `most` entries the oldest by time, then by arrival.

    Parameters
    ----------
    most : entries that are kept between events.
    width : number of other keys that an entry holds.
    """

    def __init__(self, most: int, width: int = 0) -> None:
        self.most = most
        self.width = width
        self.evicted = 0
        self._allot(_LEAST, 0)

    def _allot(self, places: int, used: int) -> None:
        self._keys = np.zeros((places, 2), np.uint64)
        self._times = np.zeros(places, np.int64)
        self._counts = np.zeros(places, np.int32)
        self._extra = np.zeros((places, self.width, 2), np.uint64)
        self._slots = np.full(2 * places, -1, np.int32)
        self._used = np.array([used], np.int64)

    def __len__(self) -> int:
        return int(self._used[0])

    @property
    def nbytes(self) -> int:
        arrays = (self._keys, self._times, self._counts, self._extra, self._slots)
        return sum(array.nbytes for array in arrays)

    def room_for(self, more: int, gone_ms: int) -> Parts:
        """The arrays with room for `more` entries.

        Parameters
        ----------
        gone_ms : entries whose time is not above it may be dropped.
        """
        if len(self) + more > len(self._keys):
            self._keep(self._times[: len(self)] > gone_ms, more)
        return self._keys, self._times, self._counts, self._extra, self._slots, self._used

    def settle(self, gone_ms: int) -> None:
        """Drop surplus entries."""
        if len(self) <= self.most:
            return
        kept = self._times[: len(self)] > gone_ms
        over = int(kept.sum()) - self.most
        if over > 0:
            left = np.flatnonzero(kept)
            drop = len(left) - self.most * _QUARTERS_KEPT // 4
            kept[left[np.argsort(self._times[left], kind="stable")[:drop]]] = False
            self.evicted += drop
        self._keep(kept, 0)

    def forget_after(self, time_ms: int) -> None:
        """Drop entries of later times: those of a log whose time was wrong."""
        kept = self._times[: len(self)] <= time_ms
        if not kept.all():
            self._keep(kept, 0)

    def _keep(self, kept: NDArray[np.bool_], more: int) -> None:
        rows = np.flatnonzero(kept)
        old = self._keys[rows], self._times[rows], self._counts[rows], self._extra[rows]
        places = len(self._keys)
        while places < len(rows) + more:
            places *= 2
        self._allot(places, len(rows))
        self._fill(*old)

    def _fill(self, keys: Hashes, times: Times, counts: Counts, extra: NDArray[np.uint64]) -> None:
        used = len(keys)
        self._keys[:used], self._times[:used], self._counts[:used] = keys, times, counts
        self._extra[:used] = extra
        _index(self._keys, self._slots, used)

    def state(self, name: str) -> State:
        """A copy of the entries under names that begin with `name`."""
        used = len(self)
        state: State = {
            f"{name}.keys": self._keys[:used].copy(),
            f"{name}.times": self._times[:used].copy(),
            f"{name}.counts": self._counts[:used].copy(),
            f"{name}.places": len(self._keys),
            f"{name}.evicted": self.evicted,
        }
        if self.width:
            state[f"{name}.extra"] = self._extra[:used].copy()
        return state

    def restore(self, state: State, name: str) -> None:
        """The inverse of `state`."""
        keys = np.asarray(state[f"{name}.keys"], np.uint64)
        self.evicted = int(state[f"{name}.evicted"])
        self._allot(int(state[f"{name}.places"]), len(keys))
        extra = state[f"{name}.extra"] if self.width else np.zeros((len(keys), 0, 2), np.uint64)
        self._fill(
            keys,
            np.asarray(state[f"{name}.times"], np.int64),
            np.asarray(state[f"{name}.counts"], np.int32),
            np.asarray(extra, np.uint64),
        )


@compiled
def _index(keys: Hashes, slots: Counts, used: int) -> None:
    """Number the entries in the table; the probing is that of `kinstream.processors.clicks.kernels`."""
    mask = len(slots) - 1
    for entry in range(used):
        at = np.int64(keys[entry, 0] & np.uint64(mask))
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = entry
