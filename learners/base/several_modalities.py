"""The base of learners of several modalities: a scaler for each, matching of tables by name, warm-up, state."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import scaler as scalers
from kinstream.learners.base.adaptive_scaler import Following
from kinstream.learners.base.events import Events, Numbers, apart, shared, take, watched, write_hinges
from kinstream.learners.base.first_vectors import Buffer
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.modalities import (
    Modalities,
    checked_columns,
    checked_index,
    checked_tables,
    named,
    stacked,
)
from kinstream.learners.base.one_modality import DTYPES, Batch, Index
from kinstream.learners.base.scaler import Scaler
from kinstream.learners.base.validation import not_negative, one_of, positive, whole
from kinstream.learners.kernels.several_modalities.modalities import weigh
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import ConstraintBlock, Kind

Parts = list[Rows]
#: Features of one modality, or of several by name.
Features = Rows | Mapping[str, Rows]
#: A modality's weight is at least this share of the best one's, so it can recover within a stream.
LEAST_WEIGHT = 1e-12


class MultiModal(ABC):
    """A learner of several modalities whose squared distance is sum_i theta_i |S_i (x_i - y_i)|^2.

    The weights theta are positive and sum to 1. Modality i is multiplied by `beta` for every triplet that it ranks
    wrong while the fused distance is not right by the margin (Hedge). The modalities, their order and their
    dimensions are those of the first block; later blocks are matched by name. A space with one modality is also
    possible. Before the first block, `transform` and `distance` accept any, and use the initial model.

    A subclass gives `algorithm` and the abstract methods.

    Parameters
    ----------
    beta : factor of a weight for a mistake, in (0, 1).
    margin : of the fused score, at least 0; a triplet is learned if its score is not right by this margin.
    dtype : type of the model and of all calculations with it.
    scaler, warm_up : for each modality, see `kinstream.learners.base.scaler`.
    unit : of each modality, see `kinstream.learners.base.one_modality.SingleModal`.
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET
    #: Name and version; that of the published unit in the class, and one higher in a learner with another unit.
    algorithm: ClassVar[str]
    #: Whether the model depends on differences of vectors only.
    centred: bool = True
    #: Whether the metric is a linear map of the features.
    linear: ClassVar[bool] = True

    def __init__(
        self,
        *,
        beta: float,
        margin: float,
        dtype: str,
        scaler: str | None,
        warm_up: int,
        unit: str = scalers.PUBLISHED,
    ) -> None:
        self.beta = positive("beta", beta, 1.0)
        self.margin = not_negative("margin", margin)
        self.dtype = one_of("dtype", dtype, DTYPES)
        self.scaler = one_of("scaler", scaler or "none", scalers.NAMES)
        self.warm_up = whole("warm_up", warm_up, 2)
        self._work_in(one_of("unit", unit, scalers.UNITS))
        #: Constraints seen by the model so far: all but the rejected.
        self.accepted = 0
        self._modalities: Modalities | None = None
        self._scalers: list[Scaler] = []
        #: Mistakes of each modality beyond those of the best one, and the weights that follow from them.
        self._behind: NDArray[np.int64] = np.zeros(0, np.int64)
        self._theta: NDArray[np.float64] = np.zeros(0)
        self._most = int(np.ceil(np.log(LEAST_WEIGHT) / np.log(self.beta)))
        #: Set by a learner whose model begins with the vectors of a warm-up. They are kept until a constraint has
        #: changed the model: its initial value is not an update.
        self._waits = False
        self._buffer: Buffer | None = None

    @property
    def modalities(self) -> tuple[tuple[str, int], ...]:
        """Name and dimension of each, none before the first block."""
        return () if self._modalities is None else self._modalities.pairs

    @property
    def renewals(self) -> int:
        """How often a scaler was made anew because the features had left it."""
        return sum(one.renewals for one in self._scalers)

    def _work_in(self, unit: str) -> None:
        """Begin with the scalers of a unit."""
        self.unit = unit
        vars(self).pop("algorithm", None)
        own = type(self).algorithm
        # One that is made of others has a name of its own.
        if isinstance(own, str):
            vars(self)["algorithm"] = scalers.scaled_version(own, unit, self.scaler)

    def _new_scalers(self) -> list[Scaler]:
        if self.unit == scalers.PUBLISHED or self.scaler == "unit":
            return [scalers.create(self.scaler, self.warm_up) for _ in self.modalities]
        return [Following(self.scaler, self.warm_up, centred=self.centred) for _ in self.modalities]

    def _by_unit(self, given: float | None, own: float, published: float) -> float:
        """A hyper-parameter as it was given, or that of the unit."""
        if given is not None:
            return given
        return published if self.unit == scalers.PUBLISHED else own

    @property
    def experts(self) -> tuple[str, ...]:
        """The names of the weights: the modalities, unless a learner overrides it."""
        return tuple(name for name, _ in self.modalities)

    @property
    def weights(self) -> dict[str, float]:
        """theta by expert; empty before the first block."""
        return {name: float(weight) for name, weight in zip(self.experts, self._theta, strict=True)}

    def learn(self, block: ConstraintBlock) -> Outcomes:
        """Learn from the rows of a block in order.

        Parameters
        ----------
        block : of triplets, with the modalities of the first one. Weights of constraints are ignored.

        Returns
        -------
        Outcomes
            One entry per row. A row is rejected, without effect on the model, when one of its vectors in any
            modality, or the updated model, is not finite. Its mistake is that of the fused distance. Mistake, margin
            and loss are by the model before the first row of the same event was learned.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            Wrong kind, modalities, dimension or shape; the state is untouched.
        """
        checked_columns(block)
        tables = [(t.name, t.vectors) for t in block.tables]
        outcomes = self._learn(tables, block.index, block.kind, shared(block.events, len(block)))
        outcomes.split[:] = block.split(self.form)
        return outcomes

    def learn_triplets(self, anchors: Features, positives: Features, negatives: Features) -> Outcomes:
        """Learn from m triplets given as three times m raw vectors of each modality; see `learn`.

        Parameters
        ----------
        anchors, positives, negatives : modality -> (m, d); or (m, d) where there is only one.
        """
        tables, m = stacked([named(role, self._modalities) for role in (anchors, positives, negatives)])
        return self._learn(tables, np.arange(3 * m, dtype=np.int32).reshape(3, m).T, Kind.TRIPLET)

    def state(self) -> State:
        """The model, the count of constraints and the scalers' statistics; all copies."""
        state: State = {"accepted": self.accepted}
        if self.unit != scalers.PUBLISHED:
            state["step_unit"] = self.unit
        if self._modalities is None:
            return state
        state |= {"modalities": json.dumps(self._modalities.pairs), "behind": self._behind.copy()}
        if self._buffer is None:
            state |= self._model()
        else:
            state |= {f"buffer.{name}": value for name, value in self._buffer.state().items()}
        for (modality, _), one in zip(self.modalities, self._scalers, strict=True):
            state |= {f"scaler.{name}.{modality}": value for name, value in one.state().items()}
        return state

    def restore(self, state: State) -> None:
        """Continue from `state()` of a learner with the same hyper-parameters.

        Raises
        ------
        SettingsError
            The state is of another type than this learner.
        """
        self.accepted = int(state["accepted"])
        self._work_in(str(state.get("step_unit", scalers.PUBLISHED)))
        self._modalities, self._buffer = None, None
        if "modalities" not in state:
            return
        self._modalities = Modalities(
            tuple((str(name), int(size)) for name, size in json.loads(str(state["modalities"])))
        )
        self._behind = np.array(state["behind"], np.int64)
        self._theta = np.empty(len(self._behind))
        weigh(self._behind, self.beta, self._theta)
        self._scalers = self._new_scalers()
        for (modality, _), one in zip(self.modalities, self._scalers, strict=True):
            mine = {
                name.split(".")[1]: value
                for name, value in state.items()
                if name.startswith("scaler.") and name.split(".", 2)[2] == modality
            }
            if mine:
                one.restore(mine)
        kept = without_prefix("buffer.", state)
        if kept:
            self._buffer = Buffer(self.warm_up)
            self._buffer.restore(kept)
            self._begin([size for _, size in self.modalities])
            if self._warm:
                self._prepare_with(self._buffer)
        else:
            self._restore_model(state)

    @property
    def maps(self) -> dict[str, Rows]:
        """sqrt(theta_i) S_i by modality, for scaled features.

        Raises
        ------
        ValueError
            Before the first block, when the dimensions are unknown.
        """
        if not self.linear:
            raise ValueError(f"{self.algorithm} is not a linear map of its features")
        if self._modalities is None:
            raise ValueError("the maps have no dimension yet: learn from a block first")
        return {
            name: np.asarray(self._weighed(i, np.eye(size, dtype=self.dtype)).T)
            for i, (name, size) in enumerate(self.modalities)
        }

    def transform(self, X: Features) -> Rows:
        """Scale and map raw features, so that squared Euclidean distance is the learned one.

        Parameters
        ----------
        X : modality -> (n, d); or (n, d) where there is only one.

        Returns
        -------
        (n, k) : sqrt(theta_i) S_i x_i of all modalities, one after the other.

        Raises
        ------
        ValueError
            X has other modalities or shapes.
        """
        begun = self._begun(X)
        return np.concatenate([begun._weighed(i, part) for i, part in enumerate(begun._scaled(X))], axis=1)

    def scale(self, X: Features) -> Rows:
        """Raw features after the scalers, (n, D): all modalities, one after the other."""
        return np.concatenate(self._begun(X)._scaled(X), axis=1)

    def affine(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]] | None]:
        """For each modality shift and factor (d,) with scaled = (x - shift) * factor, or None if there is no such
        form."""
        return {name: one.affine() for (name, _), one in zip(self.modalities, self._scalers, strict=True)}

    @property
    def spreads(self) -> dict[str, NDArray[np.float64]]:
        """For each modality the root mean square (d,) of its scaled features, as `SingleModal.spread`."""
        return {name: one.spread(d) for (name, d), one in zip(self.modalities, self._scalers, strict=True)}

    def distance(self, X: Features, Y: Features) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, as `transform` takes them."""
        begun = self._begun(X)
        left, right = begun._scaled(X), begun._scaled(Y)
        if [part.shape for part in left] != [part.shape for part in right]:
            raise ValueError("expected two sets of tables of the same shapes")
        found = np.zeros(len(left[0]), self.dtype)
        for i, (one, other) in enumerate(zip(left, right, strict=True)):
            # The difference is taken before the map, so it is exact for close vectors.
            moved = begun._weighed(i, one - other)
            found += np.einsum("ij,ij->i", moved, moved)
        return found

    @abstractmethod
    def _begin(self, sizes: Sequence[int]) -> None:
        """Create the initial model for these dimensions in new arrays, because a copy of the learner may call this."""

    @abstractmethod
    def _model(self) -> State:
        """A copy of the model without the weights."""

    @abstractmethod
    def _restore_model(self, state: State) -> None:
        """Continue from a state that holds `_model()`. It raises SettingsError if that is of another type."""

    @abstractmethod
    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        """Learn the rows of the batch in order, and fill the outcomes in. Vectors hold all modalities."""

    @abstractmethod
    def _mapped(self, i: int, Z: Rows) -> Rows:
        """Scaled vectors of modality i, or differences of such, (n, d) under S_i."""

    def _prepare(self, parts: Sequence[NDArray[np.float64]]) -> None:
        """Begin with the scaled vectors (k, d) of the warm-up, one table for each modality."""
        raise NotImplementedError

    def _score(self, points: Sequence[NDArray[np.float64]]) -> tuple[int, float, float]:
        """Mistake, loss and margin of a triplet, scaled vectors (3, d) of each modality, by the first model."""
        fused = 0.0
        for i, part in enumerate(points):
            z = (part[0] - part[1:]).astype(self.dtype)
            near, far = (self._mapped(i, z) if self.linear else z).astype(np.float64)
            fused += float(self._theta[i]) * float(near @ near - far @ far)
        return int(fused >= 0.0), max(0.0, fused + self.margin), 0.0 - fused

    def _weighed(self, i: int, Z: Rows) -> Rows:
        """Scaled vectors of modality i, or differences of such, under sqrt(theta_i) S_i."""
        return np.asarray(self._mapped(i, Z) * Z.dtype.type(np.sqrt(self._theta[i])))

    def _scaled(self, X: Features) -> Parts:
        assert self._modalities is not None
        parts = self._modalities.ordered(named(X, self._modalities))
        return [
            np.asarray(one.apply(part).astype(self.dtype))
            for one, part in zip(self._scalers, parts, strict=True)
        ]

    def _begun(self, X: Features) -> Self:
        """This learner; before its first block a copy that has begun with X's modalities, to use the initial model."""
        if self._modalities is not None:
            return self
        begun = copy(self)
        begun._open(Modalities.of(list(named(X, None).items())))
        return begun

    def _open(self, modalities: Modalities) -> None:
        """Begin with the modalities of the first block."""
        self._modalities = modalities
        self._scalers = self._new_scalers()
        self._behind = np.zeros(len(self.experts), np.int64)
        self._theta = np.empty(len(self._behind))
        weigh(self._behind, self.beta, self._theta)
        self._buffer = Buffer(self.warm_up) if self._waits else None
        self._begin([size for _, size in modalities.pairs])

    def _learn(
        self,
        tables: Sequence[tuple[str, Rows]],
        index: Index,
        kind: Kind,
        events: Numbers | None = None,
    ) -> Outcomes:
        if kind not in self.accepts:
            raise BadRecord(Reason.WRONG_KIND, f"{self.algorithm} learns from triplets, not {kind}s")
        modalities, parts = checked_tables(tables, self._modalities)
        index = checked_index(index, 3, len(parts[0]))
        outcomes = Outcomes.blank(len(index))
        if len(index) == 0:
            return outcomes
        if self._modalities is None:
            self._open(modalities)
        start, late = self._watched(parts, index, events, outcomes)
        begin = start
        while start < len(index):
            stop = start + self._followed(parts, index[start:])
            due = any(one.due for one in self._scalers)
            if due and events is not None:
                # All of an event is judged by what was there before it.
                stop = int(np.searchsorted(events, events[stop - 1], side="right"))
            self._learn_rows(parts, index, events, outcomes, slice(start, stop))
            for i, one in enumerate(self._scalers):
                if one.due:
                    self._rescale(i, one.renew())
            if due or outcomes.utilised.any():
                self._buffer = None
            start = stop
        if late is not None and begin < len(index):
            take(outcomes, begin, late)
        self.accepted += len(index) - int(outcomes.rejected.sum())
        return outcomes

    def _followed(self, parts: Parts, index: Index) -> int:
        """How many constraints all scalers watch before one of them is due."""
        before = [apart(one) for one in self._scalers]
        passed = [one.follow(part, index) for one, part in zip(self._scalers, parts, strict=True)]
        least = min(passed)
        for i, (one, part) in enumerate(zip(before, parts, strict=True)):
            if passed[i] > least:
                one.follow(part, index[:least])
                self._scalers[i] = one
        return least

    def _learn_rows(
        self, parts: Parts, index: Index, events: Numbers | None, outcomes: Outcomes, rows: slice
    ) -> None:
        """Learn from some rows of a block under one scale for each modality."""
        assert self._modalities is not None
        starts = self._modalities.starts
        X = np.empty((len(parts[0]), starts[-1]), self.dtype)
        with np.errstate(all="ignore"):
            for at, one, part in zip(starts, self._scalers, parts, strict=False):
                X[:, at : at + part.shape[1]] = one.apply(one.cut(part))
        found, few = outcomes[rows], index[rows]
        finite = np.asarray(np.isfinite(X).all(axis=1), np.bool_)
        for one, part in zip(self._scalers, parts, strict=True):
            finite &= one.within(part)
        usable = np.asarray(finite[few].all(axis=1), np.bool_)
        grouped = Events.of(None if events is None else events[rows])
        batch = Batch(X, few, usable, np.zeros(len(few), np.int8), events=grouped)
        self._update(batch, found)
        if grouped.several:
            self._judge(batch, found)

    def _rescale(self, i: int, ratio: NDArray[np.float64]) -> None:
        """Make the model measure vectors of modality i that are divided by (d,) as those before."""
        raise NotImplementedError(f"{self.algorithm} has no other unit than the published one")

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """Write the verdicts of `batch.events.rows` from the kernel's measurements before their events.

        Whether a row is degenerate does not depend on the model.
        """
        write_hinges(outcomes, batch.events, self.margin)

    def _watched(
        self, parts: Parts, index: Index, events: Numbers | None, outcomes: Outcomes
    ) -> tuple[int, Outcomes | None]:
        """`_watch` by events, see `kinstream.learners.base.events.watched`."""

        def watch(learner: MultiModal, rows: slice, found: Outcomes) -> int:
            return learner._watch(parts, index[rows], found)

        def refused() -> NDArray[np.bool_]:
            each = [one.refused(part, index) for one, part in zip(self._scalers, parts, strict=True)]
            return np.asarray(np.any(each, axis=0))

        return watched(self, watch, events, outcomes, refused)

    def _twin(self) -> Self:
        """A copy of this learner whose warm-up continues independently; `_prepare` makes a model of its own."""
        twin = copy(self)
        twin._scalers = [apart(one) for one in self._scalers]
        twin._buffer = None if self._buffer is None else apart(self._buffer)
        return twin

    @property
    def _warm(self) -> bool:
        """Whether the warm-up is over."""
        full = self._buffer is None or self._buffer.full
        return full and all(one.ready for one in self._scalers)

    def _watch(self, parts: Parts, index: Index, outcomes: Outcomes) -> int:
        """Score the rows of the warm-up; returns the first row to learn from."""
        for t, rows in enumerate(index):
            if self._warm:
                return t
            points = [part[rows].astype(np.float64) for part in parts]
            if not all(np.isfinite(point).all() for point in points):
                outcomes.rejected[t] = True
                continue
            near = True
            for one, point in zip(self._scalers, points, strict=True):
                near &= bool(one.within(point).all()) if one.ready else one.observe(point)
            if self._buffer is not None:
                together = np.concatenate(points, axis=1)
                self._buffer.observe(together)
                near &= bool(self._buffer.within(together).all())
            if not near:
                outcomes.rejected[t] = True
                if self._buffer is not None and self._warm:
                    self._prepare_with(self._buffer)
                continue
            scaled = [
                np.asarray(one.apply(p), np.float64) for one, p in zip(self._scalers, points, strict=True)
            ]
            outcomes.mistake[t], outcomes.loss[t], outcomes.margin[t] = self._score(scaled)
            if self._buffer is not None and self._warm:
                self._prepare_with(self._buffer)
        return len(index)

    def _prepare_with(self, buffer: Buffer) -> None:
        assert self._modalities is not None
        raw = np.split(buffer.rows, self._modalities.starts[1:-1], axis=1)
        self._prepare(
            [np.asarray(one.apply(p), np.float64) for one, p in zip(self._scalers, raw, strict=True)]
        )
