"""The base of learners of one modality: scaler, conversion of constraints, checks of the input, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import scaler as scalers
from kinstream.learners.base.adaptive_scaler import Following
from kinstream.learners.base.events import (
    Batch as Batch,
)
from kinstream.learners.base.events import (
    Events,
    Numbers,
    apart,
    shared,
    take,
    watched,
    weighted,
    write_hinges,
)
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.pairs_of_triplets import merged, pairs_of_triplets
from kinstream.learners.base.scaler import Scaler
from kinstream.learners.base.targets import Targets
from kinstream.learners.base.validation import (
    Index as Index,
)
from kinstream.learners.base.validation import (
    checked_index,
    checked_signs,
    one_of,
    stacked_rows,
    whole,
    words_of,
)
from kinstream.streams.compute.arrays import plain
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import ConstraintBlock, Kind

DTYPES: Final = ("float64", "float32")


class SingleModal(ABC):
    """A learner of one modality whose learned squared distance is |M (x - y)|^2 for a map M (k, d).

    A subclass gives `algorithm`, `form`, and the abstract methods. The dimension d is that of the first block; before
    it, `transform` and `distance` accept any, and use the initial model.

    Parameters
    ----------
    dtype : type of the model and of all calculations with it.
    scaler, warm_up : see `kinstream.learners.base.scaler`.
    unit : "length" makes the mean squared length of scaled vectors 1, and the scaler follow the features, see
        `kinstream.learners.base.adaptive_scaler`. "published" uses the scaler alone, frozen after its warm-up,
        and the step sizes of the papers. A learner adopts the unit of a state that it restores.

    Attributes
    ----------
    accepts : kinds of blocks that `learn` takes.
    form : kind of constraint that the algorithm is made for. A learner of pairs gets a triplet as two pairs, (x, x+)
        similar and (x, x-) dissimilar, which count as one constraint.
    """

    accepts: ClassVar[frozenset[Kind]]
    form: ClassVar[Kind]
    #: Name and version; the class has that of the published unit, a learner with another unit one higher.
    algorithm: ClassVar[str]
    #: Whether the model depends only on differences of vectors.
    centred: ClassVar[bool] = True
    #: Whether `_update` accepts vectors of a narrower type than the model's, and rejects those that are not finite
    #: itself: this saves two passes over a block.
    raw: ClassVar[bool] = False

    def __init__(
        self, *, dtype: str, scaler: str | None, warm_up: int, unit: str = scalers.PUBLISHED
    ) -> None:
        self.dtype = one_of("dtype", dtype, DTYPES)
        self.scaler = one_of("scaler", scaler or "none", scalers.NAMES)
        self.warm_up = whole("warm_up", warm_up, 2)
        #: Constraints seen by the model so far: all but the rejected and the ignored.
        self.accepted = 0
        self._work_in(one_of("unit", unit, scalers.UNITS))
        self._dimension: int | None = None
        #: Set by a learner that needs target distances.
        self._targets: Targets | None = None

    @property
    def dimension(self) -> int | None:
        """Number of features, None before the first block."""
        return self._dimension

    @property
    def settled(self) -> bool:
        """Whether dimension and scaler are known: true from the end of a scaler's warm-up on."""
        return self._dimension is not None and self._scaler.ready

    @property
    def renewals(self) -> int:
        """How often the scaler was renewed because the features had left its scale."""
        return self._scaler.renewals

    def _work_in(self, unit: str) -> None:
        """Begin with the scaler of a unit."""
        self.unit = unit
        vars(self).pop("algorithm", None)
        self._scaler: Scaler = scalers.create(self.scaler, self.warm_up)
        own = type(self).algorithm
        # One that is made of others has a name of its own.
        if isinstance(own, str):
            vars(self)["algorithm"] = scalers.scaled_version(own, unit, self.scaler)
        if unit == scalers.PUBLISHED:
            return
        if self.scaler != "unit":
            self._scaler = Following(self.scaler, self.warm_up, centred=self.centred)

    def _by_unit(self, given: float | None, own: float, published: float) -> float:
        """A hyper-parameter as given, or the unit's default."""
        if given is not None:
            return given
        return published if self.unit == scalers.PUBLISHED else own

    def learn(self, block: ConstraintBlock) -> Outcomes:
        """Learn from the rows of a block in order.

        Parameters
        ----------
        block : of an accepted kind, with one modality. Only the adapter uses weights.

        Returns
        -------
        Outcomes
            One entry per row. A row is rejected, without effect on the model, if one of its vectors or the updated
            model is not finite, or if the guard forbids the step. Mistake, margin and loss are by the model before the
            first row of the same event was learned.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            Wrong kind, dimension or shape; the state is untouched.
        """
        if len(block.tables) != 1:
            raise BadRecord(
                Reason.BAD_SHAPE, f"{self.algorithm} takes one modality, the block has {len(block.tables)}"
            )
        for name in ("signs", "rule"):
            found = getattr(block, name)
            if found.shape != (len(block),):
                raise BadRecord(
                    Reason.BAD_SHAPE, f"{len(block)} constraints, and {name} of shape {found.shape}"
                )
        events = shared(block.events, len(block))
        outcomes = self._learn(
            block.tables[0].vectors,
            block.index,
            block.kind,
            block.signs,
            block.targets,
            self._ignored(block),
            events,
            block.weights,
        )
        outcomes.split[:] = self._split(block)
        return outcomes

    def _split(self, block: ConstraintBlock) -> NDArray[np.bool_]:
        """(m,) rows of events of which an earlier block may have been learned."""
        return block.split(self.form)

    def learn_triplets(self, anchors: Rows, positives: Rows, negatives: Rows) -> Outcomes:
        """Learn from m triplets given as three tables (m, d) of raw features; see `learn`."""
        return self._learn(*stacked_rows(anchors, positives, negatives), Kind.TRIPLET)

    def learn_pairs(self, left: Rows, right: Rows, signs: NDArray[np.int8] | None = None) -> Outcomes:
        """Learn from m pairs given as two tables (m, d) of raw features; see `learn`.

        Parameters
        ----------
        signs : (m,) +1 similar and -1 dissimilar; by default all similar.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            The learner does not accept pairs, or the shapes do not fit.
        """
        vectors, index = stacked_rows(left, right)
        signs = np.ones(len(index), np.int8) if signs is None else signs
        return self._learn(vectors, index, Kind.PAIR, signs)

    def state(self) -> State:
        """The model, the count of constraints and the scaler's statistics; all copies."""
        state: State = {"accepted": self.accepted}
        if self.unit != scalers.PUBLISHED:
            state["step_unit"] = self.unit
        if self._dimension is not None:
            state |= self._model()
        if self._targets is not None:
            state |= {f"targets.{name}": value for name, value in self._targets.state().items()}
        return state | {f"scaler.{name}": value for name, value in self._scaler.state().items()}

    def restore(self, state: State) -> None:
        """Continue from `state()` of a learner with the same hyper-parameters.

        Raises
        ------
        SettingsError
            The state is of another type than this learner.
        """
        model = {name: value for name, value in state.items() if "." not in name}
        self.accepted = int(model.pop("accepted"))
        self._work_in(str(model.pop("step_unit", scalers.PUBLISHED)))
        self._dimension = self._restore_model(model) if model else None
        kept = without_prefix("scaler.", state)
        if kept:
            self._scaler.restore(kept)
        if self._targets is not None:
            self._targets.restore(without_prefix("targets.", state))

    @property
    @abstractmethod
    def map(self) -> Rows:
        """A copy of the map M (k, d), for scaled features.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """

    def transform(self, X: Rows) -> Rows:
        """Scale and map raw features (n, d), so that squared Euclidean distance is the learned one.

        Raises
        ------
        ValueError
            X is not (n, d).
        """
        scaled = self.scale(X)
        return self._begun(scaled.shape[1])._mapped(scaled)

    def scale(self, X: Rows) -> Rows:
        """Raw features (n, d) after the scaler: the space in which the un-learned metric is Euclidean distance.

        Raises
        ------
        ValueError
            X is not (n, d).
        """
        X = np.asarray(X)
        if X.ndim != 2 or (self._dimension is not None and X.shape[1] != self._dimension):
            raise ValueError(f"expected features of shape (n, {self.dimension or 'd'}), got {X.shape}")
        return np.asarray(self._scaler.apply(X).astype(self.dtype))

    def affine(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Shift and factor (d,) with scaled = (x - shift) * factor; None if the scaler has no such form."""
        return self._scaler.affine()

    @property
    def spread(self) -> NDArray[np.float64]:
        """Root mean square (d,) of each scaled feature, up to a factor of all; ones where it is not known."""
        return self._scaler.spread(self._dimension or 0)

    def distance(self, X: Rows, Y: Rows) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, both (n, d) raw features."""
        X, Y = np.asarray(X), np.asarray(Y)
        if X.shape != Y.shape:
            raise ValueError(f"expected two tables of the same shape, got {X.shape} and {Y.shape}")
        # The difference is taken before the map, so it is exact for close vectors.
        moved = self._scaler.apply(X).astype(self.dtype) - self._scaler.apply(Y).astype(self.dtype)
        if moved.ndim != 2 or moved.shape[1] != (self._dimension or moved.shape[1]):
            raise ValueError(f"expected features of shape (n, {self.dimension or 'd'}), got {X.shape}")
        moved = self._begun(moved.shape[1])._mapped(moved)
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    def expect(self, d: int) -> None:
        """Begin with d features before the first block; a learner that contains this one knows them."""
        if self._dimension is None:
            self._begin(d)
            self._dimension = d

    def _begun(self, d: int) -> Self:
        """This learner; before its first block a copy that has begun with d features, to use the initial model."""
        if self._dimension is not None:
            return self
        begun = copy(self)
        begun._begin(d)
        begun._dimension = d
        return begun

    def _mapped(self, Z: Rows) -> Rows:
        """Scaled vectors, or differences of such, (n, d) under the map."""
        return np.asarray(Z @ self.map.T)

    @abstractmethod
    def _begin(self, d: int) -> None:
        """Create the initial model of d features in new arrays, because a copy of the learner may call this."""

    @abstractmethod
    def _model(self) -> State:
        """A copy of the model; at least one entry."""

    @abstractmethod
    def _restore_model(self, state: State) -> int:
        """Continue from `_model()`; returns d. It raises SettingsError if the state is of another type."""

    @abstractmethod
    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        """Learn the rows of the batch in order, and fill the outcomes (m,) in."""

    @abstractmethod
    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        """Mistake, loss and margin of one constraint, (2 or 3, d) scaled vectors, under the initial model."""

    def _ignored(self, block: ConstraintBlock) -> NDArray[np.bool_] | None:
        """Rows of rules that the algorithm ignores; None if there are none."""
        return None

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
        if kind not in self.accepts:
            raise BadRecord(
                Reason.WRONG_KIND, f"{self.algorithm} learns from {words_of(self.accepts)}, not {kind}s"
            )
        index = checked_index(vectors, index, kind, self._dimension)
        signs = np.zeros(len(index), np.int8) if signs is None else checked_signs(signs, kind, len(index))
        outcomes = Outcomes.blank(len(index))
        if ignored is not None and ignored.any():
            use = ~ignored
            kept = self._learn(
                vectors,
                index[use],
                kind,
                signs[use],
                None if targets is None else targets[use],
                events=None if events is None else shared(events[use], int(use.sum())),
                weights=None if weights is None else weights[use],
            )
            for name in Outcomes.__dataclass_fields__:
                getattr(outcomes, name)[use] = getattr(kept, name)
            outcomes.ignored[ignored] = True
            return outcomes
        if len(index) == 0:
            return outcomes
        if self._dimension is None:
            self._begin(vectors.shape[1])
            self._dimension = vectors.shape[1]
        start, late = self._watched(vectors, index, signs, events, outcomes)
        begin = start
        while start < len(index):
            stop = start + self._scaler.follow(vectors, index[start:])
            if self._scaler.due and events is not None:
                # All of an event is judged by the model before it.
                stop = int(np.searchsorted(events, events[stop - 1], side="right"))
            rows = slice(start, stop)
            given = None if weights is None else weights[rows]
            self._learn_rows(vectors, index, kind, signs, targets, events, given, outcomes, rows)
            if self._scaler.due:
                self._rescale(self._scaler.renew())
            start = stop
        if late is not None and begin < len(index):
            take(outcomes, begin, late)
        self.accepted += len(index) - int(np.count_nonzero(outcomes.rejected))
        return outcomes

    def _learn_rows(
        self,
        vectors: Rows,
        index: Index,
        kind: Kind,
        signs: NDArray[np.int8],
        targets: NDArray[np.float32] | None,
        events: Numbers | None,
        weights: NDArray[np.float32] | None,
        outcomes: Outcomes,
        rows: slice,
    ) -> None:
        """Learn from some rows of a block under one scale; weights are those of these rows."""
        with np.errstate(all="ignore"):
            scaled = self._scaler.apply(self._scaler.cut(vectors))
            narrow = self.raw and scaled.dtype == np.float32
            X = plain(scaled, None if narrow else self.dtype)
        usable = np.ones(len(index[rows]), np.bool_)
        if not self.raw and not (finite := np.isfinite(X)).all():
            usable = finite.all(axis=1)[index[rows]].all(axis=1)
        if self._scaler.ready:
            near = self._scaler.within(vectors)
            usable = usable if near.all() else usable & near[index[rows]].all(axis=1)
        part = outcomes[rows]
        given = None if targets is None else targets[rows]
        group = 1 if kind is self.form or self.form is Kind.TRIPLET else 2
        grouped = Events.of(None if events is None else events[rows], group)
        if group == 1:
            batch = self._batch(X, index[rows], usable, signs[rows], given, 1, grouped)
            self._run(kind, weighted(batch, weights), part)
        else:
            two, both = pairs_of_triplets(index[rows])
            halves = Outcomes.blank(len(two))
            batch = self._batch(X, two, np.repeat(usable, 2), both, None, 2, grouped)
            self._run(Kind.PAIR, weighted(batch, weights), halves)
            merged(halves, part)
        if grouped.several:
            self._judge(batch, part)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        """Multiply the columns of the map by `ratio` (d,), so distances stay the same for vectors divided by it."""
        raise NotImplementedError(f"{self.algorithm} has no other unit than the published one")

    def _batch(
        self,
        X: Rows,
        index: Index,
        usable: NDArray[np.bool_],
        signs: NDArray[np.int8],
        given: NDArray[np.float32] | None,
        group: int,
        events: Events,
    ) -> Batch:
        if self._targets is None:
            return Batch(X, index, usable, signs, group=group, events=events)
        if given is not None and self._scaler.squared != 1.0:
            given = np.asarray(given * self._scaler.squared, np.float32)
        if events.several:
            events.levels[:] = self._targets.before(signs, given, lambda: events.begun(len(signs)))
        targets, thresholds = self._targets.of(signs, given)
        return Batch(X, index, usable & np.isfinite(targets), signs, targets, thresholds, group, events)

    def _run(self, kind: Kind, batch: Batch, outcomes: Outcomes) -> None:
        """Pass a batch of one kind to `_update`; a learner of several native kinds overrides this."""
        self._update(batch, outcomes)

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """Write the verdicts of `batch.events.rows` from the kernel's measurements before their events.

        This one is for a hinge at a margin of 1. Whether a row is degenerate does not depend on the model.
        """
        write_hinges(outcomes, batch.events, 1.0)

    def _watched(
        self,
        vectors: Rows,
        index: Index,
        signs: NDArray[np.int8],
        events: Numbers | None,
        outcomes: Outcomes,
    ) -> tuple[int, Outcomes | None]:
        """`_watch` by events, see `kinstream.learners.base.events.watched`."""

        def watch(learner: SingleModal, rows: slice, found: Outcomes) -> int:
            return learner._watch(vectors, index[rows], signs[rows], found)

        return watched(self, watch, events, outcomes, lambda: self._scaler.refused(vectors, index))

    @property
    def _warm(self) -> bool:
        """Whether the warm-up is over."""
        return self._scaler.ready and (self._targets is None or self._targets.ready)

    def _twin(self) -> Self:
        """A copy of this learner whose warm-up continues independently; its model is the same one."""
        twin = copy(self)
        twin._scaler = apart(self._scaler)
        twin._targets = None if self._targets is None else apart(self._targets)
        return twin

    def _watch(self, vectors: Rows, index: Index, signs: NDArray[np.int8], outcomes: Outcomes) -> int:
        """Score the rows of the warm-up; returns the first row to learn from."""
        for t, rows in enumerate(index):
            scaling = not self._scaler.ready
            if self._warm:
                return t
            points = vectors[rows].astype(np.float64)
            if not np.isfinite(points).all():
                outcomes.rejected[t] = True
                continue
            near = self._scaler.observe(points) if scaling else bool(self._scaler.within(points).all())
            if self._targets is not None and not self._targets.ready:
                near &= self._targets.observe(points, self._scaler.apply, self._scaler.ready)
            if not near:
                outcomes.rejected[t] = True
                continue
            outcomes.mistake[t], outcomes.loss[t], outcomes.margin[t] = self._score(
                np.asarray(self._scaler.apply(points), np.float64), int(signs[t])
            )
        return len(index)
