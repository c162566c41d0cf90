"""A copy of a learner's map that is kept by its update records, from one announced model on.

Records may come twice, in disorder, in parts, late, or not at all. A change is added only whole, and only to the map
that it was made from, so what is served is always a map that the learner had, to rounding.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import ModelUpdate

#: What a replica may keep of updates that it cannot use yet.
MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
#: About what a record costs besides its factors.
_RECORD_BYTES: Final = 1_024


def size_of(update: ModelUpdate) -> int:
    """About the bytes that a record takes in memory."""
    return update.U.nbytes + update.V.nbytes + _RECORD_BYTES


class At(NamedTuple):
    """Which map of a space: generation and epoch of its learner, and the constraints that it had accepted."""

    generation: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """The map has become map + U V.

    Parameters
    ----------
    U, V : (d, r) and (r, d) of the map's type; r is 0 where only the count of constraints has moved.
    """

    at: At
    U: NDArray[Any]
    V: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Remapped:
    """The map is another one: that of an announced model. What was made of the old one is to be made anew."""

    at: At
    map: NDArray[Any]


class _Key(NamedTuple):
    """What the parts of one update have in common, and those of another run or update have not."""

    start: At
    end: At
    check: int
    parts: int
    rank: int
    dimension: int
    dtype: str


@dataclass(slots=True, eq=False)
class _Waiting:
    """The parts of one update that have come, by number."""

    parts: dict[int, ModelUpdate] = field(default_factory=dict)
    size: int = 0

    def factors(self, key: _Key) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """U and V of all parts together; None where they do not fit."""
        parts = [part for _, part in sorted(self.parts.items())]
        U = np.ascontiguousarray(np.concatenate([part.U for part in parts], axis=1))
        V = np.ascontiguousarray(np.concatenate([part.V for part in parts], axis=0))
        starts = np.cumsum([0, *(len(part.V) for part in parts)]).tolist()
        fits = [part.first for part in parts] == starts[:-1] and starts[-1] == key.rank
        return (
            (U, V)
            if fits and (not key.rank or zlib.crc32(V.tobytes(), zlib.crc32(U.tobytes())) == key.check)
            else None
        )


class MapReplica:
    """The map of one space under one learner.

    Parameters
    ----------
    space, learner : whose updates are taken; others are counted and left out.
    max_waiting_bytes : of updates that cannot be used yet. Beyond it the oldest are given up: the next announced
        model covers them.

    Attributes
    ----------
    foreign, unusable : records left out: of another space or learner; that fit no map here, or make one that is not
        finite.

    Examples
    --------
    >>> import numpy as np
    >>> replica = MapReplica("digits", "lego")
    >>> replica.announce(At(1, 0, 40), np.eye(2))[0].at.step
    40
    >>> replica.at.step, replica.behind
    (40, False)
    """

    def __init__(self, space: str, learner: str, *, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self.space = space
        self.learner = learner
        self.foreign = 0
        self.unusable = 0
        #: One pair, so that a reader on another thread never sees the one without the other.
        self._current: tuple[At, NDArray[Any]] | None = None
        self._newest: At | None = None
        self._waiting: dict[_Key, _Waiting] = {}
        self._size = 0
        self._limit = max_waiting_bytes

    @property
    def at(self) -> At | None:
        """Which map this is; None before the first announced model."""
        return None if self._current is None else self._current[0]

    @property
    def current(self) -> tuple[At, NDArray[Any]]:
        """Which map this is, and that map (d, d), read-only: it never changes, another one takes its place.

        Raises
        ------
        ValueError : there was no announced model yet.
        """
        if self._current is None:
            raise ValueError(f"no model of {self.space!r} under {self.learner!r} was announced yet")
        return self._current

    @property
    def map(self) -> NDArray[Any]:
        """The map of `current`."""
        return self.current[1]

    @property
    def behind(self) -> bool:
        """Whether the learner is known to have gone on: an announced model, or what is missing, has to come."""
        return self._newest is not None and (self.at is None or self.at < self._newest)

    @property
    def newest(self) -> At | None:
        """The newest map of which anything was heard."""
        return self._newest

    def announce(self, at: At, map: NDArray[Any]) -> list[Changed | Remapped]:
        """Take an announced model, and after it the updates that have waited for it.

        Parameters
        ----------
        map : (d, d) for scaled features, float64 or float32.

        Returns
        -------
        list
            What the map went through, in order. Nothing where the model is not newer than the map here.
        """
        self._hear(at)
        if self.at is not None and at <= self.at:
            return []
        own = np.array(map)
        own.flags.writeable = False
        self._current = at, own
        return [Remapped(at, own), *self._go_on()]

    def take(self, update: ModelUpdate) -> list[Changed | Remapped]:
        """Take an update record, in whatever order; what the map went through, in order."""
        if (update.space, update.learner) != (self.space, self.learner):
            self.foreign += 1
            return []
        start = At(update.generation, update.epoch, update.base_step)
        end = start._replace(step=update.step)
        self._hear(end)
        if not update.whole or (self.at is not None and start < self.at):
            return []
        self._keep(start, end, update)
        return self._go_on()

    def _hear(self, at: At) -> None:
        self._newest = at if self._newest is None else max(self._newest, at)

    def _keep(self, start: At, end: At, update: ModelUpdate) -> None:
        shape = (update.check, update.parts, update.rank, update.dimension, update.U.dtype.name)
        key = _Key(start, end, *shape)
        held = self._waiting.setdefault(key, _Waiting())
        if update.part in held.parts:
            return
        held.parts[update.part] = update
        size = size_of(update)
        held.size += size
        self._size += size
        while self._size > self._limit:
            self._drop(min(self._waiting))

    def _drop(self, key: _Key) -> None:
        self._size -= self._waiting.pop(key).size

    def _go_on(self) -> list[Changed | Remapped]:
        """Add what fits, as long as something does."""
        done: list[Changed | Remapped] = []
        while self._current is not None:
            at = self._current[0]
            for key in [key for key in self._waiting if key.start < at]:
                self._drop(key)
            found = self._next(*self._current)
            if found is None:
                break
            done.append(found)
        return done

    def _next(self, at: At, map: NDArray[Any]) -> Changed | None:
        for key in sorted(key for key in self._waiting if key.start == at):
            held = self._waiting[key]
            if len(held.parts) < key.parts:
                continue
            factors = held.factors(key)
            self._drop(key)
            if factors is None or (key.dimension, key.dtype) != (len(map), map.dtype.name):
                self.unusable += 1
                continue
            U, V = factors
            with np.errstate(over="ignore", invalid="ignore"):
                changed = map + U @ V if key.rank else map
            if not np.isfinite(changed).all():
                self.unusable += 1
                continue
            changed.flags.writeable = False
            self._current = key.end, changed
            return Changed(key.end, U, V)
        return None
