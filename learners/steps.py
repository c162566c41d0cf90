"""The change of a square linear map by one block of constraints: a few directions, as two thin factors.

A step along a difference z changes LEGO's map G by a multiple of G z (A z)', with A = G'G; over a block the rows of the
change lie in the span of A_0 z of all its differences z, A_0 the metric before it. So with an orthonormal basis Q of
that span (d, r), the change is exactly ((G_1 - G_0) Q) Q', whichever way a kernel computes G_1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner, Outcomes, Rows
from kinstream.streams.records.values import ConstraintBlock, Kind

#: Kinds of learners whose changes have this form.
KINDS: Final = ("copml", "itml-online", "lego", "opml")

#: The part of a change that the factors may omit, as a share of the map: this many roundings, and one for each step.
_ROUNDINGS: Final = 8


class Stepped(Learner, Protocol):
    """A learner of a square map whose changes over a block have few directions."""

    @property
    def settled(self) -> bool:
        """Whether dimension and scaler are known."""

    @property
    def renewals(self) -> int:
        """How often the scaler has changed since."""

    @property
    def map(self) -> Rows:
        """A copy of the map (d, d), for scaled features."""

    def scale(self, X: Rows) -> Rows:
        """Raw features (n, d) after the scaler."""

    def directions(self, before: Rows, Z: Rows) -> Rows:
        """Rows (k, d) that span those of the change.

        Parameters
        ----------
        before : (d, d) the map before the block.
        Z : (k, d) scaled differences, of the constraints that changed it.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A change of the map: new map = old map + U V.

    Parameters
    ----------
    U, V : (d, r) and (r, d), of the map's type; the rows of V are orthonormal.
    """

    U: Rows
    V: Rows


def as_stepped(learner: Any) -> Stepped | None:
    """The learner, if its changes have this form."""
    return learner if callable(getattr(learner, "directions", None)) else None


def step_of(learner: Stepped, before: Rows, block: ConstraintBlock, outcomes: Outcomes) -> Step:
    """The change by a block.

    Parameters
    ----------
    learner : after it has learned the block.
    before : (d, d) its map before.
    outcomes : of the block.

    Returns
    -------
    Step
            With r at most d, and 0 if nothing has changed. Directions within rounding are left out if the result is
            still the change to rounding; otherwise, as when a guard has scaled the whole map, r is d.
    """
    after = learner.map
    d = len(after)
    if np.array_equal(before, after):
        return Step(np.empty((d, 0), after.dtype), np.empty((0, d), after.dtype))
    change = after - before
    Z = _differences(learner, block, outcomes)
    if 0 < len(Z) < d:
        rows = np.asarray(learner.directions(before, Z), np.float64)
        # A common factor changes no span, and keeps squares of large or small rows within range.
        lengths = np.abs(rows).max(axis=1, keepdims=True)
        rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0.0)
        if np.isfinite(rows).all():
            V = np.ascontiguousarray(np.linalg.qr(rows.T)[0].T.astype(after.dtype))
            U = np.ascontiguousarray(change @ V.T)
            allowed = (_ROUNDINGS + len(Z)) * np.finfo(after.dtype).eps * np.linalg.norm(after)
            if np.linalg.norm(change - U @ V) <= allowed:
                return Step(U, V)
    return Step(change, np.eye(d, dtype=after.dtype))


def _differences(learner: Stepped, block: ConstraintBlock, outcomes: Outcomes) -> NDArray[Any]:
    """The scaled differences (k, d) of the constraints that changed the model, each once."""
    index = block.index[outcomes.utilised]
    ends = index[:, 1:2] if block.kind is Kind.PAIR else index[:, 1:]
    pairs = np.column_stack([np.repeat(index[:, 0], ends.shape[1]), ends.ravel()])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    vectors, place = np.unique(pairs, return_inverse=True)
    X = learner.scale(block.tables[0].vectors[vectors])
    left, right = place.reshape(pairs.shape).T
    return np.asarray(X[left] - X[right])
