"""How much a list counts in a comparison: the more lists of one user or address there are, the less each further one.

Users who look like honest ones could decide a comparison alone if each list of theirs counted. The n-th
clicked list of a user counts (v / n)^2 from the v-th one on, and so does one of an address, so however many there are,
they count less than 2 v together. Whoever wants to decide needs many users and addresses, not many clicks. A weight is
known before the list's credit is, so the bets of `kinstream.gate.lists.evidence` stay fair.

All that ends a comparison is a sum of such weights, or of a bounded multiple of them (`Sessions`), or the log's time
(`Growth`), which no user makes.

References
----------
Chapelle, Joachims, Radlinski, Yue: Large-scale validation and analysis of interleaved search evaluation. ACM TOIS 2012.
(people are the unit, not lists)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinstream.gate.limits import Actors
from kinstream.gate.lists.hashing import hash_of
from kinstream.streams.records.state import State, with_prefix, without_prefix

#: Lists that nobody clicked and that count, for each clicked one: however many there are, they end no comparison alone.
MOST_UNCLICKED: Final = 9.0
#: Lists of a user or address that count whole as sessions, for each that counts whole as a vote.
LISTS_PER_VOTE: Final = 10
#: Stands for the user of a list that names nobody.
_NOBODY: Final = Actors("\0", None, None)
#: A comparison runs at least so long before it is asked whether people still come, and how many times the votes of half
#: of its time it must have.
FIRST_DAYS: Final = 3
LEAST_GROWTH: Final = 1.25
_DAY_MS: Final = 24 * 3_600_000
_NAMES: Final = ("users", "sessions", "addresses")


def voter(actors: Actors, firsts: tuple[int, ...]) -> Actors:
    """Whose vote a clicked list is: if it names nobody, that of its query, which the first items of both sides tell."""
    return actors if any(actors) else Actors(f"\0{firsts}", None, None)


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


class Sessions:
    """What the lists of a comparison count together, for the numbers of lists that it takes.

    A list that says nothing counts as a vote of its user does: a list that nobody clicked, or a tie. One that speaks
    for one side counts whole up to the tenth of its user and its address, and (10 / n)^2 from there on, if one list of
    each counts whole as a vote: less than 20 in all. So a few people who search a lot can decide; one of them cannot,
    and a visitor who only looks, such as a crawler, cannot either.

    Parameters
    ----------
    votes : of lists that nobody clicked; those that name no user, session or address are taken to be of one user.
    """

    def __init__(self, votes: Votes) -> None:
        self._votes = votes
        self._clicked = self._cast = self._unclicked = 0.0

    @property
    def total(self) -> float:
        """What they count together."""
        return self._clicked + min(self._unclicked, MOST_UNCLICKED * (self._cast + 1.0))

    def show(self, actors: Actors, whole: bool) -> float:
        """Count a list that nobody has clicked; returns what it counts."""
        weight = 1.0 if whole else self._votes.weigh(actors if any(actors) else _NOBODY)
        self._unclicked += weight
        return weight

    def click(self, vote: float, credit: float, before: float) -> float:
        """Count a clicked list; returns what it counts.

        Parameters
        ----------
        vote, credit : of the list.
        before : what it counted when nobody had clicked it; 0 if that is not known.
        """
        weight = min(1.0, LISTS_PER_VOTE**2 * vote) if credit else vote
        self._clicked += weight
        self._cast += vote
        self._unclicked -= before
        return weight

    def clear(self) -> None:
        """Forget all: a new comparison begins."""
        self._clicked = self._cast = self._unclicked = 0.0
        self._votes.clear()

    def state(self) -> State:
        counts = np.array([self._clicked, self._unclicked, self._cast], np.float64)
        return {"counts": counts, **with_prefix("votes.", self._votes.state())}

    def restore(self, state: State) -> None:
        """From a state; one before `gate/6` is empty, and one before `gate/8` has no votes of the clicked lists."""
        if state:
            self._clicked, self._unclicked, *cast = np.asarray(state["counts"]).tolist()
            (self._cast,) = cast or [0.0]
            self._votes.restore(without_prefix("votes.", state))


class Growth:
    """Whether people still come who have not voted. A comparison in which they do not would never end.

    After three days of the log's time, six, twelve and so on, the votes are compared with those of half of that time.
    Where new people come as before, they have doubled; with a weekend between, they are two fifths more. Where all have
    voted, further lists of theirs add less and less. Of the time between two lists half a day counts at most: it may be
    a clock that was wrong.
    """

    def __init__(self) -> None:
        self.begin(-1)

    def begin(self, now_ms: int) -> None:
        """A comparison begins."""
        self._last_ms, self._age_ms, self._looked_ms, self._votes = now_ms, 0, 0, 0.0

    def ended(self, now_ms: int, votes: float) -> bool:
        """Note the time of a list and the votes up to it; whether almost none has come for half of the comparison."""
        self._age_ms += min(max(0, now_ms - self._last_ms), _DAY_MS // 2)
        self._last_ms = now_ms
        if self._age_ms < max(FIRST_DAYS * _DAY_MS, 2 * self._looked_ms):
            return False
        before, self._votes, self._looked_ms = self._votes, votes, self._age_ms
        return votes < LEAST_GROWTH * before

    def plain(self) -> list[float]:
        """The state, for JSON."""
        return [self._last_ms, self._age_ms, self._looked_ms, self._votes]

    def restore(self, plain: list[float] | None) -> None:
        """From a state; one before `gate/8` has none."""
        if plain is not None:
            *times, self._votes = plain
            self._last_ms, self._age_ms, self._looked_ms = map(int, times)
