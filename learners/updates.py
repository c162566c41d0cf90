"""Update records of a learner for each block, in parts, for readers that keep data derived from its map."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kinstream.learners.base.learner import Outcomes, Rows
from kinstream.learners.steps import Step, Stepped, as_stepped, step_of
from kinstream.processors.base.builder import MAX_BLOCK_BYTES
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock, ModelUpdate

#: Bytes of a record without its factors: names are at most 200 and 249 characters long.
_NAMES_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class UpdateOrigin:
    """The block and model of an update; the fields of the same names in `ModelUpdate`."""

    space: str
    learner: str
    generation: int
    epoch: int
    topic: str
    partition: int
    offset: int
    base_step: int
    step: int
    time_ms: int


class Before:
    """The state of a learner before a block.

    Raises
    ------
    SettingsError : the changes of its kind have no such form.
    """

    def __init__(self, learner: object) -> None:
        stepped = as_stepped(learner)
        if stepped is None:
            raise SettingsError(f"{type(learner).__name__} has no updates to publish")
        self._learner: Stepped = stepped
        #: None while the features of the map may still change.
        self._map: Rows | None = stepped.map if stepped.settled else None
        self._renewals = stepped.renewals

    def updates(
        self, origin: UpdateOrigin, block: ConstraintBlock, outcomes: Outcomes | None
    ) -> list[ModelUpdate]:
        """The records of the block's change, after it is learned.

        Parameters
        ----------
        outcomes : of the block; None if the learner does not accept its kind.

        Returns
        -------
        list
            Empty if neither the model nor its count of constraints has changed.
        """
        if origin.step == origin.base_step or outcomes is None:
            return []
        if self._map is None or self._learner.renewals != self._renewals:
            return [_broken(origin, self._learner)]
        step = step_of(self._learner, self._map, block, outcomes)
        d, rank = step.U.shape
        most = (MAX_BLOCK_BYTES - _NAMES_BYTES) // (2 * d * step.U.dtype.itemsize)
        finite = np.isfinite(step.U).all() and np.isfinite(step.V).all()
        if not finite or (rank and most < 1):
            return [_broken(origin, self._learner)]
        return list(_parts(origin, step, max(1, most)))


def _parts(origin: UpdateOrigin, step: Step, most: int) -> Iterator[ModelUpdate]:
    d, rank = step.U.shape
    check = zlib.crc32(step.V.tobytes(), zlib.crc32(step.U.tobytes()))
    parts = max(1, -(-rank // most))
    for part in range(parts):
        rows = slice(part * most, (part + 1) * most)
        yield _record(
            origin, True, (part, parts), (d, rank, rows.start), check, step.U[:, rows], step.V[rows]
        )


def _broken(origin: UpdateOrigin, learner: Stepped) -> ModelUpdate:
    """The record that makes readers of updates wait for an announced model."""
    G = learner.map
    d = len(G)
    none = np.empty((d, 0), G.dtype)
    return _record(origin, False, (0, 1), (d, 0, 0), 0, none, none.T)


def _record(
    o: UpdateOrigin,
    whole: bool,
    number: tuple[int, int],
    shape: tuple[int, int, int],
    check: int,
    U: Rows,
    V: Rows,
) -> ModelUpdate:
    return ModelUpdate(
        o.space,
        o.learner,
        o.generation,
        o.epoch,
        o.topic,
        o.partition,
        o.offset,
        o.base_step,
        o.step,
        whole,
        *number,
        *shape,
        check,
        U,
        V,
        o.time_ms,
    )
