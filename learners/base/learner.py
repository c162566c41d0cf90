"""The interface of a learner, and its report on every constraint."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.tally import tally
from kinstream.streams.records.state import State as State
from kinstream.streams.records.values import ConstraintBlock, Counts, Kind

#: Vectors (n, d), or their images under a model.
Rows = NDArray[np.floating[Any]]

#: Value of `Outcomes.mistake` if the algorithm defines none, or did not score the constraint.
UNDEFINED: Final = -1
_ALL: Final = np.empty(0, np.bool_)


#: mistake, utilised, clipped, rejected, degenerate, loss, margin: arrays of `Outcomes` that a kernel fills in.
Report = tuple[
    NDArray[np.int8],
    NDArray[np.bool_],
    NDArray[np.bool_],
    NDArray[np.bool_],
    NDArray[np.bool_],
    NDArray[np.float64],
    NDArray[np.float64],
]


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The results of m constraints. The learner fills the arrays; others only read them.

    Parameters
    ----------
    mistake : (m,) int8, 1 or 0 by the state before the update (a tie is a mistake), -1 where undefined.
    utilised : (m,) bool, the constraint changed the model.
    clipped : (m,) bool, a guard shortened the step.
    rejected : (m,) bool, the input or the step was not finite, or not allowed; the model is unchanged.
    degenerate : (m,) bool, the constraint has no direction to learn from (equal vectors).
    ignored : (m,) bool, the algorithm defines nothing for a constraint of this rule.
    loss : (m,) float64 before the update, 0 where rejected or ignored.
    margin : (m,) float64, by how much a triplet was ranked right before the update, in the learner's own terms: squared
        distance (x, x-) less that of (x, x+), or similarity to x+ less that to x-. Where `mistake` is defined, it is
        whether this is at most 0. NaN for pairs, and for triplets that were not measured. A triplet whose step was
        rejected has a margin.
    split : (m,) bool, the constraint belongs to an event that began in an earlier block, whose rows may have been
        learned already. Its verdict is counted separately.
    """

    mistake: NDArray[np.int8]
    utilised: NDArray[np.bool_]
    clipped: NDArray[np.bool_]
    rejected: NDArray[np.bool_]
    degenerate: NDArray[np.bool_]
    ignored: NDArray[np.bool_]
    loss: NDArray[np.float64]
    margin: NDArray[np.float64]
    split: NDArray[np.bool_]

    @classmethod
    def blank(cls, m: int, *, ignored: bool = False) -> Self:
        """Outcomes of m constraints: nothing is reported yet, or all were ignored."""
        flags = np.zeros((6, m), np.bool_)
        if ignored:
            flags[4] = True
        numbers = np.zeros((2, m))
        numbers[1] = np.nan
        mistake = np.empty(m, np.int8)
        mistake[:] = UNDEFINED
        utilised, clipped, rejected, degenerate, without, split = flags
        return cls(mistake, utilised, clipped, rejected, degenerate, without, numbers[0], numbers[1], split)

    def __len__(self) -> int:
        return len(self.mistake)

    def __getitem__(self, rows: slice) -> Outcomes:
        """A view of some of the rows; of all of them, this object itself."""
        if rows.start in (0, None) and rows.stop == len(self) and rows.step is None:
            return self
        return Outcomes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def report(self) -> Report:
        """The arrays in the order in which kernels take them."""
        return (
            self.mistake,
            self.utilised,
            self.clipped,
            self.rejected,
            self.degenerate,
            self.loss,
            self.margin,
        )

    def counts(self, rows: NDArray[np.bool_] | None = None) -> Counts:
        """Sums over all constraints, or over those where `rows` (m,) is true.

        `seen` excludes the rejected and the ignored, so utilised / seen is the utilisation U. `scored` and `mistakes`
        exclude the split rows.
        """
        summed = np.empty(len(self), np.bool_)
        seen, scored, mistakes, utilised, clipped, rejected, degenerate, ignored, *split = tally(
            self.mistake,
            self.utilised,
            self.clipped,
            self.rejected,
            self.degenerate,
            self.ignored,
            self.split,
            self.loss,
            _ALL if rows is None else rows,
            summed,
        )
        with np.errstate(over="ignore"):
            # A model that diverges must not hide its counts.
            loss_sum = min(float(self.loss[summed].sum()), sys.float_info.max)
        return Counts(
            seen, scored, mistakes, utilised, clipped, rejected, degenerate, ignored, loss_sum, *split
        )


@runtime_checkable
class Learner(Protocol):
    """A deterministic state machine: the same constructor arguments and blocks give bit-identical state."""

    @property
    def accepts(self) -> frozenset[Kind]:
        """Kinds of constraints that `learn` takes."""

    @property
    def form(self) -> Kind:
        """The kind of constraint that the algorithm is made for; a learner of pairs gets a triplet as two pairs."""

    @property
    def algorithm(self) -> str:
        """Name and version, such as "opml/1"; the version changes when the same input gives another state."""

    def learn(self, block: ConstraintBlock) -> Outcomes:
        """Learn from the rows of a block in order, and report on each. A block may have no rows: all were held out.

        Raises
        ------
        kinstream.streams.errors.BadRecord
            The block is of another kind or dimension, or its index points outside its table; the state is
            untouched.
        """

    def state(self) -> State:
        """A copy of everything that later results depend on."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned on a learner with the same hyper-parameters."""

    def transform(self, X: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Map raw features (n, d) so that squared Euclidean distance is the learned one."""

    def distance(
        self, X: NDArray[np.floating[Any]], Y: NDArray[np.floating[Any]]
    ) -> NDArray[np.floating[Any]]:
        """Learned squared distances (n,) between the rows of X and those of Y, both (n, d) raw features."""
