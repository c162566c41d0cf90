"""Judges metrics by unlabelled vectors: those with fewer hubs have better neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import State
from kinstream.learners.distances import squared_distances
from kinstream.learners.portfolio.members import BROKEN, Member
from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

NEIGHBOURS: Final = 10
#: Rate at which a member's prior weight falls with the skewness.
STRENGTH: Final = 3.0
#: Squared distances that differ by less than this share of their mean are equal.
SAME: Final = 1e-6
#: Number of vectors that are examined.
SAMPLED: Final = 384
#: Scored constraints before the first check of the learners; the next check is at twice as many.
FIRST: Final = 32


class Hubs:
    """Measures the hubs of all members at intervals, and derives their prior weights.

    A check uses the first 384 vectors of scored constraints, or all if there are fewer. It takes place when the members
    begin, and after 32, 64, 128, ... scored constraints, at the end of the event. Block boundaries have no effect.

    Parameters
    ----------
    members : number of members.
    """

    def __init__(self, members: int) -> None:
        #: Proportional to exp(-3 s_i), s_i the skewness of a member's hubs; equal until the first check.
        self.prior: Vector = np.ones(members)
        self._sample: Rows | None = None
        self._scored = 0

    @property
    def begun(self) -> bool:
        """Whether a check has taken place."""
        return self._sample is not None

    def begin(self, sample: Rows, members: Sequence[Member | None]) -> None:
        """Check members that have learned nothing yet, with the first vectors (n, d)."""
        self._sample = np.array(sample)
        self._look(self._sample, members)

    def until(self, X: Rows, index: NDArray[Any]) -> int:
        """How many of these constraints may be learned before the next check is due, at least 1.

        Constraints with vectors that are not finite will be rejected.

        Parameters
        ----------
        X : (n, d) scaled vectors.
        index : (m, k) rows of X.
        """
        missing = self._due - self._scored
        if missing > len(index):
            return len(index)
        finite = np.asarray(np.isfinite(X).all(axis=1))
        usable = finite[index].all(axis=1)
        reached = np.flatnonzero(np.cumsum(usable) >= missing)
        return int(reached[0]) + 1 if len(reached) else len(index)

    def count(
        self, X: Rows, index: NDArray[Any], scored: NDArray[np.bool_], members: Sequence[Member | None]
    ) -> None:
        """Count constraints that members have learned from, at most as many as `until` gave; check hubs if that is
        due.

        Parameters
        ----------
        X : (n, d) scaled vectors.
        index : (m, k) rows of X.
        scored : (m,) which of them count.
        members : None where one was dropped.
        """
        assert self._sample is not None
        missing = SAMPLED - len(self._sample)
        if missing > 0:
            rows = index[scored].reshape(-1)[:missing]
            self._sample = np.concatenate([self._sample, X[rows]])
        due = self._due
        self._scored += int(np.count_nonzero(scored))
        if self._scored >= due:
            self._look(self._sample, members)

    def state(self) -> State:
        state: State = {"prior": self.prior.copy(), "scored": self._scored}
        return state if self._sample is None else state | {"sample": self._sample.copy()}

    def restore(self, state: State) -> None:
        self.prior = np.array(state["prior"], np.float64)
        self._scored = int(state["scored"])
        self._sample = np.array(state["sample"]) if "sample" in state else None

    @property
    def _due(self) -> int:
        """Number of scored constraints at the next check: 32, 64, 128, ..."""
        return FIRST << (self._scored // FIRST).bit_length()

    def _look(self, sample: Rows, members: Sequence[Member | None]) -> None:
        different = np.unique(sample, axis=0)
        # The check affects what is learned, so no sum may depend on the number of threads.
        with np.errstate(all="ignore"), one_blas_thread():
            self.prior = prior([_skewness(member, different) for member in members])


def _skewness(member: Member | None, rows: Rows) -> float | None:
    try:
        return None if member is None else skewness(member.learner.transform(rows))
    except BROKEN:
        # The member will be dropped at its next constraint.
        return None


def prior(skewnesses: Sequence[float | None]) -> Vector:
    """exp(-3 s) of the skewnesses s (N,), as shares; a member without skewness gets the smallest one."""
    known = [s for s in skewnesses if s is not None]
    least = min(known, default=0.0)
    found = np.exp(-STRENGTH * (np.array([least if s is None else s for s in skewnesses]) - least))
    return np.asarray(found / found.sum(), np.float64)


def skewness(rows: Rows) -> float | None:
    """Skewness of how often one of the rows (n, d) is among the 10 nearest neighbours of others.

    If few vectors are neighbours of most others, votes of neighbours are poor; the effect grows with the differences of
    lengths (Radovanović, Nanopoulos, Ivanović: Hubs in space. Journal of Machine Learning Research 11, 2010, Eq. 1).
    None if there are too few rows, all are equally frequent, or some are not finite.
    """
    n = len(rows)
    if n < NEIGHBOURS + 2 or not np.isfinite(rows).all():
        return None
    apart = squared_distances(np.asarray(rows, np.float64))
    same = SAME * float(apart.mean())
    np.fill_diagonal(apart, np.inf)
    last = np.partition(apart, NEIGHBOURS - 1, axis=1)[:, NEIGHBOURS - 1, None]
    nearer, tied = apart < last - same, np.abs(apart - last) <= same
    # Vectors as far as the tenth share the remaining places.
    left = (NEIGHBOURS - nearer.sum(axis=1)) / tied.sum(axis=1)
    times = nearer.sum(axis=0) + left @ tied
    moved = times - times.mean()
    spread = float(times.std())
    return float(np.mean(moved**3)) / spread**3 if spread > SAME else None
