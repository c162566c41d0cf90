"""Judges the triplets of an event before any of them is learned, for all forms of OAHU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.one_modality import Batch
from kinstream.learners.kernels.ensembles import oahu
from kinstream.learners.kernels.equal_vectors import first_equal
from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.spans import spans
from kinstream.learners.oahu.anchors import Lift
from kinstream.learners.oahu.step_rule import Rule

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Some triplets, and the others of their events, to be judged together.

    Parameters
    ----------
    judged : see `kinstream.learners.kernels.events`; the level is the loss. Empty if no triplets share an event.
    X : (n, d) inputs of the network's type.
    index, usable, given : (k, 3), (k,) and (k,), see `kinstream.learners.oahu.chunks.learn`. An event may end after the
        triplets that are learned.
    """

    judged: Judged
    X: Rows
    index: NDArray[np.int32]
    usable: NDArray[np.bool_]
    given: Vector

    def begins(self, rows: slice) -> bool:
        """Whether an event of several triplets begins in these rows."""
        return bool(self.judged[0][rows].any())

    def inputs(self, places: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
        """The distinct inputs (v, d) of triplets (k,), zeros for ones with NaN; and their rows (k, 3)."""
        index = self.index[places]
        vectors, where = np.unique(index, return_inverse=True)
        found = self.X[vectors]
        found[~np.isfinite(found).all(axis=1)] = 0
        equal = first_equal(self.X, index)
        return found, np.take_along_axis(where.reshape(index.shape), equal, axis=1)

    def judge(self, rows: slice, embed: Callable[[Rows], Sequence[Rows]], alpha: Vector, rule: Rule) -> None:
        """Judge the events that begin in these rows by the present network.

        Parameters
        ----------
        embed : inputs (v, d) under every model, (v, m) each.
        """
        if not self.begins(rows):
            return
        all_places, _, several = next(spans(self.judged[0], rows))
        places = all_places[several]
        inputs, where = self.inputs(places)
        gaps = []
        for points in embed(inputs):
            wide = points.astype(np.float64)
            apart = wide[where[:, :1]] - wide[where[:, 1:]]
            gaps.append(np.sqrt(np.einsum("tsj,tsj->ts", apart, apart)))
        near, far = np.array(gaps).transpose(2, 0, 1)
        losses = np.empty_like(near)
        oahu.all_bounds(near, far, rule.tau, losses, np.empty_like(near), np.empty_like(near))
        fused = rule.share * (alpha @ (near - far)) + self.given[places]
        _, found, levels = self.judged
        found[places] = np.where(self.usable[places], 0.0 - fused, np.nan)
        levels[places] = alpha @ losses


def measuring(
    batch: Batch,
    squares: Vector,
    used: NDArray[np.int64],
    count: int,
    lift: Lift,
    given: Callable[[Rows, NDArray[np.int32], Vector], Vector],
) -> Look:
    """Judges triplets while the mean squared length changes: each by the mean before its event, with its own vectors.

    Parameters
    ----------
    squares : (n,) squared lengths of the batch's vectors.
    used : triplets that the mean includes, in order.
    count : triplets that are learned while it changes. The event of the last one may continue after them.
    lift : before all of these.
    given : the un-learned metrics' part, a function of vectors, triplets and mean squared lengths.
    """
    ends, found, levels = batch.events.judged
    judged = ends[:count], found, levels
    if not ends[:count].any():
        return Look(judged, batch.X[:0], batch.index[:0], batch.usable[:0], found[:0])
    until = max(count, int(ends[:count].max()))
    index, lengths, numbers = batch.index[:until], np.zeros(until + 1), np.zeros(until + 1)
    own = squares[index].sum(axis=1)
    lengths[used + 1], numbers[used + 1] = own[used], 3.0
    firsts, inside = np.arange(until), batch.events.rows < until
    firsts[batch.events.rows[inside]] = batch.events.firsts[inside]
    means = lift.with_more(np.cumsum(lengths)[firsts] + own, np.cumsum(numbers)[firsts] + 3.0)
    X = lift.apply(batch.X[index.ravel()], np.repeat(means, 3))
    places = np.arange(3 * until, dtype=np.int32).reshape(until, 3)
    return Look(judged, X, places, batch.usable[:until], given(batch.X, index, means))
