"""An event loop whose time passes at once, and which counts how often it would have waked."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualTime(asyncio.SelectorEventLoop):
    """Jumps over every wait. `wakes` counts the waits that time has ended."""

    def __init__(self) -> None:
        self.now, self.wakes = 0.0, 0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(timeout if timeout is None else 0)
        if not found and timeout:
            self._loop.now += timeout
            self._loop.wakes += 1
        return found
