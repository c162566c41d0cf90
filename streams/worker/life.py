"""The life of a worker as one state machine: its transitions, and the time of the last one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from typing import Final


class Life(Enum):
    """The state of a worker.

    ::

        REBALANCING --> ASSIGNED --> RESTORING --> SERVING
             ^ |           |           ^ |           |
             | +-----------|-----------+ |           |
             +-------------+-------------+-----------+     a revocation, from each of them

        each of them --> STOPPING        SIGTERM, SIGINT, or the supervisor is gone
        every other  --> FAILED          an error that is not a record's own

    REBALANCING
        The group shares out its partitions, and no assignment stands. The first state, and the one after every
        revocation. It is entered again if one revocation follows another.
    ASSIGNED
        The rebalance is complete, and nothing of the assignment has been taken over. The end of a rebalance is
        reported again if the group immediately rebalances once more.
    RESTORING
        Partitions are taken over from their checkpoints. faust may ask for it before it reports the rebalance as
        complete. Only this state leads to SERVING.
    SERVING
        All partitions of the assignment have been taken over, or are parked. A spare worker serves none.
    STOPPING
        Owned partitions are checkpointed and given back, and the worker leaves the group. Only a failure ends it early.
    FAILED
        The process is about to end, without another send. The last state.
    """

    REBALANCING = "rebalancing"
    ASSIGNED = "assigned"
    RESTORING = "restoring"
    SERVING = "serving"
    STOPPING = "stopping"
    FAILED = "failed"


_ENDING: Final = frozenset({Life.STOPPING, Life.FAILED})
#: From each state, those that may follow it.
FOLLOWING: Final = {
    Life.REBALANCING: frozenset({Life.REBALANCING, Life.ASSIGNED, Life.RESTORING}) | _ENDING,
    Life.ASSIGNED: frozenset({Life.ASSIGNED, Life.RESTORING, Life.REBALANCING}) | _ENDING,
    Life.RESTORING: frozenset({Life.SERVING, Life.REBALANCING}) | _ENDING,
    Life.SERVING: frozenset({Life.REBALANCING}) | _ENDING,
    Life.STOPPING: frozenset({Life.FAILED}),
    Life.FAILED: frozenset[Life](),
}


class IllegalTransition(Exception):
    """A worker was about to make a transition that is not allowed: a bug."""


class LifeCycle:
    """Holds the state of a worker. It changes on the event loop (a failure also elsewhere); any thread may read it.

    Parameters
    ----------
    on_illegal : called with the error before it is raised: faust swallows some of what its callbacks raise.
    clock : monotonic, in seconds.
    """

    def __init__(
        self, on_illegal: Callable[[IllegalTransition], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_illegal = on_illegal
        self._clock = clock
        # One value, so that a thread that reads it never gets the state of one moment and the time of another.
        self._now = (Life.REBALANCING, clock())
        self._revocations = 0
        self._stopped = asyncio.Event()

    @property
    def state(self) -> Life:
        return self._now[0]

    @property
    def assignment(self) -> int:
        """The number of the assignment: work begun under another one is out of date."""
        return self._revocations

    def since(self, state: Life) -> float | None:
        """When the worker entered a state, by the clock; None if it is in another one."""
        found, at = self._now
        return at if found is state else None

    def enter(self, state: Life) -> None:
        """Go over to a state.

        Raises
        ------
        IllegalTransition : it cannot follow the present one.
        """
        before = self._now[0]
        if state not in FOLLOWING[before]:
            error = IllegalTransition(f"a worker that is {before.value} cannot become {state.value}")
            self._on_illegal(error)
            raise error
        self._now = (state, self._clock())
        if state is Life.STOPPING:
            self._stopped.set()

    def revoked(self) -> None:
        """The group takes partitions away. A worker that stops goes on stopping."""
        self._revocations += 1
        if not self.ending:
            self.enter(Life.REBALANCING)

    def rebalanced(self) -> None:
        """The group has shared out its partitions. Nothing changes if their take-over has already begun."""
        if self.state in (Life.REBALANCING, Life.ASSIGNED):
            self.enter(Life.ASSIGNED)

    def stop(self) -> bool:
        """Begin to stop; False if the worker is already stopping."""
        if self.ending:
            return False
        self.enter(Life.STOPPING)
        return True

    @property
    def ending(self) -> bool:
        return self.state in _ENDING

    @property
    def stopping(self) -> bool:
        return self._stopped.is_set()

    async def stopped(self) -> None:
        """Wait until the worker begins to stop."""
        await self._stopped.wait()
