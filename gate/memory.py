"""What the gate of a space remembers for a while: ids of lists, and whom it has counted how often. Both are bounded."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from kinstream.streams.records.message import SKEW_MS
from kinstream.streams.records.state import State

#: Entries of each memory.
MOST: Final = 200_000
_HOUR_MS: Final = 3_600_000


class ListState(IntEnum):
    """What became of a list: nobody has clicked it yet, its clicks were counted, or a limit has left them out."""

    SHOWN = 0
    COUNTED = 1
    LEFT_OUT = 2


class Entry(NamedTuple):
    """A list: when it was shown, and what it counts among the sessions of the comparison."""

    time_ms: int
    standing: ListState
    worth: float = 0.0


class Seen:
    """The ids of the lists of a comparison, and what became of them.

    An id is forgotten when it is too old to be accepted anyway. Where more than `most` are younger than that, the
    oldest arrivals are forgotten, and nothing as old as one of them is accepted any more. An id of a time that is ahead
    of the log's is of a time at which the log was wrong, and is not accepted either.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ids: dict[int, Entry] = {}
        #: Ids of this time or before are not accepted.
        self.horizon_ms = -1

    def __len__(self) -> int:
        return len(self._ids)

    def clear(self) -> None:
        """Forget all: a new comparison begins, and ids of the old one are not accepted in it."""
        self._ids.clear()

    def look(self, key: int) -> Entry | None:
        """What is known of an id."""
        return self._ids.get(key)

    def turn(self, now_ms: int) -> None:
        """Give up a horizon that is ahead of the log's time: ids up to now are not accepted."""
        if self.horizon_ms > now_ms + SKEW_MS:
            self.horizon_ms = now_ms

    def note(self, key: int, entry: Entry, gone_ms: int, now_ms: int) -> None:
        """Remember an id; those of `gone_ms` or before may be forgotten, and those that are ahead of now."""
        self._ids[key] = entry
        while self._ids:
            first = next(iter(self._ids))
            before = self._ids[first].time_ms
            if gone_ms < before <= now_ms + SKEW_MS:
                if len(self._ids) <= self._most:
                    return
                self.horizon_ms = max(self.horizon_ms, before)
            del self._ids[first]

    def state(self) -> State:
        entries = self._ids.values()
        return {
            "ids": np.array(list(self._ids), np.uint64),
            "times": np.array([one.time_ms for one in entries], np.int64),
            "counted": np.array([one.standing for one in entries], np.uint8),
            "worth": np.array([one.worth for one in entries], np.float64),
            "horizon_ms": self.horizon_ms,
        }

    def restore(self, state: State) -> None:
        """From a state; in one before `gate/6` nothing has a worth."""
        ids, times, counted = (np.asarray(state[name]).tolist() for name in ("ids", "times", "counted"))
        worth = np.asarray(state.get("worth", np.zeros(len(ids)))).tolist()
        columns = zip(ids, times, counted, worth, strict=True)
        self._ids = {key: Entry(time, ListState(flag), value) for key, time, flag, value in columns}
        self.horizon_ms = int(state["horizon_ms"])


class Cap:
    """How often each of many is counted within an hour of the log's time.

    Parameters
    ----------
    limit : how often at most; 0 is no limit.
    """

    def __init__(self, limit: int, most: int = MOST) -> None:
        self.limit = limit
        self._most = most
        self._hour = -1
        self._counts: dict[int, int] = {}

    @property
    def used(self) -> bool:
        """Whether anything was ever counted, or looked at."""
        return self._hour >= 0

    def full(self, key: int, now_ms: int) -> bool:
        """Whether it was counted as often as it may be, or too many others were."""
        if not self.limit:
            return False
        if now_ms // _HOUR_MS != self._hour:
            self._hour = now_ms // _HOUR_MS
            self._counts.clear()
        count = self._counts.get(key)
        return count >= self.limit if count is not None else len(self._counts) >= self._most

    def add(self, key: int) -> None:
        """Count it, after `full` has answered no."""
        if self.limit:
            self._counts[key] = self._counts.get(key, 0) + 1

    def state(self) -> State:
        return {
            "hour": self._hour,
            "keys": np.array(list(self._counts), np.uint64),
            "counts": np.array(list(self._counts.values()), np.int64),
        }

    def restore(self, state: State) -> None:
        self._hour = int(state["hour"])
        keys, counts = np.asarray(state["keys"]).tolist(), np.asarray(state["counts"]).tolist()
        self._counts = dict(zip(keys, counts, strict=True))
