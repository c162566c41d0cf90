"""What the verdicts of one kind of events say together."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np

from kinstream.learners.held_out.evidence import Evidence
from kinstream.learners.held_out.sums import KEEP, KEEP_LISTS, Numbers, Sums
from kinstream.streams.records.held_out import HeldOut
from kinstream.streams.records.state import State, with_prefix, without_prefix


class Account:
    """Sums over all events and over a window, and the evidence against the model; it never changes.

    Parameters
    ----------
    lists : whether the events are lists, of which different queries are counted.
    """

    def __init__(self, *, lists: bool) -> None:
        self._total, self._window = Sums.none(), Sums.none()
        self._against = Evidence.none()
        self._keep = KEEP_LISTS if lists else KEEP
        self._queries = 0 if lists else None
        self.events = 0

    def after(
        self, losses: Numbers, worth: Numbers | None = None, queries: int = 0
    ) -> tuple[Self, HeldOut | None]:
        """The account after some events, and the verdicts for an outcome.

        Parameters
        ----------
        losses : (k, 6) by metric.
        worth : (k,) weights in (0, 1]; 1 if left out.
        queries : of lists, how many have a query that was not there before.
        """
        if not len(losses):
            return self, None
        found = copy(self)
        found._total = self._total.after(losses, worth=worth)
        found._window = self._window.after(losses, self._keep, worth)
        weights = np.ones(len(losses)) if worth is None else worth
        found._against = self._against.after(losses, weights, self._keep)
        found.events = self.events + len(losses)
        if self._queries is not None:
            found._queries = self._queries + queries
        return found, found.standing(Sums.none().after(losses, worth=worth), len(losses))

    def standing(self, block: Sums, judged: int) -> HeldOut:
        """Where the model stands.

        Parameters
        ----------
        block : over `judged` events of a block.
        """
        window, against = self._window.value(), self._against.log_e
        return HeldOut(block.value(), self.events, window, judged, self._queries, against)

    def state(self) -> State:
        """All of it; arrays are copies."""
        state: State = with_prefix("total.", self._total.state())
        state |= with_prefix("window.", self._window.state())
        state |= {"against": self._against.array(), "events": self.events}
        return state if self._queries is None else state | {"queries": self._queries}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`; one of an earlier version has no evidence."""
        self._total, self._window = (Sums.of(without_prefix(name, state)) for name in ("total.", "window."))
        self._against = Evidence.of(state["against"]) if "against" in state else Evidence.none()
        self.events = int(state["events"]) if "events" in state else self._total.events
        if self._queries is not None:
            self._queries = int(state["queries"])
