"""OAHU in mini-batches: one step per B triplets, with the mean of their gradients.

This differs from the published algorithm: it takes one step for B triplets, and every triplet of a batch is judged by
the weights before the batch. It is for streams that are too fast for one step per triplet, and for GPUs. Batches
continue across blocks, so the sums of an unfinished batch belong to the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import UNDEFINED, Outcomes, State
from kinstream.learners.kernels.ensembles import oahu
from kinstream.learners.kernels.equal_vectors import first_equal
from kinstream.learners.oahu.events import Look
from kinstream.learners.oahu.network import OAHUNetwork
from kinstream.learners.oahu.step_rule import HEDGES, Rule
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.compute.compilation import limit

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]

#: Triplets that go through the network at once.
PIECE: Final = 1024


@dataclass(slots=True, eq=False)
class TripletResults:
    """The results of n triplets.

    Parameters
    ----------
    losses, margins : (n, L + 1) by model: the loss, and D(x, x+) - D(x, x-).
    active : (n,) whether any model has a gradient.
    finite : (n,) whether all of these are finite; the sums exclude the others.
    """

    losses: Vector
    margins: Vector
    active: NDArray[np.bool_]
    finite: NDArray[np.bool_]


class Machine(Protocol):
    """A network whose gradients are added up until a step."""

    def add(self, rule: Rule, alpha: Vector, X: Rows, index: NDArray[np.int32]) -> TripletResults:
        """Add the gradients of triplets (n, 3) of inputs X to the sums."""

    def step(self, factor: float) -> bool:
        """Add factor times the sums to the weights, and empty them; False, and no change, if that is not finite."""

    def embed(self, X: Rows) -> Sequence[Rows]:
        """Inputs (n, d) under every model, (n, m) each."""

    def close(self) -> None:
        """Write the results back to the network and the sums."""


class Batches:
    """The unfinished batch.

    Parameters
    ----------
    size : triplets of one step, B.
    alpha : (L + 1,) weights of the models.
    """

    def __init__(self, size: int, alpha: Vector) -> None:
        self.size = size
        self._count = 0
        #: alpha after the step.
        self._next = alpha.copy()

    def learn(
        self,
        machine: Machine,
        alpha: Vector,
        rule: Rule,
        X: Rows,
        index: NDArray[np.int32],
        usable: NDArray[np.bool_],
        given: Vector,
        outcomes: Outcomes,
        look: Look,
        rows: slice,
    ) -> None:
        """Learn some triplets in order; see `kinstream.learners.oahu.chunks.learn`.

        A step that is not finite is not taken, and the triplets of its batch in this call are rejected; earlier reports
        remain.
        """
        outcomes.rejected[rows] = True
        outcomes.mistake[rows], outcomes.loss[rows], outcomes.margin[rows] = UNDEFINED, 0.0, np.nan
        waiting = np.flatnonzero((usable & np.isfinite(given))[rows]) + rows.start
        known = rows.start
        batch: list[NDArray[np.int64]] = []
        while len(waiting):
            take = min(self.size - self._count, PIECE)
            some, waiting = waiting[:take], waiting[take:]
            look.judge(slice(known, int(some[-1]) + 1), machine.embed, alpha, rule)
            known = int(some[-1]) + 1
            found = machine.add(rule, alpha, X, index[some])
            fused = rule.share * (found.margins @ alpha) + given[some]
            outcomes.margin[some] = 0.0 - fused
            kept = found.finite
            good = some[kept]
            batch.append(good)
            outcomes.rejected[good] = False
            outcomes.mistake[good] = fused[kept] >= 0.0
            outcomes.loss[good] = found.losses[kept] @ alpha
            outcomes.utilised[good], outcomes.degenerate[good] = found.active[kept], ~found.active[kept]
            losses = np.ascontiguousarray(found.losses)
            use = kept & found.active
            oahu.hedges(self._next, losses, use, HEDGES.index(rule.hedge), rule.beta, rule.floor)
            self._count += len(good)
            if self._count == self.size:
                if not machine.step(-rule.eta / self.size):
                    lost = np.concatenate(batch)
                    outcomes.rejected[lost], outcomes.utilised[lost] = True, False
                    outcomes.degenerate[lost] = False
                    outcomes.mistake[lost], outcomes.loss[lost] = UNDEFINED, 0.0
                    self._next[:] = alpha
                alpha[:], self._count = self._next, 0
                batch.clear()

    def state(self) -> State:
        """The number of triplets in the batch, and alpha after it."""
        return {"batch_count": self._count, "batch_alpha": self._next.copy()}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._count = int(state["batch_count"])
        self._next = np.array(state["batch_alpha"], np.float64)


class NumpyMachine:
    """Gradients by matrix products on the processor.

    Parameters
    ----------
    network : changed in place.
    sums : of the gradients, shaped as the network.
    """

    def __init__(self, network: OAHUNetwork, sums: OAHUNetwork) -> None:
        self._network = network
        self._sums = sums

    def add(self, rule: Rule, alpha: Vector, X: Rows, index: NDArray[np.int32]) -> TripletResults:
        network, n, m = self._network, len(index), self._network.embedding
        with one_blas_thread(), np.errstate(all="ignore"):
            inputs = X[index.T.ravel()]
            equal = (first_equal(X, index).T * n + np.arange(n)).ravel()
            layers, units, lengths = [inputs], [], []
            for k, (theta, W) in enumerate(network.parts()):
                u = (layers[-1] @ theta)[equal]
                length = np.sqrt(np.einsum("ij,ij->i", u, u, dtype=np.float64))[:, None]
                dead = length < oahu.DEAD
                units.append(np.where(dead, 0.0, u / np.where(dead, 1.0, length)))
                lengths.append(np.where(dead, np.inf, length))
                if W is not None:
                    z = (layers[-1] @ W)[equal]
                    layers.append(np.maximum(z + network.biases[k] if len(network.biases) else z, 0))
            f = np.array(units).reshape(len(units), 3, n, m)
            near, far = f[:, 0] - f[:, 1], f[:, 0] - f[:, 2]
            Dp, Dn = (np.sqrt(np.einsum("knj,knj->kn", gap, gap)) for gap in (near, far))
            losses, down, up = np.empty_like(Dp), np.empty_like(Dp), np.empty_like(Dp)
            oahu.all_bounds(Dp, Dn, rule.tau, losses, down, up)
            weight = np.broadcast_to(alpha[:, None] if rule.by_alpha else 1.0 / len(alpha), Dp.shape)
            weight = weight * (2.0 / (1.0 + np.exp((Dn - Dp) / rule.temperature)))
            finite = np.isfinite(losses).all(axis=0)
            alive = np.array(lengths).reshape(len(units), 3, n) < np.inf
            # Equal and opposite points have no slope along the sphere, nor has a point and the dead centre.
            slope = [
                (D >= oahu.DEAD) & (D <= 2.0 - oahu.DEAD) & alive[:, 0] & alive[:, s]
                for D, s in ((Dp, 1), (Dn, 2))
            ]
            pull, push = (
                np.where(slope[0], weight * down / Dp, 0.0),
                np.where(slope[1], weight * up / Dn, 0.0),
            )
            active = ((pull != 0.0) | (push != 0.0)).any(axis=0) & finite
            p, q = pull[..., None] * near, push[..., None] * far
            slopes = np.stack([p + q, -p, -q], axis=1)
            slopes[:, :, ~active] = 0.0
            self._back(
                layers,
                f.reshape(len(units), 3 * n, m),
                np.array(lengths),
                slopes.reshape(len(units), 3 * n, m),
            )
        return TripletResults(losses.T, (Dp - Dn).T, active, finite)

    def step(self, factor: float) -> bool:
        most = limit(self._network.first.dtype)
        old = (self._network.first, self._network.rest, self._network.biases)
        new = []
        with np.errstate(all="ignore"):
            for M, total in zip(old, (self._sums.first, self._sums.rest, self._sums.biases), strict=True):
                new.append(M + M.dtype.type(factor) * total)
                total[:] = 0
            if not all((np.abs(M) < most).all() for M in new):
                return False
        for M, moved in zip(old, new, strict=True):
            M[:] = moved
        return True

    def embed(self, X: Rows) -> Sequence[Rows]:
        return self._network.embed(X)

    def close(self) -> None:
        pass

    def _back(self, layers: list[Rows], f: Vector, lengths: Vector, slopes: Vector) -> None:
        """Add the gradients up, from the last layer to the first; slopes (L + 1, 3n, m) are those by f."""
        dtype = self._network.first.dtype
        behind: Rows | None = None
        parts, sums = self._network.parts(), self._sums.parts()
        for k in range(len(parts) - 1, -1, -1):
            (theta, W), (by_theta, by_W), h = parts[k], sums[k], layers[k]
            along = np.einsum("ij,ij->i", f[k], slopes[k])[:, None]
            g = ((slopes[k] - f[k] * along) / lengths[k]).astype(dtype)
            # A vector without a gradient may hold NaN.
            used = (
                (g != 0).any(axis=1) if behind is None else (g != 0).any(axis=1) | (behind != 0).any(axis=1)
            )
            known = np.where(used[:, None], h, 0)
            by_theta += known.T @ g
            back = g @ theta.T
            if W is not None and by_W is not None and behind is not None:
                by_W += known.T @ behind
                back += behind @ W.T
                if len(self._sums.biases):
                    self._sums.biases[k] += behind.sum(axis=0)
            behind = np.where(h > 0, back, 0) if k else None
