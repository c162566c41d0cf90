"""Keeps one space's index on the map that its learner's update records lead to, between announced models."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from kinstream.learners.base.one_modality import SingleModal
from kinstream.search.models.intermediate_model import SteppedModel
from kinstream.search.models.model import Model, Name
from kinstream.search.spaces.searcher import Searcher
from kinstream.search.updates.replica import MAX_WAITING_BYTES, At, Changed, MapReplica, Remapped, size_of
from kinstream.streams.records.values import ModelUpdate


class Stepping:
    """Updates of one space and learner. Call `give` from any thread, the other methods from the thread that refreshes
    the space."""

    def __init__(self, space: str, learner: str) -> None:
        self._replica = MapReplica(space, learner)
        self._waiting: deque[ModelUpdate] = deque()
        self._size = 0
        self._guard = threading.Lock()
        #: Updates that came faster than they could be applied; the next announced model covers them.
        self.dropped = 0
        self._announced: Model | None = None
        self._base: Model | None = None
        self.model: SteppedModel | None = None

    @property
    def left_out(self) -> int:
        """Updates that were readable but not usable."""
        return self._replica.unusable + self.dropped

    @property
    def behind(self) -> bool:
        """Whether the learner is known to be ahead of this map."""
        return self._replica.behind

    def give(self, update: ModelUpdate) -> None:
        """Queue an update record."""
        with self._guard:
            self._waiting.append(update)
            self._size += size_of(update)
            while self._size > MAX_WAITING_BYTES:
                self._size -= size_of(self._waiting.popleft())
                self.dropped += 1

    def advance(self, announced: Model, searcher: Searcher) -> None:
        """Apply queued updates to the searcher's index in place; `refresh` does what cannot be done in place."""
        before = None if self.model is None else self.model.at
        done = self._announce(announced)
        with self._guard:
            updates = list(self._waiting)
            self._waiting.clear()
            self._size = 0
        for update in updates:
            done += self._replica.take(update)
        if not done or self._base is None:
            return
        at, moved = self._replica.current
        self.model = SteppedModel(self._base.version, self._base.learner, Name(*at), moved)
        steps = [one for one in done if isinstance(one, Changed)]
        if before is not None and len(steps) == len(done):
            U = np.concatenate([one.U for one in steps], axis=1)
            V = np.concatenate([one.V for one in steps], axis=0)
            searcher.step(before, self.model, U, self.model.raw_step(V))

    def _announce(self, model: Model) -> list[Changed | Remapped]:
        if model is self._announced or not isinstance(model.learner, SingleModal):
            return []
        self._announced = model
        if model.learner.dimension is None:
            return []
        done = self._replica.announce(At(*model.name), model.learner.map)
        if done:
            self._base = model
        return done

    def newer(self, model: Model) -> Model:
        """The stepped model, or the announced one if it is newer or has nothing learned."""
        stepped = self.model
        return model if stepped is None or model.name > stepped.name else stepped
