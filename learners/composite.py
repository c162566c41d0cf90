"""The base of learners that are made of others, which learn from the same blocks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import Numbers, shared
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, Index, SingleModal
from kinstream.learners.base.validation import checked_index
from kinstream.learners.distances import of_embedded
from kinstream.learners.drift import Drift
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import DEFAULT_MODALITY, PREFIX_RULE, ConstraintBlock, Kind, Table


class Composite(SingleModal):
    """A learner of one modality made of members; its metric puts those of the members side by side.

    Its scales, weights and members fit the features that it began with. When these have drifted, it begins anew, as a
    learner of the new features would; `renewals` counts that.

    A subclass gives `_learn_part`, `_renew`, `_whole`, `_restore_whole` and `exported` instead of what `SingleModal`
    builds these from.
    """

    def __init__(self, *, dtype: str, scaler: str | None, warm_up: int) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up)
        self._drift = Drift()

    @abstractmethod
    def _learn_part(
        self, block: ConstraintBlock, vectors: Rows, events: Numbers | None, outcomes: Outcomes
    ) -> None:
        """Learn checked constraints over a table (n, d), at least one, and report on them."""

    @abstractmethod
    def _renew(self) -> None:
        """As before the first block."""

    @abstractmethod
    def _whole(self) -> State:
        """All there is, but for the drift and the number of constraints; arrays are copies."""

    @abstractmethod
    def _restore_whole(self, state: State) -> int | None:
        """Continue from `_whole()`, after `_renew`; returns d, or None before the first block."""

    @property
    def renewals(self) -> int:
        """How often it began anew because the features had drifted."""
        return self._drift.renewals

    def learn(self, block: ConstraintBlock) -> Outcomes:
        if block.kind not in self.accepts:
            raise BadRecord(Reason.WRONG_KIND, f"{self.algorithm} does not learn from {block.kind}s")
        vectors, events = self._table(block), shared(block.events, len(block))
        index = checked_index(vectors, block.index, block.kind, self._dimension)
        outcomes = Outcomes.blank(len(index))
        if len(index) == 0:
            return outcomes
        self._dimension = vectors.shape[1]
        outcomes.split[:] = block.split(self.form)
        start, given = 0, replace(block, index=index)
        while start < len(index):
            stop = self._drift.until(vectors, index, events, start)
            part = given if stop - start == len(index) else given.take(slice(start, stop))
            self._learn_part(part, vectors, shared(part.events, len(part)), outcomes[slice(start, stop)])
            if self._drift.due:
                self._drift.renew()
                self._renew()
            start = stop
        self.accepted += len(index) - int(outcomes.rejected.sum())
        return outcomes

    def state(self) -> State:
        state: State = {"accepted": self.accepted} | with_prefix("drift.", self._drift.state())
        return state | self._whole()

    def restore(self, state: State) -> None:
        self._renew()
        self.accepted = int(state["accepted"])
        self._drift = Drift()
        drift = without_prefix("drift.", state)
        # Models of earlier versions hold none.
        if drift:
            self._drift.restore(drift)
        self._dimension = self._restore_whole(state)

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
    @abstractmethod
    def remembered(self) -> Rows:
        """(n, d) scaled vectors of the stream that the state holds."""

    def embed_scaled(self, Z: Rows) -> Rows:
        """`transform` of scaled vectors (n, d)."""
        return self._mapped(Z)

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

    def _model(self) -> State:
        raise NotImplementedError("`_whole` gives all there is")

    def _restore_model(self, state: State) -> int:
        raise NotImplementedError("`_restore_whole` takes all there is")

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
