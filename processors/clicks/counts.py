"""Counts of lists, impressions, clicks and preferences by fate: exactly one fate each, so that totals add up."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.clicks.co_clicks import Pairs
from kinstream.processors.clicks.filters import AGAIN, BOT, LATE, TAKEN
from kinstream.processors.clicks.lists import Flags, Lists, Numbers
from kinstream.processors.clicks.rules import Preferences, Reading
from kinstream.streams.compute.compilation import compiled

#: Each total, and its fates, of which exactly one applies to each case.
FATES: Final = {
    "lists": (
        "lists-refused",
        "late",
        "duplicate-list",
        "bot",
        "no-query-vector",
        "no-click",
        "no-preference",
        "lists-used",
    ),
    "impressions": (
        "impressions-refused",
        "impressions-left-out",
        "impressions-clicked",
        "impressions-short-dwell",
        "impressions-skipped",
        "impressions-unexamined",
    ),
    "clicks": ("clicks-refused", "clicks-left-out", "short-dwell", "clicks-repeated", "clicks-used"),
    # In the order of the numbers in `kinstream.processors.clicks.kernels`.
    "preferences": (
        "preferences-emitted",
        "held-back",
        "item-gone",
        "query-in-list",
        "not-fair-pair",
        "repeated-vote",
        "session-cap",
        "below-support",
        "thinned",
        "list-cap",
    ),
    "co-clicks": (
        "co-clicks-emitted",
        "co-click-repeated",
        "co-click-below-support",
        "co-click-known",
        "co-click-gone",
    ),
}
NAMES: Final = tuple(name for total, fates in FATES.items() for name in (total, *fates))


class FateCounts:
    """Counts by name, for all in `FATES`."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(NAMES), np.int64)

    def as_dict(self) -> dict[str, int]:
        return dict(zip(NAMES, self._counts.tolist(), strict=True))

    def restore(self, counts: dict[str, int]) -> None:
        """The inverse of `as_dict`."""
        self._counts = np.array([counts[name] for name in NAMES], np.int64)

    def count(
        self,
        lists: Lists,
        reading: Reading,
        stated: Preferences,
        verdict: NDArray[np.int8],
        fate: NDArray[np.int8],
        has_anchor: Flags,
        unknown: Flags,
        arriving: Flags,
        with_preferences: bool,
    ) -> None:
        """Assign fates to arriving cases.

        Parameters
        ----------
        verdict : (p,) of the preferences.
        fate : (n,) of the lists at the gate.
        has_anchor : (n,) lists whose query is known by item or vector.
        unknown, arriving : (m,) impressions of items that are not in the catalogue; those to count.
        with_preferences : whether there is any rule that states some.
        """
        _count(
            lists.block.starts,
            lists.order,
            lists.of,
            lists.faults,
            reading.mark,
            reading.lowest,
            lists.block.clicked,
            reading.click_fate,
            stated.clicked,
            verdict,
            stated.beyond,
            fate,
            has_anchor,
            unknown,
            arriving,
            with_preferences,
            self._counts,
        )

    def count_pairs(self, pairs: Pairs, emitted: int) -> None:
        """The same for co-clicks, with the number that could be emitted."""
        found = (emitted, pairs.repeated, pairs.below_support, pairs.known, len(pairs) - emitted)
        self._counts[_PAIRS : _PAIRS + 1 + len(found)] += np.array([sum(found), *found], np.int64)


# The place of each total; its fates follow it.
_LISTS: Final = NAMES.index("lists")
_SHOWN: Final = NAMES.index("impressions")
_CLICKS: Final = NAMES.index("clicks")
_STATED: Final = NAMES.index("preferences")
_PAIRS: Final = NAMES.index("co-clicks")
_TAKEN: Final = int(TAKEN)
_LATE: Final = int(LATE)
_AGAIN: Final = int(AGAIN)
_BOT: Final = int(BOT)


@compiled
def _count(
    starts: Numbers,
    order: Numbers,
    of: Numbers,
    faults: NDArray[np.int8],
    mark: NDArray[np.int8],
    lowest: Numbers,
    clicked: Numbers,
    click_fate: NDArray[np.int8],
    stated: Numbers,
    verdict: NDArray[np.int8],
    beyond: int,
    fate: NDArray[np.int8],
    has_anchor: Flags,
    unknown: Flags,
    arriving: Flags,
    with_preferences: bool,
    counts: NDArray[np.int64],
) -> None:
    """Add to the counts; cases are in the order of `FATES`, and the first one that holds is the fate."""
    states = np.zeros(len(fate), np.bool_)
    for p in range(len(stated)):
        states[of[stated[p]]] = True
        counts[_STATED] += 1
        counts[_STATED + 1 + verdict[p]] += 1
    counts[_STATED] += beyond
    counts[_STATED + 10] += beyond
    for i in range(len(fate)):
        here = False
        for place in range(starts[i], starts[i + 1]):
            at = order[place]
            if not arriving[at]:
                continue
            here = True
            counts[_SHOWN] += 1
            if faults[i] != 0 or unknown[at]:
                counts[_SHOWN + 1] += 1
            elif fate[i] != _TAKEN:
                counts[_SHOWN + 2] += 1
            elif mark[at] == 2:
                counts[_SHOWN + 3] += 1
            elif mark[at] == 1:
                counts[_SHOWN + 4] += 1
            elif place <= lowest[i]:
                counts[_SHOWN + 5] += 1
            else:
                counts[_SHOWN + 6] += 1
        if not here:
            continue
        counts[_LISTS] += 1
        if faults[i] != 0:
            counts[_LISTS + 1] += 1
        elif fate[i] == _LATE:
            counts[_LISTS + 2] += 1
        elif fate[i] == _AGAIN:
            counts[_LISTS + 3] += 1
        elif fate[i] == _BOT:
            counts[_LISTS + 4] += 1
        elif not has_anchor[i]:
            counts[_LISTS + 5] += 1
        elif lowest[i] < 0:
            counts[_LISTS + 6] += 1
        elif with_preferences and not states[i]:
            counts[_LISTS + 7] += 1
        else:
            counts[_LISTS + 8] += 1
    for j in range(len(clicked)):
        at = clicked[j]
        if not arriving[at]:
            continue
        counts[_CLICKS] += 1
        if faults[of[at]] != 0 or unknown[at]:
            counts[_CLICKS + 1] += 1
        elif fate[of[at]] != _TAKEN:
            counts[_CLICKS + 2] += 1
        elif click_fate[j] == 2:
            counts[_CLICKS + 3] += 1
        elif click_fate[j] == 1:
            counts[_CLICKS + 4] += 1
        else:
            counts[_CLICKS + 5] += 1
