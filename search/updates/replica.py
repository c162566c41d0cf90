"""A copy of a learner's map that is kept by its update records, from one announced model on.

Records may come twice, out of order, in parts, late, or not at all. A change is added only when complete, and only to
the map that it was made from, so the served map is always one that the learner had, to rounding.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import ModelUpdate

#: Largest size of updates that a replica keeps for later, in bytes.
MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
#: Approximate size of a record without its factors, in bytes.
_RECORD_BYTES: Final = 1_024


def size_of(update: ModelUpdate) -> int:
    """The approximate size of a record in memory, in bytes."""
    return update.U.nbytes + update.V.nbytes + _RECORD_BYTES


class At(NamedTuple):
    """The version of a space's map: generation and epoch of its learner, and its number of accepted constraints."""

    generation: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """A change of the map to map + U V.

    Parameters
    ----------
    U, V : (d, r) and (r, d) of the map's type; r is 0 if only the count of constraints has changed.
    """

    at: At
    U: NDArray[Any]
    V: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Remapped:
    """The map was replaced by that of an announced model. Everything derived from the old one must be rebuilt."""

    at: At
    map: NDArray[Any]


class _Key(NamedTuple):
    """The key that the parts of one update share, and that differs for other runs and updates."""

    start: At
    end: At
    check: int
    parts: int
    rank: int
    dimension: int
    dtype: str


@dataclass(slots=True, eq=False)
class _Waiting:
    """The received parts of one update, by number."""

    parts: dict[int, ModelUpdate] = field(default_factory=dict)
    size: int = 0

    def factors(self, key: _Key) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """U and V of all parts together; None if they do not fit."""
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
    space, learner : the source of updates; others are counted and left out.
    max_waiting_bytes : of updates that cannot be used yet. Beyond it the oldest are dropped: the next announced model
        covers them.

    Attributes
    ----------
    foreign, unusable : records left out: of another space or learner; or that fit no map here, or give one that is not
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
        #: One pair, so that a reader on another thread never sees one without the other.
        self._current: tuple[At, NDArray[Any]] | None = None
        self._newest: At | None = None
        self._waiting: dict[_Key, _Waiting] = {}
        self._size = 0
        self._limit = max_waiting_bytes

    @property
    def at(self) -> At | None:
        """The version of the map; None before the first announced model."""
        return None if self._current is None else self._current[0]

    @property
    def current(self) -> tuple[At, NDArray[Any]]:
        """The version and the map (d, d), read-only: an array never changes, a new one replaces it.

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
        """Whether the learner is known to be ahead: an announced model, or the missing updates, must still arrive."""
        return self._newest is not None and (self.at is None or self.at < self._newest)

    @property
    def newest(self) -> At | None:
        """The newest version seen in any record."""
        return self._newest

    def announce(self, at: At, map: NDArray[Any]) -> list[Changed | Remapped]:
        """Apply an announced model, and then the updates that have waited for it.

        Parameters
        ----------
        map : (d, d) for scaled features, float64 or float32.

        Returns
        -------
        list
            The changes of the map, in order. Empty if the model is not newer than the map here.
        """
        self._hear(at)
        if self.at is not None and at <= self.at:
            return []
        own = np.array(map)
        own.flags.writeable = False
        self._current = at, own
        return [Remapped(at, own), *self._go_on()]

    def take(self, update: ModelUpdate) -> list[Changed | Remapped]:
        """Apply an update record, in any order; returns the changes of the map, in order."""
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
        """Apply waiting updates as long as one fits."""
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
