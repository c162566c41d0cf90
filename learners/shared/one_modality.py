"""What learners of one modality share: scaler, adapters of constraints, checks of the input, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import Outcomes, Rows, State
from kinstream.learners.shared import scaler as scalers
from kinstream.learners.shared.events import Events, Numbers, apart, shared, take, watched, write_hinges
from kinstream.learners.shared.pairs_of_triplets import merged, pairs_of_triplets
from kinstream.learners.shared.targets import Targets
from kinstream.learners.shared.validation import one_of, whole
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import ConstraintBlock, Kind

DTYPES: Final = ("float64", "float32")
#: Vectors of one constraint.
WIDTH: Final = {Kind.PAIR: 2, Kind.TRIPLET: 3}

Index = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Constraints as a learner's kernel takes them.

    Parameters
    ----------
    X : (n, d) scaled vectors of the model's type, C-contiguous.
    index : (m, 2) or (m, 3) int32 rows of X: pairs, or triplets (anchor, positive, negative).
    usable : (m,) false where a vector is not finite; such a row is to be reported as rejected.
    signs : (m,) int8, +1 similar and -1 dissimilar; zeros for triplets.
    targets, thresholds : (m,) float64 squared distances; empty for a learner that needs none. A threshold, above
        which a similar pair and up to which a dissimilar one is a mistake, is NaN while it is not known.
    group : 1, or 2 where rows 2t and 2t + 1 are the pairs (x, x+) and (x, x-) of a triplet. Then the mistake of
        row 2t is that of the triplet: d(x, x+) >= d(x, x-) before both steps; that of row 2t + 1 is not read.
    events : which rows share an event.
    """

    X: Rows
    index: Index
    usable: NDArray[np.bool_]
    signs: NDArray[np.int8]
    targets: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    thresholds: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    group: int = 1
    events: Events = field(default_factory=lambda: Events.of(None))

    def __len__(self) -> int:
        return len(self.index)

    def end_of_event(self, row: int) -> int:
        """The row behind the event that goes on at a row; that row where an event begins, or the batch has ended."""
        events = self.events
        at = np.searchsorted(events.rows * self.group, row)
        if at == len(events.rows) or events.rows[at] * self.group != row:
            return row
        return int(events.ends[events.firsts[at] * self.group])


