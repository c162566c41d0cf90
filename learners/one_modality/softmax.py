"""Softmax over a memory of vectors: neighbourhood components in one pass."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, SingleModal
from kinstream.learners.base.scaler import LENGTH, WARM_UP, followed
from kinstream.learners.base.validation import one_of, positive, whole
from kinstream.learners.distances import between
from kinstream.learners.kernels.chains import BYTES
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.learners.kernels.events import measure
from kinstream.learners.kernels.one_modality import softmax
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind

#: Rows of a step.
BATCH: Final = 16
#: Squared distance within a group that the first map gives, in the mean.
WITHIN: Final = 4.0
#: Rows after which the step has fallen to 1 / sqrt(2); weight of late iterates in the mean.
FALLS: Final = 1000.0
LATE: Final = 4.0
#: A gradient longer than this times the usual one is shortened.
LONGEST: Final = 10.0
#: Vectors whose factor s_j is at most this in the gradients of all rows of a step are left out of it.
NEAR: Final = 1e-3
GROUPS: Final = ("chains", "none")

Model = NDArray[np.floating[Any]]


class Softmax(SingleModal):
    r"""A low-rank map by the softmax of distances to remembered vectors, in one pass.

    Of a triplet (x, x+, x-), x is a row, x+ gives the group that it belongs to, and x- is one more vector of another
    group. Let h_j be the vectors in memory but x itself, T those of its group, and

        q_j = exp(-|W (x - h_j)|^2) / sum_i exp(-|W (x - h_i)|^2),    l = -log sum_{j in T} q_j,

    the loss of neighbourhood components analysis against the memory instead of all data. Sixteen rows make a step of
    Adam on the mean of their gradients

        dl / dW = 2 W sum_j s_j (x - h_j)(x - h_j)',    s_j = [j in T] q_j / sum_T q_i - q_j,

    of size `step` w / sqrt(1 + n / 1000) after n rows, w the largest entry of the first map. Vectors whose factors s_j
    are at most .001 for all sixteen are left out. What measures distances is the mean of the iterates,
    A <- A + (W - A) 4 / (k + 3) at step k.

    The first map is made from the first `buffer` rows: their principal directions where there are more features than
    `rank`, else the identity; scaled so that the squared distance within groups is 4 on average. These rows are learned
    then.

    Parameters
    ----------
    rank : rows of the map at most.
    step : size of the first steps, as a share of the first map's largest entry.
    memory : vectors that are remembered, at least 2.
    per_group : of each group at most, at least 1. With few, more rows soon teach nothing: what five vectors a class
        separate best is not what finds neighbours among thousands.
    buffer : rows that the first map is made from, at least 16.
    groups : what belongs together.

        - "chains": a row and its positive are of one group, and so are the earlier members of theirs: classes, where
          constraints come from labels or relations. Groups of a row and its negative are never made one.
        - "none": each vector is alone. A row has its own positive for a target, as a query has the item that was
          clicked, and every other item in memory is a negative. Rows themselves are not remembered.
    dtype : "float64" or "float32", of the map and of all work with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that scales are measured on.
    unit : "length" has a scaler that follows them (`kinstream.learners.base.adaptive_scaler`): the map is
        carried over and measures until a new first map is made. "published" freezes it after its warm-up. Without a
        scaler there is no difference, for the step has no unit.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    A triplet is a mistake when x is not nearer to x+ than to x- under A; its loss is that of a softmax over the two. It
    is utilised when it made a step, so one in sixteen rows is; clipped when that step's gradient was over ten times as
    long as usual, and shortened to that. Vectors too long for their squares to be numbers are rejected, and so is the
    triplet whose step would not be finite. Where x+ equals x-, nothing is learned, and the triplet is degenerate.

    O(r d) time for a row, and O(s r d) of s vectors in memory for a step. Memory of (s + 4 r + buffer) d numbers.

    References
    ----------
    Goldberger, Roweis, Hinton, Salakhutdinov: Neighbourhood components analysis. NIPS 2004 (loss).
    Kingma, Ba: Adam: a method for stochastic optimization. ICLR 2015.
    Polyak, Juditsky: Acceleration of stochastic approximation by averaging. SIAM J. Control Optim. 1992.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream.learners.one_modality.softmax import Softmax
    >>> draw = np.random.default_rng(7)
    >>> x, near, far = np.array([0.2, 3.0]) * draw.normal(size=(3, 2000, 2))
    >>> far += [1.0, 0.0]
    >>> model = Softmax(groups="none")
    >>> mistake = model.learn_triplets(x, near, far).mistake
    >>> bool(mistake[:200].mean() > 0.3), bool(mistake[-200:].mean() < 0.25)
    (True, True)
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET
    algorithm: ClassVar[str] = "softmax/3"

    def __init__(
        self,
        rank: int = 64,
        step: float = 0.01,
        *,
        memory: int = 512,
        per_group: int = 50,
        buffer: int = 128,
        groups: str = "chains",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=followed(unit, scaler))
        self.rank = whole("rank", rank, 1)
        self.step = positive("step", step)
        self.memory = whole("memory", memory, 2)
        self.per_group = whole("per_group", per_group, 1)
        self.buffer = whole("buffer", buffer, BATCH)
        self.groups = one_of("groups", groups, GROUPS)
        self._begin(0)

    @property
    def map(self) -> Rows:
        if self._dimension is None:
            raise ValueError("the map has no dimension yet: learn from a block first")
        return self._mean.copy()

    def _mapped(self, Z: Rows) -> Rows:
        return np.asarray(Z @ self._mean.T)

    def _begin(self, d: int) -> None:
        self._mean: Model = np.eye(d, dtype=self.dtype)
        self._W: Model = np.empty((0, d), self.dtype)
        self._M: Model = np.empty((0, d), self.dtype)
        self._V: Model = np.empty((0, d), self.dtype)
        self._steps, self._unit, self._usual = 0, 0.0, 0.0
        self._vectors: Model = np.zeros((self.memory, d), self.dtype)
        self._hashes = np.zeros(self.memory, np.uint64)
        self._groups, self._stamps = np.zeros(self.memory, np.int64), np.zeros(self.memory, np.int64)
        self._pending: Model = np.zeros((self.buffer, d), self.dtype)
        self._pending_hashes, self._goals = np.zeros(self.buffer, np.uint64), np.zeros(self.buffer, np.int64)
        self._apart = np.zeros(BYTES, np.uint8)
        self._tally = np.zeros(softmax.TALLY, np.int64)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        mean = np.asarray(self._mean * ratio, self.dtype)
        # What is remembered has no meaning in another scale, and steps have become small.
        self._begin(len(ratio))
        self._mean = mean

    def _model(self) -> State:
        used, waiting = int(self._tally[softmax.SLOTS]), int(self._tally[softmax.PENDING])
        # Of one size, however many rows wait.
        pending = [array[: self._wait].copy() for array in (self._pending, self._pending_hashes, self._goals)]
        for array in pending:
            array[waiting:] = 0
        return {
            "A": self._mean.copy(),
            "W": self._W.copy(),
            "first_moment": self._M.copy(),
            "second_moment": self._V.copy(),
            "steps": self._steps,
            "unit": self._unit,
            "usual": self._usual,
            "apart": self._apart.copy(),
            "tally": self._tally.copy(),
            "memory_vectors": self._vectors[:used].copy(),
            "memory_hashes": self._hashes[:used].copy(),
            "memory_groups": self._groups[:used].copy(),
            "memory_stamps": self._stamps[:used].copy(),
            "pending_vectors": pending[0],
            "pending_hashes": pending[1],
            "pending_groups": pending[2],
        }

    def _restore_model(self, state: State) -> int:
        found: NDArray[Any] = np.asarray(state["A"])
        if found.dtype != self.dtype:
            raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        remembered: NDArray[Any] = np.asarray(state["memory_vectors"])
        if len(remembered) > self.memory:
            raise SettingsError(f"memory is {self.memory}, but the state to restore holds {len(remembered)}")
        self._begin(found.shape[1])
        self._mean, self._W = np.array(found), np.array(state["W"])
        self._M, self._V = np.array(state["first_moment"]), np.array(state["second_moment"])
        self._steps, self._unit = int(state["steps"]), float(state["unit"])
        self._usual = float(state["usual"])
        self._apart, self._tally = np.array(state["apart"], np.uint8), np.array(state["tally"], np.int64)
        used, wait = len(remembered), self._wait
        self._vectors[:used], self._hashes[:used] = remembered, state["memory_hashes"]
        self._groups[:used], self._stamps[:used] = state["memory_groups"], state["memory_stamps"]
        self._pending[:wait], self._goals[:wait] = state["pending_vectors"], state["pending_groups"]
        self._pending_hashes[:wait] = state["pending_hashes"]
        return int(found.shape[1])

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        # Adding zero makes -0 and 0 one value.
        X = batch.X + batch.X.dtype.type(0)
        own = hashes(X.view(np.uint32))
        usable = batch.usable & self._short(X)[batch.index].all(axis=1)
        degenerate = usable & (own[batch.index[:, 1]] == own[batch.index[:, 2]])
        outcomes.rejected[:] = ~usable
        outcomes.degenerate[:] = degenerate
        good = usable & ~degenerate
        margins = np.full(len(batch), np.nan)
        row = judged = 0
        while row < len(batch):
            row = self._admit(X, own, batch.index, good, row)
            if self._tally[softmax.PENDING] >= self._wait:
                # What shares an event with this row is measured before the step.
                stop = max(batch.end_of_event(row), judged)
                self._measure(X, batch.index, usable, judged, stop, margins)
                judged = stop
                self._learn_pending(row - 1, outcomes)
        self._measure(X, batch.index, usable, judged, len(batch), margins)
        self._report(margins, outcomes)

    @property
    def _wait(self) -> int:
        return BATCH if self._unit else self.buffer

    def _short(self, X: Model) -> NDArray[np.bool_]:
        """(n,) whose lengths leave room for squares of what the map makes of them."""
        longest = float(np.finfo(self.dtype).max) ** 0.25
        return np.asarray(np.abs(X).max(axis=1) <= longest / np.sqrt(X.shape[1]))

    def _admit(self, X: Model, own: NDArray[np.uint64], index: Any, good: Any, row: int) -> int:
        chains = self.groups == "chains"
        arguments: Any = (X, own, index, good, row, self._wait, chains, self.per_group if chains else 0)
        memory: Any = (self._vectors, self._hashes, self._groups, self._stamps)
        pending: Any = (self._pending, self._pending_hashes, self._goals, self._apart, self._tally)
        everything: Any = (*arguments, *memory, *pending)
        return int(softmax.admit(*everything))

    def _measure(
        self, X: Model, index: Any, usable: Any, first: int, last: int, margins: NDArray[np.float64]
    ) -> None:
        T = np.ascontiguousarray(self._mean.T)
        measure(T, False, X, index, usable, margins[:0], first, last, margins, margins[:0])

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """Verdicts are written with all others: each is from before its event."""

    def _report(self, margins: NDArray[np.float64], outcomes: Outcomes) -> None:
        rejected = outcomes.rejected
        with np.errstate(over="ignore", invalid="ignore"):
            loss = np.logaddexp(0.0, -margins)
        known = np.isfinite(margins) & ~rejected
        outcomes.margin[:] = np.where(known, margins, np.nan)
        outcomes.mistake[known] = margins[known] <= 0.0
        outcomes.loss[:] = np.where(known, loss, 0.0)

    def _learn_pending(self, row: int, outcomes: Outcomes) -> None:
        """Steps of the rows that wait; `row` is the one that completed them."""
        waiting = int(self._tally[softmax.PENDING])
        with one_blas_thread(), np.errstate(all="ignore"):
            changed, clipped = not self._unit, False
            if not self._unit:
                self._start(waiting)
            for first in range(0, waiting, BATCH):
                moved, cut = self._one_step(slice(first, first + BATCH))
                changed, clipped = changed or moved, clipped or cut
        self._tally[softmax.PENDING] = 0
        outcomes.utilised[row] = changed
        outcomes.clipped[row] = clipped and changed

    def _start(self, waiting: int) -> None:
        """The first map, from the rows that wait."""
        X = self._pending[:waiting].astype(np.float64)
        d = X.shape[1]
        W = np.eye(d)
        if d > self.rank:
            W = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][: self.rank]
        candidates = self._candidates(slice(0, waiting))
        centre = candidates[0].mean(axis=0)
        apart = between((X - centre) @ W.T, (candidates[0] - centre) @ W.T)
        target = candidates[1] & ~candidates[2]
        within = float(apart[target].mean()) if target.any() else 0.0
        if not 0.0 < within < np.inf:
            within = float(apart.mean())
        factor = np.sqrt(WITHIN / within) if 0.0 < within < np.inf else 1.0
        self._W = np.asarray(factor * W, self.dtype)
        self._mean = self._W.copy()
        self._M, self._V = np.zeros_like(self._W), np.zeros_like(self._W)
        self._unit = float(np.abs(self._W).max())

    def _candidates(self, rows: slice) -> tuple[Model, NDArray[np.bool_], NDArray[np.bool_]]:
        """Vectors in memory (s, d); which are of each row's group, and which are that row itself, (b, s)."""
        used = int(self._tally[softmax.SLOTS])
        target = self._goals[rows, None] == self._groups[:used]
        itself = self._pending_hashes[rows, None] == self._hashes[:used]
        return self._vectors[:used], target, itself

    def _one_step(self, rows: slice) -> tuple[bool, bool]:
        """Whether the map has changed, and whether the gradient was shortened."""
        used = int(self._tally[softmax.SLOTS])
        H, own, goals = self._vectors[:used], self._pending_hashes[rows], self._goals[rows]
        centre = H.mean(axis=0)
        H, X = H - centre, self._pending[rows] - centre
        PX, PH = X @ self._W.T, H @ self._W.T
        squares, others = np.einsum("ij,ij->i", PX, PX), np.einsum("ij,ij->i", PH, PH)
        gaps, best = np.empty((len(X), used), self.dtype), np.empty(len(X), self.dtype)
        memory = (self._hashes[:used], goals, self._groups[:used])
        softmax.compare(PX @ PH.T, squares, others, own, *memory, gaps, best)
        s = np.exp(gaps)
        count = softmax.residuals(gaps, best, goals, self._groups[:used], s)
        if count == 0:
            return False, False
        near = np.flatnonzero(np.abs(s).max(axis=0) > NEAR)
        s, H, PH = s[:, near], H[near], PH[near]
        G = PH.T @ (s.sum(axis=0)[:, None] * H) - (s @ PH).T @ X - PX.T @ (s @ H - s.sum(axis=1)[:, None] * X)
        G *= 2.0 / count
        length = float(np.sqrt(np.sum(G * G, dtype=np.float64)))
        if not np.isfinite(length) or length == 0.0:
            return False, False
        clipped = self._steps >= BATCH and length > LONGEST * self._usual
        if clipped:
            G *= LONGEST * self._usual / length
            length = LONGEST * self._usual
        self._steps += 1
        k = self._steps
        self._usual += (length - self._usual) / min(k, 100)
        size = self.step * self._unit / np.sqrt(1.0 + k * BATCH / FALLS)
        share = LATE / (k + LATE - 1.0)
        softmax.moments(self._M, self._V, G)
        largest = float(self._V.max())
        if not largest > 0.0:
            return False, clipped
        # Entries without a gradient do not move, whatever the unit of the others.
        tiny = 1e-8 * float(np.sqrt(largest / (1.0 - softmax.SECOND**k)))
        changed = softmax.adam(self._W, self._mean, self._M, self._V, size, k, share, tiny)
        return changed, clipped

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        near, far = (float(difference @ difference) for difference in points[0] - points[1:])
        return int(near >= far), float(np.logaddexp(0.0, near - far)), far - near
