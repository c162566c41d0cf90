"""The tail: queries that nobody has asked before, as opposed to those that come again.

A model may rank the queries that it has learned better, and others worse. A query comes again if a list of the same
query was clicked before, in any event of the space, drafted or not: that is what a learner can have learned. The same
query means the same vectors bit for bit, or the same item. One without either, or one that was forgotten, is of the
tail.

The tail has a test of its own, by the bets of `kinstream.gate.lists.evidence`. Of each clicked list it takes
the credit x if the list is of the tail, and 0 if its query comes again. The challenger passes when it is shown that the
mean is above `-MARGIN`: what it loses in the tail is less than 1 % of all votes. So where few queries are new, little
has to be shown of them. Its votes in the tail must not lose more than 1 % either, as they were counted.

One comparison has too few new queries to show 1 %. So comparisons with one serving model share this evidence: a model
begins with at most half of what it needs, and lacks at most as much. If all challengers lose more, one passes with a
probability of at most `error`, over all looks, and each that begins with the least adds at most `error`^1.5; one that
loses more after others that did not passes with at most the root of `error`.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from kinstream.gate.lists.evidence import Evidence
from kinstream.gate.values import List
from kinstream.streams.records.state import State

#: What a challenger may lose in the tail, as a share of all votes.
MARGIN: Final = 0.01
#: Queries that are remembered; beyond it those are forgotten that were asked the longest ago.
MOST_QUERIES: Final = 100_000


class Tail:
    """The queries of a space that were asked, and the evidence of its comparison in the tail."""

    def __init__(self, most: int = MOST_QUERIES) -> None:
        self._most = most
        #: Clicked lists of the epoch, drafted or not: no model has learned more.
        self.learned = 0
        #: The one asked last is the last.
        self._asked: dict[int, None] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the comparison, and what those before have shown."""
        self._evidence = Evidence()
        self._begin()

    def _begin(self) -> None:
        #: Of lists of the tail alone: those that the challenger won, lost, and ties; their votes, and their credit.
        self.wins = self.losses = self.ties = 0
        self.votes = self.credit = 0.0

    def comes_again(self, one: List) -> bool:
        """Whether the query of a list was asked before."""
        return one.query in self._asked

    def note(self, one: List) -> None:
        """Note a list that came back, after it was counted: if it was clicked, its query was asked."""
        if not one.clicked:
            return
        self.learned += 1
        if one.query is None:
            return
        self._asked.pop(one.query, None)
        self._asked[one.query] = None
        if len(self._asked) > self._most:
            del self._asked[next(iter(self._asked))]

    def count(self, credit: float, weight: float, comes_again: bool) -> None:
        """Count a clicked list of the comparison, with its weight."""
        if not comes_again:
            self.wins += credit > 0.0
            self.losses += credit < 0.0
            self.ties += credit == 0.0
            self.votes += weight
            self.credit += weight * credit
        lost = 0.0 if comes_again else credit
        self._evidence = self._evidence.after((lost + MARGIN) / (1.0 + MARGIN), weight)

    def passes(self, error: float) -> bool:
        """Whether the challenger loses as little as a promotion wants."""
        return self.log_e >= needed(error) and self.credit >= -MARGIN * self.votes

    def fails(self, error: float) -> bool:
        """Whether it is shown that the challenger loses more."""
        return self._evidence.worse(error)

    def end(self, promoted: bool, error: float) -> None:
        """End the comparison; one with another serving model follows if the challenger was promoted."""
        most = needed(error) / 2.0
        more = min(most, max(-most, self.log_e)) - self.log_e
        carried = tuple(log + more for log in self._evidence.for_bets)
        self._evidence = Evidence() if promoted else Evidence(for_bets=carried)
        self._begin()

    @property
    def log_e(self) -> float:
        """The log e-value that less than the margin is lost."""
        return self._evidence.log_e_for

    def measured(self) -> dict[str, float]:
        """What a decision says of it."""
        return {
            "tail_votes": self.votes,
            "tail_wins": self.wins,
            "tail_losses": self.losses,
            "tail_ties": self.ties,
            "tail_log_e": self.log_e,
        }

    def plain(self) -> dict[str, Any]:
        """The numbers of the state, for JSON."""
        return {
            "learned": self.learned,
            "counts": [self.wins, self.losses, self.ties, self.votes, self.credit],
            "evidence": asdict(self._evidence),
        }

    def state(self) -> State:
        """The queries; the numbers are in `plain`."""
        return {"asked": np.array(list(self._asked), np.uint64)}

    def restore(self, state: State, plain: dict[str, Any] | None) -> None:
        """From a state; one before `gate/7` has none."""
        self.inherit(state, plain)
        if plain is not None:
            self.wins, self.losses, self.ties, self.votes, self.credit = plain["counts"]
            self._evidence = Evidence.of(plain["evidence"])

    def inherit(self, state: State, plain: dict[str, Any] | None) -> None:
        """Take over the queries; a comparison begins anew, perhaps with other settings."""
        if plain is not None:
            self.learned = int(plain["learned"])
            self._asked = dict.fromkeys(np.asarray(state["asked"]).tolist())


def needed(error: float) -> float:
    """The log e-value at which a challenger passes."""
    return -math.log(error)
