"""The first distinct vectors of a stream, for scales and for models that begin with them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import State
from kinstream.learners.shared.reach import FEW, scales_of, tempered, within

_CONSTRAINTS_PER_ROW: Final = 4
_DIGEST: Final = 16

Features = NDArray[np.float64]


class Buffer:
    """Distinct vectors in the order in which constraints name them.

    From 8 vectors on, it can tell which others are out of their reach (`kinstream.learners.shared.reach`); what it
    takes for their scales is renewed whenever it holds twice as many. It keeps vectors out of reach as well, in case
    most turn out to be like them, but they are not among `rows`.

    Parameters
    ----------
    warm_up : vectors to keep. The buffer also counts as full after four times as many constraints.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        #: None stands for a vector of a state that held its digest alone.
        self._seen: dict[bytes, Features | None] = {}
        self._constraints = 0
        self._scales: tuple[Features, Features] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def full(self) -> bool:
        """Whether it is full."""
        return len(self._seen) >= self.warm_up or self._constraints >= _CONSTRAINTS_PER_ROW * self.warm_up

    @property
    def rows(self) -> Features:
        """(k, D) the vectors so far that are within reach, with far values cut; at least one was observed."""
        return tempered(self._vectors())

    @property
    def whole(self) -> bool:
        """Whether it holds all vectors that it has seen."""
        return all(row is not None for row in self._seen.values())

    def observe(self, points: Features) -> list[Features]:
        """Take the vectors (k, D) of one constraint, unless it is full; returns those that are new."""
        return [] if self.full else self.take(points)

    def take(self, points: Features) -> list[Features]:
        """The same after any number of constraints."""
        new = []
        # Adding zero makes -0 and 0 one value.
        for row in points + 0.0:
            digest = blake2b(row.tobytes(), digest_size=_DIGEST).digest()
            if len(self._seen) < self.warm_up and digest not in self._seen:
                kept = row.copy()
                self._seen[digest] = kept
                new.append(kept)
                self._measure()
        self._constraints += 1
        return new

    def within(self, X: Features) -> NDArray[np.bool_]:
        """(n,) vectors (n, D) that are within reach, as far as it can be told yet."""
        if self._scales is None:
            return np.asarray(np.isfinite(X).all(axis=1))
        return within(X, *self._scales)

    @property
    def measured(self) -> bool:
        """Whether the scales have just been renewed."""
        return len(self._seen) >= FEW and len(self._seen).bit_count() == 1

    def clear(self) -> None:
        """Forget the vectors."""
        self._seen, self._scales = {}, None

    def state(self) -> State:
        """The vectors and the number of constraints."""
        state: State = {"constraints": self._constraints}
        digests = [digest for digest, row in self._seen.items() if row is None]
        if digests:
            state["digests"] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST).copy()
        return state | {"rows": self._vectors()} if len(digests) < len(self._seen) else state

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._constraints = int(state["constraints"])
        digests = np.asarray(state.get("digests", np.empty((0, _DIGEST), np.uint8)))
        rows = np.asarray(state.get("rows", np.empty((0, 0))), np.float64)
        self._seen, self._scales = {digest.tobytes(): None for digest in digests}, None
        for row in rows:
            self._seen[blake2b(row.tobytes(), digest_size=_DIGEST).digest()] = row.copy()
            self._measure()

    def _vectors(self) -> Features:
        return np.array([row for row in self._seen.values() if row is not None])

    def _measure(self) -> None:
        if self.measured and self.whole:
            self._scales = scales_of(self._vectors())
