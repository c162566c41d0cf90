"""faust's recovery, changed to wait without a limit until partitions are taken over.

faust gives a seek `broker_request_timeout` (90 s) and stops permanently after it; here a seek reads checkpoints first.
The watchdog has a limit for that, and a process that reaches it starts again.
"""

from __future__ import annotations

from typing import Any

from faust.tables import manager, recovery
from mode import Service


class Recovery(recovery.Recovery):
    """Waits without a time limit."""

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        await super()._wait(coro)

    @Service.task
    async def _publish_stats(self) -> None:
        """faust's lines on how far its tables are, every few seconds."""


class TableManager(manager.TableManager):
    """Makes `Recovery`; there are no tables."""

    _recovery: Recovery | None = None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
