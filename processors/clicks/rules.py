"""The readings of clicks as preferences: which item of a list is preferred over which other.

References
----------
Joachims: Optimizing search engines using clickthrough data. KDD 2002. (Click > Skip Above)
Joachims, Granka, Pan, Hembrooke, Gay: Accurately interpreting clickthrough data as implicit feedback. SIGIR 2005.
(the other rules)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.clicks.lists import Flags, Lists, Numbers, Times
from kinstream.streams.compute.compilation import compiled
from kinstream.streams.records.values import LIST_RULE, PREFERENCE_RULES

#: Marks of an impression in its list.
UNCLICKED: Final = 0
SHORT: Final = 1
CLICKED: Final = 2
#: Fates of a click.
USED: Final = 0
REPEATED: Final = 1
TOO_SHORT: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Clicks of all lists, read.

    Parameters
    ----------
    mark : (m,) int8: UNCLICKED, SHORT (only clicks that were too short to count) or CLICKED.
    first_ms : (m,) int64 time of the first click that counts.
    last : (n,) int32 impression that was clicked last in each list, the lower one of two; -1 without clicks.
    lowest : (n,) int32 place in the order of the lowest clicked impression; -1 without clicks.
    click_fate : (k,) int8: USED, REPEATED (not the first on its item) or TOO_SHORT.
    """

    mark: NDArray[np.int8]
    first_ms: Times
    last: Numbers
    lowest: Numbers
    click_fate: NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Preferences:
    """Preferences in the order of lists, then of clicked items from the top down, then of the others.

    Parameters
    ----------
    clicked, other : (p,) int32 impressions; the first is preferred.
    rule : (p,) int8 place in the given rules: the first that states it.
    beyond : number of preferences beyond the limit of a list.
    """

    clicked: Numbers
    other: Numbers
    rule: NDArray[np.int8]
    beyond: int

    def __len__(self) -> int:
        return len(self.clicked)


def read_clicks(lists: Lists, min_dwell_ms: int) -> Reading:
    """Which impressions were clicked. A click known to be shorter than `min_dwell_ms` does not count."""
    block = lists.block
    shown, count = len(lists.of), len(lists)
    mark, first_ms = np.zeros(shown, np.int8), np.zeros(shown, np.int64)
    last, lowest = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    fate = np.empty(len(block.clicked), np.int8)
    _read(
        block.starts,
        lists.of,
        lists.order,
        block.position,
        block.clicked,
        block.click_ms,
        block.dwell_ms,
        min_dwell_ms,
        mark,
        first_ms,
        last,
        lowest,
        fate,
    )
    return Reading(mark, first_ms, last, lowest, fate)


@compiled
def _read(
    starts: Numbers,
    of: Numbers,
    order: Numbers,
    position: Numbers,
    clicked: Numbers,
    click_ms: Times,
    dwell_ms: Times,
    min_dwell_ms: int,
    mark: NDArray[np.int8],
    first_ms: Times,
    last: Numbers,
    lowest: Numbers,
    fate: NDArray[np.int8],
) -> None:
    """Fill the last five arrays."""
    last_ms = np.full(len(last), -1, np.int64)
    for j in range(len(clicked)):
        at = clicked[j]
        i = of[at]
        if 0 <= dwell_ms[j] < min_dwell_ms:
            fate[j] = 2
            if mark[at] == 0:
                mark[at] = 1
            continue
        fate[j] = 1 if mark[at] == 2 else 0
        first_ms[at] = min(first_ms[at], click_ms[j]) if mark[at] == 2 else click_ms[j]
        mark[at] = 2
        later = click_ms[j] > last_ms[i]
        if later or (click_ms[j] == last_ms[i] and position[at] > position[last[i]]):
            last_ms[i], last[i] = click_ms[j], at
    for i in range(len(last)):
        for place in range(starts[i], starts[i + 1]):
            if last[i] >= 0 and mark[order[place]] == 2:
                lowest[i] = place


def preferences(
    lists: Lists, reading: Reading, rules: Sequence[str], use: Flags, arriving: Flags, max_per_list: int
) -> Preferences:
    """The preferences of the rules in the given lists.

    Parameters
    ----------
    rules : names of `PREFERENCE_RULES`, the first one first; or `LIST_RULE` alone, which also states each clicked item
        over itself.
    use : (n,) lists to read.
    arriving : (m,) only preferences with one of these impressions are returned.
    max_per_list : of one list, whether or not they touch an arriving impression.
    """
    numbers = np.array([(*PREFERENCE_RULES, LIST_RULE).index(rule) for rule in rules], np.int8)
    arguments = (
        lists.block.starts,
        lists.order,
        reading.mark,
        reading.first_ms,
        reading.last,
        use,
        arriving,
        numbers,
        max_per_list,
    )
    none = np.empty(0, np.int32)
    count, beyond = _prefer(*arguments, none, none, np.empty(0, np.int8))
    clicked, other = np.empty(count, np.int32), np.empty(count, np.int32)
    rule = np.empty(count, np.int8)
    if count:
        _prefer(*arguments, clicked, other, rule)
    return Preferences(clicked, other, rule, beyond)


@compiled
def _prefer(
    starts: Numbers,
    order: Numbers,
    mark: NDArray[np.int8],
    first_ms: Times,
    last: Numbers,
    use: Flags,
    arriving: Flags,
    rules: NDArray[np.int8],
    max_per_list: int,
    clicked: Numbers,
    other: Numbers,
    rule: NDArray[np.int8],
) -> tuple[int, int]:
    """Fill the last three arrays, if they have room; returns their number, and the number beyond the limit."""
    count, beyond = 0, 0
    for i in range(len(last)):
        if not use[i] or last[i] < 0 or not len(rules):
            continue
        low, high = starts[i], starts[i + 1]
        made = 0
        for c in range(low, high):
            winner = order[c]
            if mark[winner] != 2:
                continue
            for o in range(low, high):
                loser = order[o]
                if (o == c and rules[0] != 5) or mark[loser] == 1:
                    continue
                skipped = mark[loser] == 0
                says = -1
                for r in range(len(rules)):
                    if (
                        (rules[r] == 0 and skipped and o < c)
                        or (rules[r] == 1 and skipped and o < c and winner == last[i])
                        or (rules[r] == 2 and skipped and o == c - 1)
                        or (rules[r] == 3 and skipped and o == c + 1)
                        or (rules[r] == 4 and not skipped and first_ms[loser] < first_ms[winner])
                        or (rules[r] == 5 and (o == c or (skipped and o < c)))
                    ):
                        says = r
                        break
                if says < 0:
                    continue
                made += 1
                touches = arriving[winner] or arriving[loser]
                if made > max_per_list:
                    beyond += touches
                elif touches:
                    if len(clicked):
                        clicked[count], other[count], rule[count] = winner, loser, says
                    count += 1
    return count, beyond
