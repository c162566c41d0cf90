"""Reasons for a producer to wait: a rate in rows per second, and consumers that are behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from kinstream.streams.errors import SettingsError, Stalled


class Pacing(Protocol):
    """Decides whether a block may be sent."""

    def admit(self, size: int) -> bool:
        """Whether a block of `size` bytes may be sent; if so, it counts as sent."""

    def wait(self, size: int) -> None:
        """Return once a block of `size` bytes may be sent, and count it. All earlier ones are confirmed.

        Raises
        ------
        Stalled : nothing moved for too long.
        """


class Unpaced:
    """Never waits."""

    def admit(self, size: int) -> bool:
        return True

    def wait(self, size: int) -> None:
        return


class Backpressure:
    """Keeps the unread records of consumers below a limit, so that a short log does not lose them.

    Parameters
    ----------
    behind : the amount in the log that is not consumed yet. It is called when the limit may be reached.
    limit : of that number, with the block to be sent. A block is always sent if nothing is waiting.
    in_bytes : both are in bytes; otherwise in blocks.
    deadline_seconds : how long the amount may stay unchanged before the wait is given up.
    look_seconds : between two checks.

    Raises
    ------
    SettingsError : the limit is below 1.
    """

    def __init__(
        self,
        behind: Callable[[], int],
        limit: int,
        *,
        in_bytes: bool = False,
        deadline_seconds: float = 120.0,
        look_seconds: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if limit < 1:
            raise SettingsError(f"consumers may be behind by at least 1, not {limit}")
        self._behind = behind
        self._limit = limit
        self._in_bytes = in_bytes
        self._deadline_seconds = deadline_seconds
        self._look_seconds = look_seconds
        self._clock = clock
        self._pause = pause
        # From the last check, plus the blocks sent since then.
        self._waiting = limit

    def admit(self, size: int) -> bool:
        cost = size if self._in_bytes else 1
        if self._waiting and self._waiting + cost > self._limit:
            return False
        self._waiting += cost
        return True

    def wait(self, size: int) -> None:
        least: int | None = None
        limit = 0.0
        while True:
            found = self._waiting = self._behind()
            if self.admit(size):
                return
            now = self._clock()
            if least is None or found < least:
                least, limit = found, now + self._deadline_seconds
            elif now > limit:
                unit = "bytes" if self._in_bytes else "blocks"
                raise Stalled(
                    f"{found} {unit} wait for consumers, none was read for {self._deadline_seconds:.0f} s; "
                    "are all workers running?"
                )
            self._pause(self._look_seconds)


class Rate:
    """Spreads rows evenly over time.

    Parameters
    ----------
    rows_per_second : None for no limit.

    Raises
    ------
    SettingsError : the rate is not above 0.
    """

    def __init__(self, rows_per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if rows_per_second is not None and not rows_per_second > 0:
            raise SettingsError(f"the rate must be above 0 rows per second, not {rows_per_second!r}")
        self._rate = rows_per_second
        self._clock = clock
        self._due = clock()

    def delay(self, rows: int) -> float:
        """Seconds until the next `rows` rows may be sent; they count as sent then.

        Time lost elsewhere is not made up for by a burst.
        """
        if self._rate is None:
            return 0.0
        now = self._clock()
        begin = max(self._due, now)
        self._due = begin + rows / self._rate
        return begin - now
