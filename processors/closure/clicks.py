"""Co-clicked items for the closure: the filters and the core of the click builder, run in the closure's own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import Origin, State
from kinstream.processors.base.catalogue import Reference
from kinstream.processors.base.id_table import Hashes
from kinstream.processors.base.watermark import Watermark
from kinstream.processors.clicks.clicks import Clicks
from kinstream.processors.clicks.co_clicks import CoClicks, Pairs
from kinstream.processors.clicks.filters import AGAIN, BOT, LATE, TAKEN, Gate
from kinstream.processors.clicks.keys import keys_of
from kinstream.processors.clicks.lists import (
    Fault,
    Flags,
    Lists,
    named,
    partly,
    read_lists,
    refusals,
    split_rows,
)
from kinstream.processors.clicks.rules import CLICKED, read_clicks
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import Click, ClickBlock

#: Counts of click records. A list has one of the fates after `lists`.
COUNTED: Final = (
    "lists",
    "lists-refused",
    "late",
    "duplicate-list",
    "bot",
    "lists-used",
    "co-click-repeated",
    "co-click-below-support",
    "co-click-known",
    "co-click-gone",
    "co-click-contradiction",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds and defaults of `kinstream.processors.clicks.clicks.Clicks`, by the same names."""

    vote_window_ms: int = Clicks.vote_window_ms
    support_window_ms: int = Clicks.support_window_ms
    max_clicks_per_hour: int = 1_000
    max_clicks_per_address: int = 5_000
    max_list: int = Clicks.max_list
    max_ahead_ms: int = Clicks.max_ahead_ms
    max_late_ms: int = 7 * 86_400_000
    max_remembered: int = Clicks.max_remembered


@dataclass(frozen=True, slots=True, eq=False)
class ClickContent:
    """The content of an event.

    Parameters
    ----------
    lists : the lists as read.
    clicked : (c,) places in `lists.block.ids` of items of the catalogue that were clicked.
    pairs : pairs that are now supported.
    partly : (n,) lists of which a part came before.
    refused : lists with a fault, and clicked items that are not in the catalogue.
    """

    lists: Lists
    clicked: NDArray[np.int64]
    pairs: Pairs
    partly: Flags
    refused: list[BadRecord]


class CoClickedItems:
    """Item pairs with enough votes, from result lists in the order of the log."""

    def __init__(self, bounds: Bounds, support: int, min_dwell_ms: int) -> None:
        self._bounds, self._min_dwell_ms = bounds, min_dwell_ms
        self.counts = dict.fromkeys(COUNTED, 0)
        watermark = Watermark(bounds.max_ahead_ms, bounds.max_late_ms)
        most = bounds.max_remembered
        caps = bounds.max_clicks_per_hour, bounds.max_clicks_per_address
        self._gate = Gate(watermark, bounds.vote_window_ms, *caps, most)
        self._core = CoClicks(support, bounds.support_window_ms, bounds.vote_window_ms, most)

    @property
    def evicted(self) -> int:
        """Entries that were dropped because a memory was full."""
        return self._gate.evicted + self._core.evicted

    def take(
        self, event: Click | ClickBlock, origin: Origin, find: Callable[[Hashes], Reference]
    ) -> ClickContent:
        """Add lists.

        Parameters
        ----------
        find : the place of each item in the catalogue, -1 for a missing one.

        Raises
        ------
        BadRecord : the event has no separable lists, or a redrive names missing rows.
        """
        lists = read_lists(event, self._bounds.max_list)
        arriving = _arriving(origin, len(lists.of))
        keys = keys_of(lists)
        fate = self._gate.admit(lists, keys, None if origin.rows is None else arriving, origin.append_ms)
        if self._gate.turned_ms is not None:
            self._core.forget_after(self._gate.turned_ms)
        bad = lists.faults != Fault.NONE
        taken = (fate == TAKEN) & ~bad
        reading = read_clicks(lists, self._min_dwell_ms)
        known = find(lists.keys)[lists.block.item] >= 0
        clicked = (reading.mark == CLICKED) & taken[lists.of]
        pairs = self._core.pairs(lists, keys, reading, taken, known, arriving, self._gate.gone_ms)
        here = np.zeros(len(lists), np.bool_)
        here[lists.of[arriving]] = True
        fates = (bad, fate == LATE, fate == AGAIN, fate == BOT, taken)
        self.counts["lists"] += int(here.sum())
        for name, flags in zip(COUNTED[1:6], fates, strict=True):
            self.counts[name] += int((here & flags).sum())
        self.counts["co-click-repeated"] += pairs.repeated
        self.counts["co-click-below-support"] += pairs.below_support
        self.counts["co-click-known"] += pairs.known
        refused = refusals(lists, arriving) + _unknown(lists, clicked & ~known & arriving)
        refused += self._gate.left_out(lists, fate)
        taken_in = lists.block.item[clicked & known & arriving].astype(np.int64)
        return ClickContent(lists, taken_in, pairs, partly(lists, arriving), refused)

    def state(self) -> State:
        state: State = {f"count.{name}": number for name, number in self.counts.items()}
        return state | self._gate.state() | self._core.state()

    def restore(self, state: State) -> None:
        self.counts = {name: int(state[f"count.{name}"]) for name in COUNTED}
        self._gate.restore(state)
        self._core.restore(state)


def _arriving(origin: Origin, shown: int) -> Flags:
    """Impressions of the event that arrive, (m,)."""
    if origin.rows is None:
        return np.ones(shown, np.bool_)
    if not origin.rows or min(origin.rows) < 0 or max(origin.rows) >= shown:
        raise BadRecord(Reason.BAD_SHAPE, f"the redrive names rows beyond the {shown} impressions")
    arriving = np.zeros(shown, np.bool_)
    arriving[list(origin.rows)] = True
    return arriving


def _unknown(lists: Lists, refused: Flags) -> list[BadRecord]:
    rows = np.flatnonzero(refused)
    if not len(rows):
        return []
    names = [lists.block.ids[i] for i in dict.fromkeys(lists.block.item[rows].tolist())]
    detail = f"not in the catalogue: {named(names, 'item')}"
    return [BadRecord(Reason.UNKNOWN_ITEM, detail, part) for part in split_rows(rows)]
