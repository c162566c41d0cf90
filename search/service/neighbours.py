"""A bound on the neighbours that are being answered at once: what large requests take of memory and of stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from kinstream.search.service.refusals import Refused, Why

#: Neighbours of all requests that are being answered, vectors times k each.
MOST_AT_ONCE: Final = 1_000_000
#: A request for fewer neighbours is small: it is always let in.
LARGE: Final = 1_000
RETRY_SECONDS: Final = 1

_taking: ContextVar[Callable[[int], None] | None] = ContextVar("taking", default=None)


def take(neighbours: int) -> None:
    """Count the neighbours of the present request until its work is done.

    Raises
    ------
    Refused : too many are being answered (503).
    """
    taking = _taking.get()
    if taking is not None and neighbours >= LARGE:
        taking(neighbours)


class Neighbours:
    """The neighbours of the large requests that are being answered. Any thread may call it.

    Parameters
    ----------
    most : of all together; a request for more is let in if there is no other large one.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._held = 0
        self._lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While a request is worked on: what it takes is given back at the end."""
        own = 0

        def taking(neighbours: int) -> None:
            nonlocal own
            with self._lock:
                if self._held and self._held + neighbours > self._most:
                    detail = f"{self._held} neighbours are being answered; the limit is {self._most} at once"
                    raise Refused(503, Why.BUSY, detail, retry_seconds=RETRY_SECONDS)
                self._held += neighbours
            own += neighbours

        token = _taking.set(taking)
        try:
            yield
        finally:
            _taking.reset(token)
            with self._lock:
                self._held -= own
