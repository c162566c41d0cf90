"""What learners of a square linear map share: scaler, type, state, and the map in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from learners import scaler as scalers
from learners.base import Outcomes, State
from learners.validation import one_of, whole
from streams.errors import BadRecord, Reason, SettingsError
from streams.records import ConstraintBlock, Kind

DTYPES: Final = ("float64", "float32")
#: Vectors of one constraint.
WIDTH: Final = {Kind.PAIR: 2, Kind.TRIPLET: 3}

Rows = NDArray[np.floating[Any]]
Index = NDArray[np.int32]


class LinearLearner(ABC):
    """A learner whose model is a map L (d, d); the learned squared distance is |L (x - y)|^2.

    A subclass gives `accepts`, `algorithm`, `_update` and `_score`. The dimension d is that of the first
    block.

    Parameters
    ----------
    dtype : type of the map and of all work with it.
    scaler, warm_up : see `learners.scaler`.
    """

    accepts: ClassVar[frozenset[Kind]]
    algorithm: ClassVar[str]

    def __init__(self, *, dtype: str, scaler: str | None, warm_up: int) -> None:
        self.dtype = one_of("dtype", dtype, DTYPES)
        self.scaler = one_of("scaler", scaler or "none", scalers.NAMES)
        self.warm_up = whole("warm_up", warm_up, 2)
        #: Constraints seen by the model so far: all but the rejected and the ignored.
        self.accepted = 0
        self._scaler = scalers.create(scaler, warm_up)
        # The map is kept transposed, see learners.kernels.opml. An upper bound of its entries, -1 for
        # unknown, only saves work and is no state.
        self._T: Rows | None = None
        self._bound = -1.0

    @property
    def dimension(self) -> int | None:
        """Number of features, None before the first block."""
        return None if self._T is None else len(self._T)

    @property
    def L(self) -> Rows:
        """A copy of the map (d, d), for scaled features.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """
        if self._T is None:
            raise ValueError("the map has no dimension yet: learn from a block first")
        return self._T.T.copy()

    def learn(self, block: ConstraintBlock) -> Outcomes:
        """Learn from the rows of a block in order.

        Parameters
        ----------
        block : of an accepted kind, with one modality. Weights and targets play no part in these algorithms.

        Returns
        -------
        Outcomes
            One entry per row. A row is rejected, without effect on the model, when one of its vectors or the
            updated map is not finite, or where the guard forbids the step.

        Raises
        ------
        streams.errors.BadRecord
            Wrong kind, dimension or shape; the state is untouched.
        """
        if block.kind not in self.accepts:
            raise BadRecord(
                Reason.WRONG_KIND, f"{self.algorithm} learns from {_words(self.accepts)}, not {block.kind}s"
            )
        if len(block.tables) != 1:
            raise BadRecord(
                Reason.BAD_SHAPE, f"{self.algorithm} takes one modality, the block has {len(block.tables)}"
            )
        return self._learn(block.tables[0].vectors, block.index, block.kind, self._ignored(block))

    def state(self) -> State:
        """The map, the count of constraints and the scaler's statistics; all copies."""
        state: State = {"accepted": self.accepted}
        if self._T is not None:
            state["L"] = self.L
        return state | {f"scaler.{name}": value for name, value in self._scaler.state().items()}

    def restore(self, state: State) -> None:
        """Continue from `state()` of a learner with the same hyper-parameters.

        Raises
        ------
        SettingsError
            The state's map is of another type than this learner.
        """
        learned = state.get("L")
        if learned is not None:
            found = np.asarray(learned)
            if found.dtype != self.dtype:
                raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
            learned = np.array(found.T, order="C")
        self._T, self._bound = learned, -1.0
        self.accepted = int(state["accepted"])
        self._scaler = scalers.create(self.scaler, self.warm_up)
        prefix = "scaler."
        kept = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        if kept:
            self._scaler.restore(kept)

    def transform(self, X: Rows) -> Rows:
        """Scale and map raw features (n, d), so that squared Euclidean distance is the learned one.

        Raises
        ------
        ValueError
            X is not (n, d).
        """
        scaled = self.scale(X)
        return scaled if self._T is None else np.asarray(scaled @ self._T)

    def scale(self, X: Rows) -> Rows:
        """Raw features (n, d) after the scaler: the space in which the un-learned metric is Euclidean distance.

        Raises
        ------
        ValueError
            X is not (n, d).
        """
        X = np.asarray(X)
        if X.ndim != 2 or (self._T is not None and X.shape[1] != len(self._T)):
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
        if self._T is not None:
            if moved.shape[1:] != self._T.shape[:1]:
                raise ValueError(f"expected features of shape (n, {self.dimension}), got {X.shape}")
            moved = moved @ self._T
        return np.asarray(np.einsum("ij,ij->i", moved, moved))

    @abstractmethod
    def _update(self, T: Rows, X: Rows, index: Index, usable: NDArray[np.bool_], outcomes: Outcomes) -> None:
        """Change the transposed map T by constraints over the scaled vectors X, and fill the outcomes in.

        What stands in `usable` as false is to be reported as rejected.
        """

    @abstractmethod
    def _score(self, points: NDArray[np.float64]) -> tuple[int, float]:
        """Mistake and loss of one constraint, (2 or 3, d) scaled vectors, under the identity."""

    def _ignored(self, block: ConstraintBlock) -> NDArray[np.bool_] | None:
        """Rows of a rule that the algorithm has no use for; None for no such row."""
        return None

    def _learn(
        self, vectors: Rows, index: Index, kind: Kind, ignored: NDArray[np.bool_] | None = None
    ) -> Outcomes:
        index = self._checked(vectors, index, kind)
        outcomes = Outcomes.blank(len(index))
        if ignored is not None and ignored.any():
            kept = self._learn(vectors, index[~ignored], kind)
            for name in Outcomes.__dataclass_fields__:
                getattr(outcomes, name)[~ignored] = getattr(kept, name)
            outcomes.ignored[ignored] = True
            return outcomes
        if len(index) == 0:
            return outcomes
        if self._T is None:
            self._T = np.eye(vectors.shape[1], dtype=self.dtype)
        start = self._watch(vectors, index, outcomes)
        if start < len(index):
            with np.errstate(all="ignore"):
                scaled = self._scaler.apply(vectors)
                X = np.require(scaled, self.dtype, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
            usable = np.isfinite(X).all(axis=1)[index[start:]].all(axis=1)
            self._update(self._T, X, index[start:], usable, outcomes[slice(start, None)])
        self.accepted += len(index) - int(outcomes.rejected.sum())
        return outcomes

    def _checked(self, vectors: Rows, index: Index, kind: Kind) -> Index:
        if vectors.ndim != 2 or index.ndim != 2 or index.shape[1] != WIDTH[kind]:
            shapes = f"{vectors.shape} and {index.shape}"
            raise BadRecord(
                Reason.BAD_SHAPE, f"{kind}s need a table (n, d) and an index (m, {WIDTH[kind]}): {shapes}"
            )
        if self._T is not None and vectors.shape[1] != len(self._T):
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"the model has {len(self._T)} features, not {vectors.shape[1]}"
            )
        if vectors.shape[1] == 0:
            raise BadRecord(Reason.BAD_SHAPE, "vectors without features")
        if len(index) and (index.min() < 0 or index.max() >= len(vectors)):
            raise BadRecord(Reason.BAD_SHAPE, f"the index points outside its table of {len(vectors)} rows")
        return np.require(index, np.int32, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])

    def _watch(self, vectors: Rows, index: Index, outcomes: Outcomes) -> int:
        """Score what belongs to the scaler's warm-up; returns the first row to learn from."""
        for t, rows in enumerate(index):
            if self._scaler.ready:
                return t
            points = vectors[rows].astype(np.float64)
            if not np.isfinite(points).all():
                outcomes.rejected[t] = True
                continue
            self._scaler.observe(points)
            outcomes.mistake[t], outcomes.loss[t] = self._score(
                np.asarray(self._scaler.apply(points), np.float64)
            )
        return len(index)


def _words(kinds: frozenset[Kind]) -> str:
    return " and ".join(f"{kind}s" for kind in sorted(kinds))
