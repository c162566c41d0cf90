"""Filters of a click log: repeated lists, bots, repeated votes, sessions with too many preferences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.recent_keys import Memory
from kinstream.processors.base.watermark import Watermark
from kinstream.processors.clicks import kernels as kernels
from kinstream.processors.clicks.keys import Keys, list_keys
from kinstream.processors.clicks.lists import Fault, Flags, Lists, named, split_rows
from kinstream.processors.clicks.randomised_pairs import uppers
from kinstream.processors.clicks.rules import Preferences
from kinstream.streams.errors import BadRecord, Reason

#: Corrections of the position bias, in the order of their numbers.
BIASES: Final = ("none", "weights", "thinning", "fair-pairs", "randomised")

#: Fates of a list at the gate.
TAKEN: Final = kernels.LIST_TAKEN
AGAIN: Final = kernels.LIST_AGAIN
BOT: Final = kernels.LIST_BOT
LATE: Final = 3
BAD: Final = 4
#: For a redrive: it applies none of the list's impressions.
ABSENT: Final = 5


class Gate:
    """Decides by event time which lists are accepted.

    Parameters
    ----------
    watermark : of the space.
    window_ms : a list that was seen less than this before or after is ignored; 0 accepts all.
    max_clicks_per_hour : a voter with more clicks in an hour of event time is ignored for that hour and the next; 0
        accepts all. Lists accepted before the cap was reached stay.
    max_clicks_per_address : the same for an address, which several voters may share.
    max_lists_per_day : of a voter's lists with clicks in a day of event time, further ones are ignored; 0 accepts all.
    most : entries of each memory.
    keep_capped : whether `left_out` refuses what a cap has left out, and a redrive passes the caps.
    """

    def __init__(
        self,
        watermark: Watermark,
        window_ms: int,
        max_clicks_per_hour: int,
        max_clicks_per_address: int,
        most: int,
        keep_capped: bool = False,
        max_lists_per_day: int = 0,
    ) -> None:
        self.watermark = watermark
        self.window_ms = window_ms
        self.max_clicks_per_hour = max_clicks_per_hour
        self.max_clicks_per_address = max_clicks_per_address
        self.max_lists_per_day = max_lists_per_day
        self.keep_capped = keep_capped
        self._seen = Memory(most)
        self._hours = Memory(most)
        self._days = Memory(most)
        #: (n,) of the lists admitted last, those of an address above its cap.
        self._of_address: Flags = np.zeros(0, np.bool_)
        #: The watermark before the last event.
        self._floor_ms = -1
        #: With the last event the log's time went back, and no right time is later than this; else None.
        self.turned_ms: int | None = None

    def admit(self, lists: Lists, keys: Keys, arriving: Flags | None, append_ms: int) -> NDArray[np.int8]:
        """Accept lists, one after the other; those too far ahead of the log get their fault.

        Parameters
        ----------
        arriving : (m,) impressions that a redrive applies. Such lists are neither late nor seen before, and
            their clicks are not counted again.

        Returns
        -------
        (n,) TAKEN, AGAIN, BOT, LATE, BAD or ABSENT.
        """
        count = len(lists)
        fate = np.full(count, TAKEN, np.int8)
        if arriving is not None:
            fate[:] = ABSENT
            fate[lists.of[arriving]] = TAKEN
        fate[(lists.faults != Fault.NONE) & (fate == TAKEN)] = BAD
        before = self.watermark.time_ms
        asked = np.flatnonzero(fate == TAKEN)
        ahead, late = self.watermark.judge(lists.time_ms[asked], append_ms)
        self._floor_ms = min(before, self.watermark.time_ms)
        # The log's time was wrong, and is corrected: what it has left would count until that time comes.
        self.turned_ms = append_ms + self.watermark.max_ahead_ms if self._floor_ms < before else None
        if self.turned_ms is not None:
            for memory in (self._seen, self._hours, self._days):
                memory.forget_after(self.turned_ms)
        lists.faults[asked[ahead]] = Fault.AHEAD
        fate[asked[ahead]] = BAD
        if arriving is None:
            fate[asked[late]] = LATE
        candidates = fate == TAKEN
        # Records of a load are counted once by their sequence; lists without a load are identified by their ids.
        named = lists.block.load is None and self.window_ms > 0
        has_id = np.array([named and bool(name) for name in lists.block.list_ids], np.bool_)
        ids = list_keys(lists, keys) if named else np.zeros((count, 2), np.uint64)
        gone = self.gone_ms(self.window_ms)
        hours_gone, days_gone = (self.gone_ms(hours * kernels.HOUR_MS) for hours in (2, 24))
        clicks = np.bincount(lists.of[lists.block.clicked], minlength=count).astype(np.int64)
        caps = self.max_clicks_per_hour, self.max_clicks_per_address, self.max_lists_per_day
        if self.keep_capped and arriving is not None:
            caps = 0, 0, 0
        kernels.admit(
            candidates,
            arriving is None,
            lists.time_ms,
            ids,
            has_id,
            clicks,
            keys.voters,
            keys.has_voter,
            keys.addresses,
            keys.has_address,
            self.window_ms,
            *caps,
            self._seen.room_for(count, gone),
            self._hours.room_for(count + int(keys.has_address.sum()), hours_gone),
            self._days.room_for(count, days_gone),
            fate,
        )
        self._seen.settle(gone)
        self._hours.settle(hours_gone)
        self._days.settle(days_gone)
        self._of_address = fate == kernels.LIST_OF_BOT_ADDRESS
        fate[self._of_address] = BOT
        return fate

    def left_out(self, lists: Lists, fate: NDArray[np.int8]) -> list[BadRecord]:
        """Refusals of the lists that were late, and with `keep_capped` of those that a cap has left out."""
        behind_ms = self.watermark.max_late_ms
        made = _refused(
            lists, fate == LATE, Reason.LATE_LIST, f"more than {behind_ms} ms behind the newest list"
        )
        return made + (self._capped(lists, fate) if self.keep_capped else [])

    def _capped(self, lists: Lists, fate: NDArray[np.int8]) -> list[BadRecord]:
        left_out = fate == BOT
        with_user = left_out & ~self._of_address & (lists.block.user >= 0)
        found = (
            (Reason.CAPPED_USER, with_user),
            (Reason.CAPPED_SESSION, left_out & ~self._of_address & ~with_user),
            (Reason.CAPPED_ADDRESS, self._of_address),
        )
        why = "more clicks in an hour, or lists in a day, than its cap"
        return [error for reason, some in found for error in _refused(lists, some, reason, why)]

    def gone_ms(self, window_ms: int) -> int:
        """Entries at this time or before do not affect the event accepted last, or later ones."""
        return self._floor_ms - self.watermark.max_late_ms - window_ms

    @property
    def evicted(self) -> int:
        """Entries that were dropped because a memory was full."""
        return self._seen.evicted + self._hours.evicted + self._days.evicted

    def state(self) -> State:
        state = {
            "watermark": self.watermark.time_ms,
            **self._seen.state("seen"),
            **self._hours.state("hours"),
        }
        # Without the cap, a state is what it was before there was one.
        return state | (self._days.state("days") if self.max_lists_per_day else {})

    def restore(self, state: State) -> None:
        self.watermark.time_ms = int(state["watermark"])
        self._seen.restore(state, "seen")
        self._hours.restore(state, "hours")
        if self.max_lists_per_day:
            self._days.restore(state, "days")


def _refused(lists: Lists, some: Flags, reason: Reason, why: str) -> list[BadRecord]:
    if not some.any():
        return []
    detail = f"{why}: {named([lists.block.list_ids[i] for i in np.flatnonzero(some)], 'list')}"
    return [BadRecord(reason, detail, part) for part in split_rows(np.flatnonzero(some[lists.of]))]


class PreferenceVotes:
    """Decides which preferences count, and with which weight.

    Parameters
    ----------
    vote_window_ms : a voter has one vote for a query and a pair of items in it; 0: every click is a vote.
    max_per_session : preferences that one session may state; a session ends when it is silent for a vote window, or
        for a day without one. 0 is no limit.
    support, support_window_ms : a preference is emitted from its support-th vote on; the count restarts if there
        was no vote for a window.
    bias : one of `BIASES`.
    exponent, max_weight : the result at rank r = 1, 2, ... is examined with a probability in proportion to
        r^-exponent; a weight is its inverse, at most max_weight.
    most : entries of each memory.
    """

    def __init__(
        self,
        *,
        vote_window_ms: int,
        max_per_session: int,
        support: int,
        support_window_ms: int,
        bias: str,
        exponent: float,
        max_weight: float,
        most: int,
    ) -> None:
        self._session_window = vote_window_ms or 24 * kernels.HOUR_MS
        limits = [
            vote_window_ms,
            max_per_session,
            self._session_window,
            support,
            support_window_ms,
        ]
        self._limits = np.array(limits, np.int64)
        self._bias = BIASES.index(bias)
        self._propensity = np.array([exponent, max_weight], np.float64)
        self._mean = np.zeros(2, np.float64)
        self._votes = Memory(most)
        self._sessions = Memory(most)
        self._supported = Memory(most)

    def forget_after(self, time_ms: int) -> None:
        """Drop what is of later times."""
        for memory in (self._votes, self._sessions, self._supported):
            memory.forget_after(time_ms)

    @property
    def wants_draws(self) -> bool:
        """Whether `judge` needs random numbers."""
        return self._bias == kernels.THINNING

    @property
    def weighted(self) -> bool:
        """Whether weights may differ from 1."""
        return self._bias == kernels.WEIGHTS

    def judge(
        self,
        lists: Lists,
        keys: Keys,
        preferences: Preferences,
        mark: NDArray[np.int8],
        presence: NDArray[np.int8],
        draws: NDArray[np.float64],
        gone_ms: Callable[[int], int],
    ) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Fate (`kernels.EMITTED` and those after it) and weight of each preference, (p,) both.

        Parameters
        ----------
        mark : (m,) as in `rules.Reading`.
        presence : (m,) EMITTED for an item that can be used, else HELD_BACK or ITEM_GONE.
        draws : (m,) in [0, 1) where `wants_draws`; one for all preferences of a click.
        gone_ms : time up to which entries no longer matter, by window.
        """
        count = len(preferences)
        fate, weight = np.empty(count, np.int8), np.empty(count, np.float32)
        if not count:
            return fate, weight
        votes_gone, sessions_gone = gone_ms(int(self._limits[0])), gone_ms(self._session_window)
        support_gone = gone_ms(int(self._limits[4]))
        block = lists.block
        kernels.judge(
            preferences.clicked,
            preferences.other,
            lists.of,
            block.item,
            block.position,
            lists.keys,
            mark,
            presence,
            lists.time_ms,
            keys.queries,
            keys.voters,
            keys.has_voter,
            keys.sessions,
            keys.has_session,
            self._limits,
            self._bias,
            self._propensity,
            draws,
            uppers(lists) if self._bias == kernels.RANDOMISED else np.empty(0, np.int32),
            self._mean,
            self._votes.room_for(count, votes_gone),
            self._sessions.room_for(count, sessions_gone),
            self._supported.room_for(count, support_gone),
            fate,
            weight,
        )
        self._votes.settle(votes_gone)
        self._sessions.settle(sessions_gone)
        self._supported.settle(support_gone)
        return fate, weight

    @property
    def evicted(self) -> int:
        """Entries that were dropped because a memory was full."""
        return self._votes.evicted + self._sessions.evicted + self._supported.evicted

    def state(self) -> State:
        return {
            "mean": self._mean.copy(),
            **self._votes.state("votes"),
            **self._sessions.state("sessions"),
            **self._supported.state("supported"),
        }

    def restore(self, state: State) -> None:
        self._mean = np.array(state["mean"], np.float64)
        self._votes.restore(state, "votes")
        self._sessions.restore(state, "sessions")
        self._supported.restore(state, "supported")
