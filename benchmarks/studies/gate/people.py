"""Simulated users of lists of ten items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]

#: Probability of a click on an item that is looked at, if it answers the query and if it does not.
RELEVANT, NOISE = 0.9, 0.02
ACCOUNTS: Final = 20


@dataclass(frozen=True, slots=True)
class Users:
    """Who clicks. Place r is looked at with probability r^-1/2.

    Parameters
    ----------
    random : place r is clicked with probability 1 / r, whatever is there.
    poisoned : share of the sessions by 20 accounts, which click each item that does not answer the query with
        probability 1/2.
    knowing : the same share by 20 accounts which know what the candidate alone would show, and click the first of it.
    """

    random: bool = False
    poisoned: float = 0.0
    knowing: float = 0.0

    def clicks(
        self, answers: Flags, only: Flags, draw: np.random.Generator, session: int
    ) -> tuple[str, Flags]:
        """The user of a session, and what is clicked.

        Parameters
        ----------
        answers : (k,) which shown items answer the query.
        only : (k,) which of them the serving model would not show.
        """
        rank = np.arange(1, len(answers) + 1)
        drawn = draw.random((3, len(answers)))
        if draw.random() < self.poisoned + self.knowing:
            clicked = ~answers & (drawn[0] < 0.5) if self.poisoned else first(only)
            return f"account {session % ACCOUNTS}", clicked
        if self.random:
            return f"user {session}", drawn[0] < 1 / rank
        looked = drawn[1] < rank**-0.5
        return f"user {session}", looked & (drawn[2] < np.where(answers, RELEVANT, NOISE))


def first(only: Flags) -> Flags:
    """The first of them; none if there is none."""
    found: Flags = only & (np.cumsum(only) == 1)
    return found
