"""The base of learners that are made of others, which learn from the same blocks."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import Outcomes, Rows
from kinstream.learners.distances import of_embedded
from kinstream.learners.shared.events import Numbers
from kinstream.learners.shared.one_modality import Batch, Index, SingleModal
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.values import DEFAULT_MODALITY, PREFIX_RULE, ConstraintBlock, Kind, Table


class Composite(SingleModal):
    """A learner of one modality made of members; its metric puts those of the members side by side.

    A subclass gives `learn`, `state`, `restore` and `exported` instead of what `SingleModal` builds these from.
    """

    @abstractmethod
    def exported(self) -> tuple[dict[str, Rows], list[dict[str, str]]]:
        """The metric as arrays by name, and its parts.

        Raises
        ------
        CheckpointError
            The members have not begun.
        SettingsError
            A member has no such form.
        """

    @property
    def map(self) -> Rows:
        raise SettingsError(f"{self.algorithm} is not a linear map")

    def distance(self, X: Rows, Y: Rows) -> Rows:
        return of_embedded(self.transform, X, Y)

    def _learn(
        self,
        vectors: Rows,
        index: Index,
        kind: Kind,
        signs: NDArray[np.int8] | None = None,
        targets: NDArray[np.float32] | None = None,
        ignored: NDArray[np.bool_] | None = None,
        events: Numbers | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> Outcomes:
        """Learn constraints from arrays as a block, because members learn from blocks."""
        m = len(index)
        return self.learn(
            ConstraintBlock(
                space="",
                kind=kind,
                tables=(Table(DEFAULT_MODALITY, vectors),),
                index=index,
                signs=np.zeros(m, np.int8) if signs is None else np.asarray(signs),
                # Pairs from arrays have no rule; a member that uses rules handles them as it would alone.
                rules=(PREFIX_RULE,),
                rule=np.zeros(m, np.uint8),
                derived=np.zeros(m, np.bool_),
                weights=np.ones(m, np.float32) if weights is None else weights,
                time_ms=0,
                events=events,
            )
        )

    def _table(self, block: ConstraintBlock) -> Rows:
        """The vectors of a block that fits."""
        m = len(block)
        if len(block.tables) != 1:
            raise BadRecord(
                Reason.BAD_SHAPE, f"{self.algorithm} takes one modality, the block has {len(block.tables)}"
            )
        for name in ("signs", "rule"):
            found = getattr(block, name)
            if found.shape != (m,):
                raise BadRecord(Reason.BAD_SHAPE, f"{m} constraints, and {name} of shape {found.shape}")
        if block.kind is Kind.PAIR and not np.isin(block.signs, (-1, 1)).all():
            raise BadRecord(Reason.BAD_SHAPE, "the sign of a pair must be 1 or -1")
        return block.tables[0].vectors

    def _begin(self, d: int) -> None:
        """Members begin by themselves."""

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        raise NotImplementedError("members learn from blocks, not from batches")

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        """By Euclidean distance, because the members do not exist yet. The targets of pairs are not known yet."""
        if len(points) == 2:
            return -1, 0.0, np.nan
        near, far = (float(gap @ gap) for gap in points[0] - points[1:])
        return int(near >= far), 0.0, far - near
