"""The first distinct vectors of a stream, for models that begin with them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import State

_CONSTRAINTS_PER_ROW: Final = 4
_DIGEST: Final = 16


class Buffer:
    """Distinct vectors in the order in which constraints name them.

    Parameters
    ----------
    warm_up : vectors to keep. The buffer also counts as full after four times as many constraints.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        self._seen: dict[bytes, NDArray[np.float64]] = {}
        self._constraints = 0

    @property
    def full(self) -> bool:
        """Whether it is full."""
        return len(self._seen) >= self.warm_up or self._constraints >= _CONSTRAINTS_PER_ROW * self.warm_up

    @property
    def rows(self) -> NDArray[np.float64]:
        """(k, D) the vectors so far, at least one."""
        return np.array(list(self._seen.values()))

    def observe(self, points: NDArray[np.float64]) -> None:
        """Take the vectors (k, D) of one constraint."""
        if self.full:
            return
        # Adding zero makes -0 and 0 one value.
        for row in points + 0.0:
            if len(self._seen) < self.warm_up:
                self._seen.setdefault(blake2b(row.tobytes(), digest_size=_DIGEST).digest(), row.copy())
        self._constraints += 1

    def state(self) -> State:
        """The vectors and the number of constraints."""
        state: State = {"constraints": self._constraints}
        return state | {"rows": self.rows} if self._seen else state

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._constraints = int(state["constraints"])
        rows = np.asarray(state.get("rows", np.empty((0, 0))), np.float64)
        self._seen = {blake2b(row.tobytes(), digest_size=_DIGEST).digest(): row.copy() for row in rows}
