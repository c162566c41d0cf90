"""The exposure of one space: lists, items and clicks. A function of the log, with bounded memory."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from kinstream.gate.exposure.items import ItemCounts
from kinstream.gate.exposure.lists import ListKind, Served
from kinstream.streams.records.message import log_time
from kinstream.streams.records.state import State, with_prefix, without_prefix
from kinstream.streams.records.values import ItemBlock

#: Positions that are counted each for itself.
POSITIONS: Final = 20
#: Lists that are remembered, so that one that comes back again is not counted again.
MOST_LISTS: Final = 100_000
#: Labels of `ItemCounts.show`.
ITEMS: Final = ("new", "known", "unlisted")
_LAST_BIT: Final = 63


@dataclass(frozen=True, slots=True)
class Exposed:
    """The exposure of a space at one moment.

    Parameters
    ----------
    lists : by `ListKind`.
    items : impressions of followed items, by `ITEMS`.
    impressions, clicks : by position; the last number is of all positions from `POSITIONS` on.
    catalogue, coverage, gini, followed : see `ItemCounts`.
    """

    lists: dict[str, int]
    items: dict[str, int]
    impressions: tuple[int, ...]
    clicks: tuple[int, ...]
    catalogue: int
    coverage: float | None
    gini: float | None
    followed: float

    @property
    def new_share(self) -> float | None:
        """Share of the impressions of followed items that are of new items; None while nothing was shown."""
        total = sum(self.items.values())
        return self.items["new"] / total if total else None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "new_share": self.new_share}


class Exposure:
    """What was shown in one space, and clicked.

    Parameters
    ----------
    most_items, most_lists : bounds of the memory. A list that comes back after so many others is counted again.
    """

    def __init__(self, most_items: int | None = None, most_lists: int = MOST_LISTS) -> None:
        self._items = ItemCounts() if most_items is None else ItemCounts(most_items)
        self._most = most_lists
        #: By key of a list, bits of the places whose clicks were counted.
        self._seen: dict[int, int] = {}
        self._now_ms = -1
        self._lists: Counter[str] = Counter(dict.fromkeys(ListKind, 0))
        self._kinds: Counter[str] = Counter(dict.fromkeys(ITEMS, 0))
        self._impressions = [0] * (POSITIONS + 1)
        self._clicks = [0] * (POSITIONS + 1)

    def catalogue(self, block: ItemBlock, log_ms: int) -> None:
        """Items that enter or leave the catalogue."""
        self._turn(log_ms)
        for name in block.ids:
            self._items.put(name, self._now_ms)
        for name in block.tombstones:
            self._items.remove(name)

    def show(self, one: Served, kind: ListKind, log_ms: int) -> None:
        """Count a list, and those of its clicks that were not counted before."""
        self._turn(log_ms)
        if kind is ListKind.INVALID:
            self._lists[kind] += 1
            return
        before = self._seen.get(one.key)
        if before is None:
            before = 0
            self._lists[kind] += 1
            for name, position in zip(one.items, one.positions, strict=True):
                self._impressions[min(position, POSITIONS)] += 1
                found = self._items.show(name, self._now_ms)
                if found is not None:
                    self._kinds[found] += 1
        seen = before
        for place in sorted(one.clicked):
            bit = 1 << min(place, _LAST_BIT)
            if not seen & bit:
                seen |= bit
                self._clicks[min(one.positions[place], POSITIONS)] += 1
        self._seen[one.key] = seen
        while len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]

    def _turn(self, log_ms: int) -> None:
        self._now_ms = log_time(self._now_ms, log_ms)
        self._items.turn(self._now_ms)

    def exposed(self) -> Exposed:
        """What metrics show."""
        items = self._items
        return Exposed(
            {str(name): count for name, count in self._lists.items()},
            dict(self._kinds),
            tuple(self._impressions),
            tuple(self._clicks),
            items.catalogue,
            items.coverage,
            items.concentration,
            items.followed,
        )

    def state(self) -> State:
        # A log without randomised lists gives the state that it gave before there were any.
        lists = {name: n for name, n in self._lists.items() if n or name != ListKind.RANDOMISED}
        plain = {
            "now_ms": self._now_ms,
            "lists": lists,
            "items": self._kinds,
            "impressions": self._impressions,
            "clicks": self._clicks,
        }
        return {
            "counts": json.dumps(plain),
            "seen": np.array(list(self._seen), np.uint64),
            "clicked": np.array(list(self._seen.values()), np.uint64),
            **with_prefix("items.", self._items.state()),
        }

    def restore(self, state: State) -> None:
        plain = json.loads(str(state["counts"]))
        self._now_ms = int(plain["now_ms"])
        self._lists.update(plain["lists"])
        self._kinds.update(plain["items"])
        self._impressions, self._clicks = list(plain["impressions"]), list(plain["clicks"])
        keys, bits = np.asarray(state["seen"]).tolist(), np.asarray(state["clicked"]).tolist()
        self._seen = dict(zip(keys, bits, strict=True))
        self._items.restore(without_prefix("items.", state))
