"""Whose lists count how often: caps of an hour, and bursts within minutes, by user, session, address and item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from kinstream.gate.bursts import Bursts
from kinstream.gate.lists.hashing import hash_of
from kinstream.gate.memory import Cap
from kinstream.streams.errors import Reason
from kinstream.streams.records.state import State, with_prefix, without_prefix


class LimitKind(StrEnum):
    """What is limited."""

    USER = "user"
    SESSION = "session"
    ADDRESS = "address"
    ITEM = "item"


#: Lists in a burst window that are usual for one of that kind, whatever its own rate is.
USUAL: Final = {LimitKind.USER: 1.0, LimitKind.SESSION: 1.0, LimitKind.ADDRESS: 3.0, LimitKind.ITEM: 10.0}
#: Prefixes of the states of caps: users, sessions and items were there before addresses.
_CAPS: Final = {
    LimitKind.USER: "users",
    LimitKind.SESSION: "sessions",
    LimitKind.ADDRESS: "addresses",
    LimitKind.ITEM: "items",
}
#: The reasons of the dead letters of lists that were left out by these rules.
CAPPED: Final = {kind: Reason(f"capped-{kind}") for kind in LimitKind}
BURST: Final = {kind: Reason(f"burst-{kind}") for kind in LimitKind}
LEFT_OUT: Final = frozenset({*CAPPED.values(), *BURST.values()})


class Actors(NamedTuple):
    """Whom a list is of; None or empty where that is not known."""

    user: str | None
    session: str | None
    address: str | None


class ListLimits:
    """Caps and bursts of one space.

    Parameters
    ----------
    caps : lists an hour that one of a kind may decide; 0 is no limit.
    window_ms : of bursts; 0 finds none.
    """

    def __init__(self, caps: dict[LimitKind, int], window_ms: int) -> None:
        self._caps = {kind: Cap(caps[kind]) for kind in LimitKind}
        self._bursts = {kind: Bursts(window_ms, USUAL[kind]) for kind in LimitKind}

    def check(self, actors: Actors, clicked: Iterable[int], now_ms: int) -> Reason | None:
        """Why a list does not count; None if it does, and then it is counted.

        Parameters
        ----------
        clicked : marks of the clicked items.
        """
        keys = [
            (kind, hash_of(name))
            for kind, name in zip((LimitKind.USER, LimitKind.SESSION, LimitKind.ADDRESS), actors, strict=True)
            if name
        ]
        keys += [(LimitKind.ITEM, mark) for mark in sorted(clicked)]
        for kind, key in keys:
            if self._caps[kind].full(key, now_ms):
                return CAPPED[kind]
        for kind, key in keys:
            if self._bursts[kind].full(key, now_ms):
                return BURST[kind]
        for kind, key in keys:
            self._caps[kind].add(key)
            self._bursts[kind].add(key, now_ms)
        return None

    def state(self) -> State:
        state: State = {}
        for prefix, part in self._parts():
            # A space without addresses has the state that it had before there were any.
            if part is not self._caps[LimitKind.ADDRESS] or part.used:
                state |= with_prefix(f"{prefix}.", part.state())
        return state

    def restore(self, state: State) -> None:
        """From the state of a whole gate; one of an earlier version has no addresses and no bursts."""
        for prefix, part in self._parts():
            found = without_prefix(f"{prefix}.", state)
            if found:
                part.restore(found)

    def _parts(self) -> Iterator[tuple[str, Cap | Bursts]]:
        for kind in LimitKind:
            yield _CAPS[kind], self._caps[kind]
            yield f"burst_{kind}", self._bursts[kind]
