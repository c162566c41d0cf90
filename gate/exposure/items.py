"""How often each item of a space was shown: coverage of the catalogue, and concentration. Memory is bounded.

Counts are of two periods of twelve hours of the log: the one that runs, and the one before. So a figure is about the
last 12 to 24 hours.

Up to `MOST` items are followed. When there are more, half of them are left out, by a bit of the hash of their names,
and so on: those that are left are a random sample of the items, and the figures are estimates. It never follows more
again before the space is reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from kinstream.gate.lists.hashing import hash_of
from kinstream.streams.records.state import State

#: Items that are followed at most.
MOST: Final = 50_000
PERIOD_MS: Final = 12 * 3_600_000
#: How long an item is new, from its first record on.
NEW_MS: Final = 7 * 24 * 3_600_000
#: Not in the catalogue.
_ABSENT: Final = -1


class _Item:
    """Impressions in this period and in the one before; when it came into the catalogue, or `_ABSENT`."""

    __slots__ = ("before", "born_ms", "now")

    def __init__(self, now: int = 0, before: int = 0, born_ms: int = _ABSENT) -> None:
        self.now, self.before, self.born_ms = now, before, born_ms


class ItemCounts:
    """The items of one space.

    Parameters
    ----------
    most : items that are followed at most.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._items: dict[int, _Item] = {}
        self._period = -1
        #: Items are followed whose hash ends with so many zeros.
        self._zeros = 0
        #: Number of items by impressions in both periods.
        self._sizes: Counter[int] = Counter()
        self._catalogue = self._covered = 0
        #: Impressions of all items, followed or not, in this period and in the one before.
        self._now = self._before = 0

    @property
    def followed(self) -> float:
        """Share of the items that are followed."""
        return 0.5**self._zeros

    @property
    def catalogue(self) -> int:
        """Items in the catalogue; an estimate if not all are followed."""
        return self._catalogue << self._zeros

    @property
    def concentration(self) -> float | None:
        """The Gini coefficient of the impressions of all items; None before the first."""
        return gini(self._sizes, self._now + self._before, 1 << self._zeros)

    @property
    def coverage(self) -> float | None:
        """Share of the catalogue that was shown; None without a catalogue."""
        return self._covered / self._catalogue if self._catalogue else None

    def put(self, name: str, log_ms: int) -> None:
        """An item is in the catalogue. It is new if it was not before."""
        key = hash_of(name)
        if self._is_followed(key):
            item = self._items.get(key) or self._add(key)
            if item.born_ms == _ABSENT:
                item.born_ms = log_ms
                self._catalogue += 1
                self._covered += item.now + item.before > 0
            self._shrink()

    def remove(self, name: str) -> None:
        """An item has left the catalogue."""
        item = self._items.get(hash_of(name))
        if item is not None and item.born_ms != _ABSENT:
            item.born_ms = _ABSENT
            self._catalogue -= 1
            self._covered -= item.now + item.before > 0
            if not item.now + item.before:
                self._forget(hash_of(name))

    def show(self, name: str, now_ms: int) -> str | None:
        """Count an impression; the kind of its item: new, known or unlisted. None if it is not followed."""
        self._now += 1
        key = hash_of(name)
        if not self._is_followed(key):
            return None
        item = self._items.get(key) or self._add(key)
        if item.born_ms > now_ms:
            # It came at a time at which the log was ahead.
            item.born_ms = now_ms
        total = item.now + item.before
        item.now += 1
        self._resize(total, total + 1)
        self._covered += total == 0 and item.born_ms != _ABSENT
        kind = "unlisted" if item.born_ms == _ABSENT else "new" if now_ms - item.born_ms < NEW_MS else "known"
        self._shrink()
        return kind

    def turn(self, now_ms: int) -> None:
        """Begin a period if the last one is over. If the log's time was ahead and is back, the period goes on."""
        period = now_ms // PERIOD_MS
        if period <= self._period:
            self._period = period
            return
        gap, self._period = period - self._period, period
        self._before, self._now = self._now if gap == 1 else 0, 0
        for item in self._items.values():
            item.before, item.now = item.now if gap == 1 else 0, 0
        self._items = {k: i for k, i in self._items.items() if i.before or i.born_ms != _ABSENT}
        self._recount()

    def _is_followed(self, key: int) -> bool:
        return not key & ((1 << self._zeros) - 1)

    def _add(self, key: int) -> _Item:
        item = self._items[key] = _Item()
        self._sizes[0] += 1
        return item

    def _forget(self, key: int) -> None:
        item = self._items.pop(key)
        self._resize(item.now + item.before, None)

    def _resize(self, old: int, new: int | None) -> None:
        self._sizes[old] -= 1
        if not self._sizes[old]:
            del self._sizes[old]
        if new is not None:
            self._sizes[new] += 1

    def _shrink(self) -> None:
        while len(self._items) > self._most:
            self._zeros += 1
            self._items = {key: item for key, item in self._items.items() if self._is_followed(key)}
            self._recount()

    def _recount(self) -> None:
        self._sizes = Counter(item.now + item.before for item in self._items.values())
        listed = [item for item in self._items.values() if item.born_ms != _ABSENT]
        self._catalogue = len(listed)
        self._covered = sum(item.now + item.before > 0 for item in listed)

    def state(self) -> State:
        items = self._items.values()
        return {
            "keys": np.array(list(self._items), np.uint64),
            "now": np.array([item.now for item in items], np.int64),
            "before": np.array([item.before for item in items], np.int64),
            "born_ms": np.array([item.born_ms for item in items], np.int64),
            "period": self._period,
            "zeros": self._zeros,
            "impressions": np.array([self._now, self._before], np.int64),
        }

    def restore(self, state: State) -> None:
        columns = (np.asarray(state[name]).tolist() for name in ("keys", "now", "before", "born_ms"))
        self._items = {key: _Item(*rest) for key, *rest in zip(*columns, strict=True)}
        self._period, self._zeros = int(state["period"]), int(state["zeros"])
        self._now, self._before = np.asarray(state["impressions"]).tolist()
        self._recount()


def gini(histogram: Mapping[int, int], total: int, stands_for: int = 1) -> float | None:
    """The Gini coefficient of the impressions of all items: 0 if all have as many, near 1 if one has all.

    With ranks i = 1, ..., n from the least shown item x_1 up, and T their sum, it is

        1 - 1/n - 2 / (n T) sum_i (n - i) x_i.

    From a sample, n and the sum are estimates, and T is known. In this form the items that are shown most count little
    in the sum, so it does not matter much whether one of them is in the sample.

    Parameters
    ----------
    histogram : number of items by impressions, of all items or of a random sample.
    total : impressions of all items.
    stands_for : how many items one of the sample stands for.

    Returns
    -------
    None if nothing was shown, or there are no items in the sample.

    Examples
    --------
    >>> gini({5: 10}, 50)
    0.0
    >>> gini({0: 3, 8: 1}, 8)
    0.75
    """
    count = sum(histogram.values())
    if not total or not count:
        return None
    rank = above = 0
    for value, items in sorted(histogram.items()):
        # These items have the ranks rank + 1, ..., rank + items.
        above += value * (items * (count - rank) - items * (items + 1) // 2)
        rank += items
    every = count * stands_for
    return max(0.0, ((every - 1) * total - 2 * stands_for**2 * above) / (every * total))
