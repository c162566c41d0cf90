"""How much a list counts in a comparison: the more lists of one user or address there are, the less each further one.

Users who cannot be told apart from honest ones could decide a comparison alone if each list of theirs counted. The n-th
clicked list of a user counts (v / n)^2 from the v-th one on, and so does one of an address, so however many there are,
they count less than 2 v together. Whoever wants to decide needs many users and addresses, not many clicks. A weight is
known before the list's credit is, so the bets of `kinstream.search.interleaving.evidence` stay fair.

References
----------
Chapelle, Joachims, Radlinski, Yue: Large-scale validation and analysis of interleaved search evaluation. ACM TOIS 2012.
(people are the unit, not lists)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.search.gate.limits import Actors
from kinstream.search.interleaving.hashing import hash_of
from kinstream.streams.records.state import State

_NAMES: Final = ("users", "sessions", "addresses")


class Votes:
    """Clicked lists of each user and address in a comparison. It remembers one entry for each list at most.

    Parameters
    ----------
    of_user, of_address : lists that count whole; 0: all do. Without a user, the session stands for one.
    """

    def __init__(self, of_user: int, of_address: int) -> None:
        self._whole: Final = (of_user, of_user, of_address)
        self._counts: tuple[dict[int, int], ...] = ({}, {}, {})

    def weigh(self, actors: Actors) -> float:
        """Count a list, and return its weight, above 0 and at most 1."""
        weight = 1.0
        names = actors.user, "" if actors.user else actors.session, actors.address
        for name, whole, counts in zip(names, self._whole, self._counts, strict=True):
            if name and whole:
                key = hash_of(name)
                n = counts[key] = counts.get(key, 0) + 1
                weight = min(weight, (whole / n) ** 2)
        return weight

    def clear(self) -> None:
        """Forget all: a new comparison begins."""
        for counts in self._counts:
            counts.clear()

    def state(self) -> State:
        state: State = {}
        for name, counts in zip(_NAMES, self._counts, strict=True):
            if counts:
                state[f"{name}.keys"] = np.array(list(counts), np.uint64)
                state[f"{name}.counts"] = np.array(list(counts.values()), np.int64)
        return state

    def restore(self, state: State) -> None:
        """From a state; one of an earlier version is empty."""
        for name, counts in zip(_NAMES, self._counts, strict=True):
            if f"{name}.keys" in state:
                columns = (np.asarray(state[f"{name}.{part}"]).tolist() for part in ("keys", "counts"))
                counts.update(zip(*columns, strict=True))
