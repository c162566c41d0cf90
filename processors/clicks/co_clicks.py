"""Items that are clicked for the same query in one session are similar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.recent_keys import Memory
from kinstream.processors.clicks import kernels as kernels
from kinstream.processors.clicks.keys import Keys
from kinstream.processors.clicks.lists import Flags, Lists, Numbers
from kinstream.processors.clicks.rules import CLICKED, Reading

RULE: Final = "co-click"
#: Number of last clicked items for a query that a session remembers.
REMEMBERED: Final = 8
#: Keys of items are larger than times: this factor fewer sessions are remembered than votes.
_FEWER: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of items that have just reached their support.

    Parameters
    ----------
    keys : (r, 2, 2) hashes of both items, the one clicked first in front.
    lists : (r,) int32 list whose click brought the pair.
    repeated, below_support, known : number of pairs of clicks that were not a new vote, that are not supported yet, and
        that were emitted before.
    """

    keys: NDArray[np.uint64]
    lists: Numbers
    repeated: int
    below_support: int
    known: int

    def __len__(self) -> int:
        return len(self.keys)


class CoClicks:
    """Pairs of co-clicked items, each emitted once, when its `support`-th vote arrives.

    A clicked item makes a pair with each item that its session clicked before for the same query, in this list or in
    an earlier one. A list without session or without query stands alone.

    Parameters
    ----------
    support, support_window_ms : votes that a pair needs, over all queries; the count restarts, and the pair may be
        given again, if there was no vote for a window.
    vote_window_ms : a voter has one vote for a pair in it; 0: every co-click is a vote. A session that is silent for
        this long (a day without a window) forgets its clicks.
    most : entries of each memory.

    Notes
    -----
    `gone_ms` gives, by window, the time up to which entries no longer matter (`Gate.gone_ms`).
    """

    def __init__(self, support: int, support_window_ms: int, vote_window_ms: int, most: int) -> None:
        session_window = vote_window_ms or 24 * kernels.HOUR_MS
        self._limits = np.array([vote_window_ms, support, support_window_ms, session_window], np.int64)
        self._clicked = Memory(max(1, most // _FEWER), REMEMBERED)
        self._votes = Memory(most)
        self._supported = Memory(most)

    def forget_after(self, time_ms: int) -> None:
        """Drop what is of later times."""
        for memory in (self._clicked, self._votes, self._supported):
            memory.forget_after(time_ms)

    def pairs(
        self,
        lists: Lists,
        keys: Keys,
        reading: Reading,
        use: Flags,
        usable: Flags,
        arriving: Flags,
        gone_ms: Callable[[int], int],
    ) -> Pairs:
        """Add the clicks of lists and return the pairs that are now supported.

        Parameters
        ----------
        use : (n,) lists to use.
        usable : (m,) impressions whose items may take part.
        arriving : (m,) the others are context of a redrive, and make no pairs among themselves.
        """
        use = use & (reading.last >= 0)
        clicks = int(np.count_nonzero((reading.mark == CLICKED) & usable & arriving & use[lists.of]))
        room = clicks * REMEMBERED if use.any() else 0
        found, of = np.empty((room, 2, 2), np.uint64), np.empty(room, np.int32)
        tally = np.zeros(4, np.int64)
        count = 0
        if use.any():
            votes_gone, support_gone, clicked_gone = (gone_ms(int(self._limits[i])) for i in (0, 2, 3))
            block = lists.block
            count = kernels.pair_up(
                use,
                block.starts,
                lists.order,
                block.item,
                reading.mark,
                usable,
                arriving,
                lists.keys,
                lists.time_ms,
                keys.scopes,
                keys.has_scope,
                keys.voters,
                keys.has_voter,
                self._limits,
                self._clicked.room_for(len(lists), clicked_gone),
                self._votes.room_for(room, votes_gone),
                self._supported.room_for(room, support_gone),
                found,
                of,
                tally,
            )
            self._clicked.settle(clicked_gone)
            self._votes.settle(votes_gone)
            self._supported.settle(support_gone)
        return Pairs(
            found[:count].copy(),
            of[:count].copy(),
            repeated=int(tally[kernels.PAIR_REPEATED]),
            below_support=int(tally[kernels.PAIR_BELOW_SUPPORT]),
            known=int(tally[kernels.PAIR_KNOWN]),
        )

    @property
    def evicted(self) -> int:
        """Entries that were dropped because a memory was full."""
        return self._clicked.evicted + self._votes.evicted + self._supported.evicted

    def state(self) -> State:
        return {
            **self._clicked.state("co.clicked"),
            **self._votes.state("co.votes"),
            **self._supported.state("co.supported"),
        }

    def restore(self, state: State) -> None:
        self._clicked.restore(state, "co.clicked")
        self._votes.restore(state, "co.votes")
        self._supported.restore(state, "co.supported")