class SingleModal(ABC):
    """A learner of one modality whose learned squared distance is |M (x - y)|^2 for a map M (k, d).

    A subclass gives `algorithm`, `form`, and the abstract methods. The dimension d is that of the first block; before
    it, `transform` and `distance` take any, and measure by the model that the learner begins with.

    Parameters
    ----------
    dtype : type of the model and of all work with it.
    scaler, warm_up : see `kinstream.learners.shared.scaler`.

    Attributes
    ----------
    accepts : kinds of blocks that `learn` takes.
    form : kind of constraint that the algorithm is made for. Triplets reach a learner of pairs as two pairs,
        (x, x+) similar and (x, x-) dissimilar, that count as one constraint (spec 1.2).
    """

    accepts: ClassVar[frozenset[Kind]]
    form: ClassVar[Kind]
    algorithm: ClassVar[str]
    #: Whether `_update` takes vectors of a narrower type than the model's as they are, and refuses by itself those that
    #: are not finite: two passes over a block less.
    raw: ClassVar[bool] = False

    def __init__(self, *, dtype: str, scaler: str | None, warm_up: int) -> None:
        self.dtype = one_of("dtype", dtype, DTYPES)
        self.scaler = one_of("scaler", scaler or "none", scalers.NAMES)
        self.warm_up = whole("warm_up", warm_up, 2)
        #: Constraints seen by the model so far: all but the rejected and the ignored.
        self.accepted = 0
        self._scaler = scalers.create(scaler, warm_up)
        self._dimension: int | None = None
        #: Set by a learner that needs target distances.
        self._targets: Targets | None = None

    @property
    def dimension(self) -> int | None:
        """Number of features, None before the first block."""
        return self._dimension

    @property
    def settled(self) -> bool:
        """Whether dimension and scaler are what they will always be: true from the end of a scaler's warm-up on."""
        return self._dimension is not None and self._scaler.ready

    def learn(self, block: ConstraintBlock) -> Outcomes:
        """Learn from the rows of a block in order.

        Parameters
        ----------
        block : of an accepted kind, with one modality. Weights play no part in these algorithms.

        Returns
        -------
        Outcomes
            One entry per row. A row is rejected, without effect on the model, when one of its vectors or the
            updated model is not finite, or where the guard forbids the step. Mistake, margin and loss are by the model
            before the first row of the same event was learned.

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
        )
        outcomes.split[:] = self._split(block)
        return outcomes

    def _split(self, block: ConstraintBlock) -> NDArray[np.bool_]:
        """(m,) rows of whose event something may have been learned from an earlier block."""
        return block.split(self.form)

    def learn_triplets(self, anchors: Rows, positives: Rows, negatives: Rows) -> Outcomes:
        """Learn from m triplets given as three tables (m, d) of raw features; see `learn`."""
        return self._learn(*_stacked(anchors, positives, negatives), Kind.TRIPLET)

    def learn_pairs(self, left: Rows, right: Rows, signs: NDArray[np.int8] | None = None) -> Outcomes:
        """Learn from m pairs given as two tables (m, d) of raw features; see `learn`.

        Parameters
        ----------
        signs : (m,) +1 similar and -1 dissimilar; all similar where it is left out.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            The learner takes no pairs, or the shapes do not fit.
        """
        vectors, index = _stacked(left, right)
        return self._learn(
            vectors, index, Kind.PAIR, np.ones(len(index), np.int8) if signs is None else signs
        )

    def state(self) -> State:
        """What was learned, the count of constraints and the scaler's statistics; all copies."""
        state: State = {"accepted": self.accepted}
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
        self._dimension = self._restore_model(model) if model else None
        self._scaler = scalers.create(self.scaler, self.warm_up)
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
        """Shift and factor (d,) with scaled = (x - shift) * factor; None where the scaler has no such form."""
        return self._scaler.affine()

    def distance(self, X: Rows, Y: Rows) -> Rows:
        """Learned squared distances (n,) between the rows of X and those of Y, both (n, d) raw features."""
        X, Y = np.asarray(X), np.asarray(Y)
        if X.shape != Y.shape:
            raise ValueError(f"expected two tables of the same shape, got {X.shape} and {Y.shape}")
        # The difference is taken before the map: it is exact where vectors are close.
        moved = self._scaler.apply(X).astype(self.dtype) - self._scaler.apply(Y).astype(self.dtype)
        if moved.ndim != 2 or moved.shape[1] != (self._dimension or moved.shape[1]):
            raise ValueError(f"expected features of shape (n, {self.dimension or 'd'}), got {X.shape}")
        moved = self._begun(moved.shape[1])._mapped(moved)
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    def expect(self, d: int) -> None:
        """Begin with d features before the first block, where a learner of several others knows them."""
        if self._dimension is None:
            self._begin(d)
            self._dimension = d

    def _begun(self, d: int) -> Self:
        """This learner; before its first block a copy that has begun with d features, to measure by its first model."""
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
        """Make the model of d features before its first constraint, in new arrays: a copy of the learner may do so."""

    @abstractmethod
    def _model(self) -> State:
        """A copy of what was learned; at least one entry."""

    @abstractmethod
    def _restore_model(self, state: State) -> int:
        """Continue from `_model()`; returns d. It raises SettingsError where the state is of another type."""

    @abstractmethod
    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        """Learn the rows of the batch in order, and fill the outcomes (m,) in."""

    @abstractmethod
    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        """Mistake, loss and margin of one constraint, (2 or 3, d) scaled vectors, under the model before it learned."""

    def _ignored(self, block: ConstraintBlock) -> NDArray[np.bool_] | None:
        """Rows of a rule that the algorithm has no use for; None for no such row."""
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
    ) -> Outcomes:
        if kind not in self.accepts:
            raise BadRecord(
                Reason.WRONG_KIND, f"{self.algorithm} learns from {_words(self.accepts)}, not {kind}s"
            )
        index = self._checked(vectors, index, kind)
        signs = np.zeros(len(index), np.int8) if signs is None else _checked_signs(signs, kind, len(index))
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
        if start < len(index):
            with np.errstate(all="ignore"):
                scaled = self._scaler.apply(vectors)
                narrow = self.raw and scaled.dtype == np.float32
                X = np.require(
                    scaled, None if narrow else self.dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"]
                )
            rows = slice(start, None)
            usable = np.ones(len(index) - start, np.bool_)
            if not self.raw:
                usable = np.isfinite(X).all(axis=1)[index[rows]].all(axis=1)
            part = outcomes[rows]
            given = None if targets is None else targets[rows]
            group = 1 if kind is self.form or self.form is Kind.TRIPLET else 2
            grouped = Events.of(None if events is None else events[rows], group)
            if group == 1:
                batch = self._batch(X, index[rows], usable, signs[rows], given, 1, grouped)
                self._run(kind, batch, part)
            else:
                two, both = pairs_of_triplets(index[rows])
                halves = Outcomes.blank(len(two))
                batch = self._batch(X, two, np.repeat(usable, 2), both, None, 2, grouped)
                self._run(Kind.PAIR, batch, halves)
                merged(halves, part)
            if grouped.several:
                self._judge(batch, part)
            if late is not None:
                take(part, 0, late)
        self.accepted += len(index) - int(outcomes.rejected.sum())
        return outcomes

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
        if events.several:
            events.levels[:] = self._targets.before(signs, given, lambda: events.begun(len(signs)))
        targets, thresholds = self._targets.of(signs, given)
        return Batch(X, index, usable & np.isfinite(targets), signs, targets, thresholds, group, events)

    def _run(self, kind: Kind, batch: Batch, outcomes: Outcomes) -> None:
        """Hand a batch of one kind to `_update`; a learner of several native kinds overrides it."""
        self._update(batch, outcomes)

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """Write the verdicts of `batch.events.rows`, from what the kernel has measured before their events.

        Here for a hinge at a margin of 1. What is degenerate is so whatever the model.
        """
        write_hinges(outcomes, batch.events, 1.0)

    def _checked(self, vectors: Rows, index: Index, kind: Kind) -> Index:
        if vectors.ndim != 2 or index.ndim != 2 or index.shape[1] != WIDTH[kind]:
            shapes = f"{vectors.shape} and {index.shape}"
            raise BadRecord(
                Reason.BAD_SHAPE, f"{kind}s need a table (n, d) and an index (m, {WIDTH[kind]}): {shapes}"
            )
        if self._dimension is not None and vectors.shape[1] != self._dimension:
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"the model has {self._dimension} features, not {vectors.shape[1]}"
            )
        if vectors.shape[1] == 0:
            raise BadRecord(Reason.BAD_SHAPE, "vectors without features")
        if len(index) and (index.min() < 0 or index.max() >= len(vectors)):
            raise BadRecord(Reason.BAD_SHAPE, f"the index points outside its table of {len(vectors)} rows")
        return np.require(index, np.int32, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])

    def _watched(
        self,
        vectors: Rows,
        index: Index,
        signs: NDArray[np.int8],
        events: Numbers | None,
        outcomes: Outcomes,
    ) -> tuple[int, Outcomes | None]:
        """`_watch` by events, see `kinstream.learners.shared.events.watched`."""

        def watch(learner: SingleModal, rows: slice, found: Outcomes) -> int:
            return learner._watch(vectors, index[rows], signs[rows], found)

        return watched(self, watch, events, outcomes)

    @property
    def _warm(self) -> bool:
        """Whether the warm-up is over."""
        return self._scaler.ready and (self._targets is None or self._targets.ready)

    def _twin(self) -> Self:
        """A learner like this one, whose warm-up goes on by itself; its model is the same one."""
        twin = copy(self)
        twin._scaler = apart(self._scaler)
        twin._targets = None if self._targets is None else apart(self._targets)
        return twin

    def _watch(self, vectors: Rows, index: Index, signs: NDArray[np.int8], outcomes: Outcomes) -> int:
        """Score what belongs to the warm-up; returns the first row to learn from."""
        for t, rows in enumerate(index):
            scaling = not self._scaler.ready
            if self._warm:
                return t
            points = vectors[rows].astype(np.float64)
            if not np.isfinite(points).all():
                outcomes.rejected[t] = True
                continue
            if scaling:
                self._scaler.observe(points)
            if self._targets is not None and not self._targets.ready:
                self._targets.observe(points, self._scaler.apply, self._scaler.ready)
            outcomes.mistake[t], outcomes.loss[t], outcomes.margin[t] = self._score(
                np.asarray(self._scaler.apply(points), np.float64), int(signs[t])
            )
        return len(index)


def _stacked(*tables: Rows) -> tuple[Rows, Index]:
    """One table of all rows, and the index that takes the k-th rows of all tables as constraint k."""
    arrays = [np.asarray(table) for table in tables]
    if any(array.ndim != 2 or array.shape != arrays[0].shape for array in arrays):
        raise ValueError(f"expected tables of one shape (m, d), got {[array.shape for array in arrays]}")
    m = len(arrays[0])
    return np.concatenate(arrays), np.arange(len(arrays) * m, dtype=np.int32).reshape(-1, m).T


def _checked_signs(signs: NDArray[np.int8], kind: Kind, m: int) -> NDArray[np.int8]:
    if signs.shape != (m,):
        raise BadRecord(Reason.BAD_SHAPE, f"{m} constraints need as many signs, not {signs.shape}")
    if kind is Kind.PAIR and not np.isin(signs, (-1, 1)).all():
        raise BadRecord(Reason.BAD_SHAPE, "the sign of a pair must be 1 or -1")
    return np.require(signs, np.int8, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


def _words(kinds: frozenset[Kind]) -> str:
    return " and ".join(f"{kind}s" for kind in sorted(kinds))
