"""A memory of what was chosen for a query, as the learner keeps it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels import remembered as kernels
from kinstream.learners.ranking.clicks import FIELDS, LastClicks
from kinstream.learners.ranking.remembered import DOUBT, SAME, WORDS, Remembered
from kinstream.learners.ranking.weights import CLICKED, COUNTERS, Whole
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.state import State, with_prefix, without_prefix

Keys = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Values = NDArray[np.float64]

#: Items of a query.
ITEMS: Final = 16
#: Lists of a query after which what they said has faded to 1 / e.
FADES: Final = 100.0
_ARRAYS: Final = ("bits", "items", "clicks", "seen", "used", "turns", "begun")
#: Those that queries need.
_SHOWN: Final = _ARRAYS[:4]
#: Clicks for each query that is remembered which can be taken back: the last ones of all.
CLICKS: Final = 4
_LAST: Final = "last."
_KEEP: Final = float(np.exp(-1.0 / FADES))
#: What is left of clicks by rounding, as a share of what is taken away.
_ROUNDING: Final = 1e-3


class Memory:
    """Of the queries that came last, the items that were chosen for each.

    An item has the rate c / (1 + s) for a query. A list with P clicked items adds min(1, 3 / |P|) a / n to c and a e /
    n to s for each, with a what the action weighs and e the probability with which the place is examined, and e / n to
    s for all others of the list that have a c; n counts the lists that one user had for the query. With each list of a
    query its sums keep exp(-1 / 100). A query has at most 16 items: the one of the lowest rate makes room. Two vectors
    are of one query if the signs of 512 random directions differ in 4 at most
    (`kinstream.learners.ranking.remembered`). Nothing is remembered of vectors of zeros, which may stand for any text.

    What one of the last clicks added can be taken away again, as far as it has not faded, and so can an item.

    Parameters
    ----------
    queries : that are remembered at most; that which came least lately makes room.
    """

    def __init__(self, queries: int) -> None:
        self._most = queries
        self._bits, self._items = np.zeros((0, WORDS), np.uint64), np.zeros((0, ITEMS), np.uint64)
        self._clicks, self._seen = (np.zeros((0, ITEMS), np.float32) for _ in range(2))
        self._used, self._turns = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._begun = np.zeros((0, ITEMS), np.int32)
        self._last = LastClicks(CLICKS * queries)
        self._tally = np.zeros(kernels.TALLY, np.int64)
        self._counters, self._added = np.zeros((2, COUNTERS), np.uint16), np.zeros(1, np.int64)
        self._shown: Remembered | None = None

    def learn(
        self, lists: Whole, names: Keys, bits: Keys, of: Numbers, ids: Keys | None = None
    ) -> tuple[Values, Flags]:
        """Remember lists in order.

        Parameters
        ----------
        names : (t,) hashes of the items.
        bits, of : (b, `WORDS`) of queries, and (k,) which of them each list has.
        ids : (k,) hashes of the lists' ids; of lists without, nothing can be taken back.

        Returns
        -------
        (t,) the rate of each item before its list, and (k,) whether its query was known.
        """
        self._shown = None
        self._make_room(int(self._tally[kernels.ROWS]) + len(lists.queries))
        said, knows = np.empty(len(names)), np.empty(len(lists.queries), np.bool_)
        into, share = np.empty((len(lists.queries), 2), np.int64), np.empty((len(lists.queries), 2))
        rule = np.array([DOUBT, CLICKED, _KEEP, SAME])
        shown = (np.ascontiguousarray(lists.starts, np.int32), np.ascontiguousarray(names))
        clicks = (np.ascontiguousarray(lists.clicked), np.ascontiguousarray(lists.worth))
        kept = (self._bits, self._items, self._clicks, self._seen, self._used, self._turns, self._begun)
        fixed = (np.ascontiguousarray(lists.actors), float(lists.exponent), rule)
        counted = (self._tally, self._counters, self._added)
        everything: Any = (bits, of, *shown, *clicks, *fixed, *kept, *counted, said, knows, into, share)
        kernels.remember(*everything)
        if ids is not None:
            self._note(lists, names, ids, into, share)
        return said, knows

    def _note(self, lists: Whole, names: Keys, ids: Keys, into: Numbers, share: Values) -> None:
        """Note what the clicks of lists added; `into` and `share` are as of the kernel."""
        of = np.repeat(np.arange(len(into)), np.diff(lists.starts))
        places = np.flatnonzero(lists.clicked & (into[of, 0] >= 0))
        of = of[places]
        worth, examined = lists.worth[places], (places - lists.starts[of] + 1.0) ** -float(lists.exponent)
        clicks = np.empty(len(places), FIELDS)
        clicks["list"], clicks["item"] = ids[of], names[places]
        clicks["row"], clicks["turn"] = into[of, 0], into[of, 1]
        clicks["clicks"], clicks["seen"] = share[of, 1] * worth, share[of, 0] * (worth - 1.0) * examined
        self._last.add(clicks)

    # ---- forgetting -----------------------------------------------------------------------------------------------

    def forget(self, retracted: Keys) -> None:
        """Take away what lists said of items.

        Parameters
        ----------
        retracted : (r, 2) as in `kinstream.streams.records.values.ConstraintBlock`.
        """
        self._shown = None
        every = retracted[:, 0] == 0
        for of, item in retracted[~every].tolist():
            for _, name, *added in self._last.take(of, item).tolist():
                self._take_away(name, *added)
        erased = retracted[every, 1]
        if len(erased):
            self._last.forget(erased)
            used = int(self._tally[kernels.ROWS])
            rows, slots = np.nonzero(np.isin(self._items[:used], erased) & (self._items[:used] != 0))
            for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
                self._clear(row, slot)

    def _take_away(self, name: int, row: int, turn: int, clicks: float, seen: float) -> None:
        # The row may have another query by now, and an item that made room may have come again.
        slots = np.flatnonzero((self._items[row] == name) & (self._begun[row] <= turn))
        if not len(slots):
            return
        slot, left = int(slots[0]), _KEEP ** float(self._turns[row] - turn)
        remaining = float(self._clicks[row, slot]) - left * clicks
        if remaining <= _ROUNDING * left * clicks:
            self._clear(row, slot)
            return
        self._clicks[row, slot] = remaining
        self._seen[row, slot] = max(0.0, float(self._seen[row, slot]) - left * seen)

    def _clear(self, row: int, slot: int) -> None:
        """Drop an item of a query, and the query with its last item."""
        self._items[row, slot], self._clicks[row, slot], self._seen[row, slot] = 0, 0.0, 0.0
        if not self._items[row].any():
            # No query is near this one.
            self._bits[row], self._used[row] = 0, 0

    def _make_room(self, queries: int) -> None:
        """Arrays for so many queries at least, as far as there may be."""
        had, wanted = len(self._used), min(queries, self._most)
        if wanted <= had:
            return
        more = min(max(wanted, 2 * had), self._most) - had
        for name in _ARRAYS:
            one: NDArray[Any] = getattr(self, f"_{name}")
            setattr(self, f"_{name}", np.concatenate([one, np.zeros((more, *one.shape[1:]), one.dtype)]))

    @property
    def remembered(self) -> Remembered:
        """A copy for queries."""
        if self._shown is None:
            used = int(self._tally[kernels.ROWS])
            self._shown = Remembered(*(getattr(self, f"_{name}")[:used].copy() for name in _SHOWN))
        return self._shown

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All that later results depend on; arrays are copies."""
        used = int(self._tally[kernels.ROWS])
        return {name: getattr(self, f"_{name}")[:used].copy() for name in _ARRAYS} | {
            "tally": self._tally.copy(),
            "counters": self._counters.copy(),
            "added": self._added.copy(),
            **with_prefix(_LAST, self._last.state()),
        }

    def restore(self, state: State) -> None:
        """Continue from `state()`.

        Raises
        ------
        SettingsError
            It remembers more queries than this memory has room for.
        """
        used = len(np.asarray(state["bits"]))
        if used > self._most:
            raise SettingsError(f"remember is {self._most}, but the state to restore holds {used} queries")
        self._make_room(used)
        for name in _ARRAYS:
            # Up to version 6, nothing could be taken back.
            getattr(self, f"_{name}")[:used] = state.get(name, 0)
        if last := without_prefix(_LAST, state):
            self._last.restore(last)
        self._tally = np.array(state["tally"], np.int64)
        self._counters = np.array(state["counters"], np.uint16)
        self._added = np.array(state["added"], np.int64)
        self._shown = None
