"""Online linear discriminants: a map from the scatters of similar and of dissimilar differences."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.first_vectors import reachable
from kinstream.learners.base.learner import UNDEFINED, Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, SingleModal
from kinstream.learners.base.scaler import LENGTH, WARM_UP, followed
from kinstream.learners.base.validation import positive, whole
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.learners.kernels.events import measure
from kinstream.learners.kernels.one_modality import lda
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Kind

#: Differences of one kind that are added to their sum at once.
GROUP: Final = 32
#: Largest number of differences before the map is computed again.
LATEST: Final = 10_000
#: Distinct vectors that a subspace is found from, and pairs that are buffered for it, for each of its directions.
VECTORS: Final = 2
PAIRS: Final = 8
#: Loss without a verdict: that of a ratio of 1.
_EVEN: Final = float(np.log(2.0))
_LEAST: Final = float(np.finfo(np.float64).tiny)

Matrix = NDArray[np.float64]


class LDA(SingleModal):
    r"""Linear discriminant analysis from pairs and triplets, in one pass and without a step size.

    It keeps the mean outer products of the differences z of similar and of dissimilar pairs:

        S = mean of z z' over similar pairs,    B = mean of z z' over dissimilar ones.

    A triplet (x, x+, x-) is a similar pair (x, x+) and a dissimilar one (x, x-). With d features (or directions, see
    `subspace`) and

        S' = S + shrinkage trace(S) / d I,    W = S'^(-1/2),    W B W = sum_i mu_i u_i u_i',    l_i = max(mu_i - 1, 0),

    row i of the map is sqrt(l_i / (1 + l_i)) u_i' W, the largest mu_i first. If differences of both kinds are normal,
    the learned squared distance is, up to a constant, twice the log-likelihood ratio of "dissimilar" to "similar", as
    in KISSME, but only of the directions in which dissimilar vectors lie farther apart than similar ones.

    Parameters
    ----------
    rank : rows of the map at most; None for all. Until the first map is computed, the map is the identity. K classes
        differ in K - 1 directions: if some features are noise, that rank or a larger shrinkage is better than all rows.
    shrinkage : share of the mean variance that is added to S, above 0. More of it helps where there are many features
        and few constraints. It treats all features alike: if their scales differ, use a scaler or much less shrinkage.
    window : differences of each kind over which S and B are averaged, at least 32: older ones count less, by a factor
        of (1 - 1 / window) for each later difference of their kind. None for all differences alike.
    subspace : largest number of directions in which S and B are kept. With more features, these are the principal
        directions of the first 2 `subspace` distinct vectors.
    dtype : "float64" or "float32", of the map and of all distances. S and B are float64.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that scales are measured on.
    unit : "length" has a scaler that follows them (`kinstream.learners.base.adaptive_scaler`): the map is
        carried over, and the sums begin anew. "published" freezes it after its warm-up. Without a scaler there is no
        difference, for there is no step.

    Attributes
    ----------
    threshold : learned squared distance at which both kinds are equally likely, sum_i log(1 + l_i) over the map's rows;
        None until the first map is computed.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    Differences are added to S and B in groups of 32 of one kind, without those that are a million times as long as the
    others of their group; the constraint that completed it is clipped then. The map is computed once there is a group
    of each kind, and then whenever the number of added differences has grown by a quarter or by 10,000. So all of this
    depends on the constraints only, and not on how they are cut into blocks. If no mu_i is above 1, or the map would
    not be finite, the map stays as it was.

    With more features than `subspace`, constraints are buffered until there are 2 `subspace` distinct vectors, or
    8 `subspace` pairs. Then the principal directions of these vectors are frozen, and the buffered pairs are learned.

    A triplet is a mistake when x is not nearer to x+ than to x-; its loss is softplus(-margin). A similar pair is a
    mistake when its squared distance D is above the threshold b, and a dissimilar one when it is not; the loss of a
    pair of sign s is softplus(s (D - b) / 2). Until there is a threshold, a pair has no verdict, and its loss is ln 2.

    A constraint is utilised when one of its differences joined a group or the buffer, although the map changes only at
    intervals. Equal vectors are not taken. A triplet with x+ equal to x- is not learned, and is degenerate; so is a
    pair of equal vectors. Vectors too long for their squares to be numbers are rejected.

    With p = min(d, subspace) and r rows of the map, O(p^2) time for a constraint, O(r d) for its verdict, and O(p d)
    for its projection where p < d; O(p^3) for computing the map. Memory of 2 p^2 + (r + 64) d numbers, and where
    p < d of at most 2 p d more.

    References
    ----------
    Fisher: The use of multiple measurements in taxonomic problems. Annals of Eugenics 7, 1936.
    Köstinger, Hirzer, Wohlhart, Roth, Bischof: Large scale metric learning from equivalence constraints. CVPR 2012
    (KISSME: both scatters from pairs, the likelihood ratio).
    Hastie, Buja, Tibshirani: Penalized discriminant analysis. Annals of Statistics 23, 1995 (a penalty added to the
    scatter within classes).
    The groups, the times at which the map is computed, the subspace and l_i / (1 + l_i) with negative l_i set to 0 are
    our own choices.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is much louder, and noise.

    >>> import numpy as np
    >>> from kinstream import LDA
    >>> draw = np.random.default_rng(7)
    >>> x, near, far = np.array([0.2, 3.0]) * draw.normal(size=(3, 1000, 2))
    >>> far += [1.0, 0.0]
    >>> model = LDA(shrinkage=0.001)
    >>> mistake = model.learn_triplets(x, near, far).mistake
    >>> float(mistake[:32].mean()) > 0.3, float(mistake[-200:].mean()) < 0.05
    (True, True)
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.PAIR, Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.PAIR
    algorithm: ClassVar[str] = "lda/11"

    def __init__(
        self,
        rank: int | None = None,
        shrinkage: float = 0.1,
        *,
        window: int | None = None,
        subspace: int = 256,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=followed(unit, scaler))
        self.rank = None if rank is None else whole("rank", rank, 1)
        self.shrinkage = positive("shrinkage", shrinkage)
        self.window = None if window is None else whole("window", window, GROUP)
        self.subspace = whole("subspace", subspace, 1)
        self._kept = 1.0 if self.window is None else (1.0 - 1.0 / self.window) ** GROUP
        # Of the differences in a group, the last one counts in full.
        ages = np.arange(GROUP - 1, -1, -1)
        self._ages = np.ones(GROUP) if self.window is None else (1.0 - 1.0 / self.window) ** ages
        self._begin(0)

    @property
    def map(self) -> Rows:
        if self._dimension is None:
            raise ValueError("the map has no dimension yet: learn from a block first")
        return self._map.copy() if len(self._map) else np.eye(self._dimension, dtype=self.dtype)

    @property
    def threshold(self) -> float | None:
        return self._threshold if len(self._map) else None

    def _mapped(self, Z: Rows) -> Rows:
        return np.asarray(Z @ self._map.T) if len(self._map) else np.array(Z)

    @property
    def _gathers(self) -> bool:
        """Whether vectors are being buffered to find a subspace."""
        return not len(self._basis) and self._pending.shape[2] > self.subspace

    def _begin(self, d: int) -> None:
        wide = d > self.subspace
        self._map: Rows = np.empty((0, d), self.dtype)
        self._threshold = 0.0
        self._basis: Matrix = np.empty((0, d))
        self._sums: Matrix = np.zeros((2, 0, 0) if wide else (2, d, d))
        self._weights: Matrix = np.zeros(2)
        self._added = np.zeros(2, np.int64)
        self._due = 0
        #: Whether a difference was out of reach of the others of its group, until it is reported.
        self._left_out = False
        self._pending: Matrix = np.zeros((2, GROUP, d))
        self._fill = np.zeros(2, np.int64)
        self._make_buffer(wide)

    def _rescale(self, ratio: NDArray[np.float64]) -> None:
        found, threshold = np.asarray(self._map * ratio, self.dtype), self._threshold
        # The sums are of differences in the old scale.
        self._begin(len(ratio))
        self._map, self._threshold = found, threshold

    def _make_buffer(self, wide: bool) -> None:
        places, pairs = (VECTORS * self.subspace + 2, PAIRS * self.subspace + 1) if wide else (0, 0)
        self._vectors: Rows = np.zeros((places, self._pending.shape[2]), self.dtype)
        self._hashes = np.zeros(places, np.uint64)
        self._pairs = np.zeros((pairs, 3), np.int32)
        self._tally = np.zeros(2, np.int64)

    def _model(self) -> State:
        vectors, pairs = self._tally
        return {
            "map": self._map.copy(),
            "threshold": self._threshold,
            "basis": self._basis.copy(),
            "similar": self._sums[0].copy(),
            "dissimilar": self._sums[1].copy(),
            "weights": self._weights.copy(),
            "added": self._added.copy(),
            "due": self._due,
            "pending": self._pending.copy(),
            "pending_counts": self._fill.copy(),
            "buffer_vectors": self._vectors[:vectors].copy(),
            "buffer_hashes": self._hashes[:vectors].copy(),
            "buffer_pairs": self._pairs[:pairs].copy(),
        }

    def _restore_model(self, state: State) -> int:
        found: NDArray[Any] = np.asarray(state["map"])
        if found.dtype != self.dtype:
            raise SettingsError(f"dtype is {self.dtype}, but the state to restore holds {found.dtype}")
        d, basis = int(found.shape[1]), np.array(state["basis"], np.float64)
        vectors, pairs = np.asarray(state["buffer_vectors"]), np.asarray(state["buffer_pairs"])
        directions = len(basis) or len(np.asarray(state["similar"]))
        if directions > self.subspace or len(vectors) > VECTORS * self.subspace + 2:
            held = f"{directions} directions" if directions else f"{len(vectors)} vectors for finding some"
            raise SettingsError(f"subspace is {self.subspace}, but the state to restore holds {held}")
        self._begin(d)
        self._map, self._basis = np.array(found, order="C"), basis
        self._threshold, self._due = float(state["threshold"]), int(state["due"])
        self._sums = np.array([state["similar"], state["dissimilar"]], np.float64)
        self._weights, self._added = np.array(state["weights"]), np.array(state["added"], np.int64)
        self._pending, self._fill = np.array(state["pending"]), np.array(state["pending_counts"], np.int64)
        self._make_buffer(self._gathers)
        self._tally[:] = len(vectors), len(pairs)
        self._vectors[: len(vectors)], self._pairs[: len(pairs)] = vectors, pairs
        self._hashes[: len(vectors)] = state["buffer_hashes"]
        return d

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        with one_blas_thread(), np.errstate(all="ignore"):
            X = batch.X + batch.X.dtype.type(0)  # Adding zero makes -0 and 0 one value.
            usable = batch.usable & self._short(X)[batch.index].all(axis=1)
            if batch.group == 2:
                usable = np.repeat(usable[::2] & usable[1::2], 2)
            good = np.empty(len(batch), np.bool_)
            lda.differing(X, batch.index, usable, batch.group, good)
            squared, levels = np.full((2, len(batch)), np.nan)
            judged = row = 0
            while row < len(batch):
                row = self._take(X, batch, good, row)
                due = self._add()
                outcomes.clipped[row - 1] |= self._left_out
                self._left_out = False
                if not due:
                    continue
                # The rows of this row's event are measured before the map changes.
                stop = max(batch.end_of_event(row), judged)
                self._measure(X, batch.index, usable, judged, stop, squared, levels)
                judged = stop
                self._decompose()
            self._measure(X, batch.index, usable, judged, len(batch), squared, levels)
        outcomes.rejected[:] = ~usable
        outcomes.degenerate[:] = usable & ~good
        outcomes.utilised[:] = good
        self._report(batch, squared, levels, outcomes)

    def _short(self, X: Rows) -> NDArray[np.bool_]:
        """(n,) whether a vector is short enough that its image under the map can be squared."""
        longest = float(np.finfo(self.dtype).max) ** 0.25
        return np.asarray(np.abs(X).max(axis=1) <= longest / np.sqrt(X.shape[1]))

    def _take(self, X: Rows, batch: Batch, good: NDArray[np.bool_], row: int) -> int:
        """Take constraints from a row on until a group is complete; returns the row behind the last one taken."""
        if not self._gathers:
            pending: Any = (self._pending, self._fill)
            return int(lda.collect(X, batch.index, batch.signs, good, batch.group, row, *pending))
        wanted, most = VECTORS * self.subspace, PAIRS * self.subspace
        own = hashes(X.view(np.uint32))
        buffer: Any = (wanted, most, self._vectors, self._hashes, self._pairs, self._tally)
        row = int(lda.gather(X, own, batch.index, batch.signs, good, batch.group, row, *buffer))
        if self._tally[lda.VECTORS] >= wanted or self._tally[lda.PAIRS] >= most:
            self._find_subspace()
        return row

    def _find_subspace(self) -> None:
        """Freeze the principal directions of the buffered vectors, and take the buffered pairs."""
        vectors, pairs = self._vectors[: self._tally[lda.VECTORS]], self._pairs[: self._tally[lda.PAIRS]]
        wide = vectors.astype(np.float64)
        wide = wide[reachable(wide)]
        centred = wide - wide.mean(axis=0)
        self._basis = np.linalg.svd(centred, full_matrices=False)[2][: self.subspace].copy()
        p = len(self._basis)
        self._sums = np.zeros((2, p, p))
        index, signs = np.ascontiguousarray(pairs[:, :2]), pairs[:, 2].astype(np.int8)
        good, row = np.ones(len(pairs), np.bool_), 0
        while row < len(pairs):
            row = int(lda.collect(vectors, index, signs, good, 1, row, self._pending, self._fill))
            if row < len(pairs):
                self._add()
        self._make_buffer(False)

    def _add(self) -> bool:
        """Add complete groups to their sums; whether a new map is due."""
        for k in np.flatnonzero(self._fill == GROUP):
            Z = self._pending[k]
            near = reachable(Z)
            if not near.all():
                # Else one of them would be the sum for good.
                Z, self._left_out = np.where(near[:, None], Z, 0.0), True
            if len(self._basis):
                Z = Z @ self._basis.T
            if self.window is not None:
                Z = Z * np.sqrt(self._ages)[:, None]
                self._sums[k] *= self._kept
            self._sums[k] += Z.T @ Z
            self._weights[k] = self._kept * self._weights[k] + self._ages.sum()
            self._added[k] += GROUP
            self._pending[k], self._fill[k] = 0.0, 0
        return bool(self._added.all() and self._added.sum() >= self._due)

    def _decompose(self) -> None:
        """Compute the map from the present sums."""
        added = int(self._added.sum())
        self._due = added + min(added // 4, LATEST)
        S, B = self._sums / self._weights[:, None, None]
        p = len(S)
        unit = float(np.trace(S)) / p
        if not unit > 0.0:
            return
        # In units of the mean variance, so that no power of a tiny or huge scale is needed.
        S, B = S / unit + self.shrinkage * np.eye(p), B / unit
        if not (np.isfinite(S).all() and np.isfinite(B).all()):
            return
        values, vectors = np.linalg.eigh(S)
        W = (vectors / np.sqrt(values)) @ vectors.T
        inner = W @ B @ W
        if not (values[0] > 0.0 and np.isfinite(inner).all()):
            return
        values, vectors = np.linalg.eigh((inner + inner.T) / 2.0)
        above = np.maximum(values[::-1][: self.rank] - 1.0, 0.0)
        if not above[0] > 0.0:
            return
        rows = vectors[:, ::-1][:, : self.rank].T @ W
        rows *= np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])[:, None]
        rows *= (np.sqrt(above / (1.0 + above)) / np.sqrt(unit))[:, None]
        if len(self._basis):
            rows = rows @ self._basis
        found = np.ascontiguousarray(rows, self.dtype)
        if np.isfinite(found).all():
            self._map, self._threshold = found, float(np.log1p(above).sum())

    def _measure(
        self, X: Rows, index: Any, usable: Any, first: int, last: int, squared: Matrix, levels: Matrix
    ) -> None:
        if not len(self._map):
            lda.lengths(X, index, usable, first, last, squared)
            return
        T = np.ascontiguousarray(self._map.T)
        measure(T, False, X, index, usable, squared[:0], first, last, squared, squared[:0])
        levels[first:last] = self._threshold

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """Nothing to do: every verdict is already from before its event."""

    def _report(self, batch: Batch, squared: Matrix, levels: Matrix, outcomes: Outcomes) -> None:
        usable = ~outcomes.rejected
        with np.errstate(all="ignore"):
            if batch.group == 2:
                # The first pair of a triplet holds the triplet's values.
                gap = squared[::2] - squared[1::2]
                known = np.isfinite(gap)
                outcomes.margin[::2] = np.where(known, -gap, np.nan)
                outcomes.mistake[::2] = np.where(known, gap >= 0.0, UNDEFINED)
                outcomes.loss[::2] = np.where(usable[::2], _softplus(gap), 0.0)
                return
            gap = squared - levels
            known = np.isfinite(gap)
            outcomes.mistake[:] = np.where(known, (gap > 0.0) == (batch.signs > 0), UNDEFINED)
            outcomes.loss[:] = np.where(usable, _softplus(0.5 * batch.signs * gap), 0.0)

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        if len(points) == 2:
            return UNDEFINED, _EVEN, np.nan
        near, far = (float(difference @ difference) for difference in points[0] - points[1:])
        return int(near >= far), float(np.logaddexp(0.0, near - far)), far - near


def _softplus(gap: Matrix) -> Matrix:
    """log(1 + e^gap), never quite 0; ln 2 where the gap is no number."""
    return np.where(np.isfinite(gap), np.maximum(np.logaddexp(0.0, gap), _LEAST), _EVEN)
