"""Adapter: a linear map of queries over embeddings that stay as they are, by the softmax of lists and a memory."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.adapter.common_direction import common_direction
from kinstream.learners.adapter.directions import Directions
from kinstream.learners.adapter.prior import prior_parts
from kinstream.learners.base.learner import UNDEFINED, Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import PUBLISHED, WARM_UP
from kinstream.learners.base.validation import not_negative, one_of, positive, whole
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.kernels import lists as kernels
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.values import Kind

#: Queries of a step, and items that were clicked for them at most.
BATCH: Final = 16
LINKS: Final = 4 * BATCH
#: What similarities are divided by before the softmax.
TEMPERATURE: Final = 0.03
#: Length of the columns of the first U.
START: Final = 2.0
#: Queries up to which the step rises, and after which it has fallen to 1 / sqrt(2). Weight of late iterates.
RISES: Final = 480.0
FALLS: Final = 300.0
#: Queries that count as learned where a map begins with a prior: its steps are small, and do not rise.
PRIOR_QUERIES: Final = 2_700.0
LATE: Final = 4.0
#: Clicks on an item that count in full while it is remembered, and clicked items up to which a list does.
PULLS: Final = 8
CLICKED: Final = 3
#: Most features of a full matrix, and the rank for more of them where none is set.
DENSE: Final = 512
RANK: Final = 64
#: Size of the steps of a full matrix, and of a map of low rank.
FULL_STEP, LOW_STEP = 0.7, 0.1
#: A gradient longer than this times the usual one is shortened.
LONGEST: Final = 10.0
#: Decay of Adam's first and second moment, and what the root of the second is raised by, as a share of the usual entry.
FIRST: Final = 0.9
SECOND: Final = 0.999
RAISED: Final = 0.5
PRODUCTS: Final = ("cosine", "dot")
#: Least loss of a constraint that changes the map.
_LEAST: Final = float(np.finfo(np.float64).tiny)

Matrix = NDArray[np.floating[Any]]


class Adapter(Bilinear):
    r"""A map of queries, q -> q + (q U) V', learned from lists of results while the items stay as they are.

    The similarity of a query q to an item x is q' W x. Up to 512 features W is a full matrix, and for more of them it
    is I + U V' of rank r. Of a list, q is the query, and P its items that were clicked. With x_1 .. x_s the items in
    memory, those shown in the list among them,

        p_c = exp(q' W x_c / t) / sum_{i not in P or i = c} exp(q' W x_i / t),    l = -w sum_{c in P} w_c log p_c / |P|

    with t = 0.03 and w = min(1, 3 / |P|). Sixteen lists make a step of Adam on the mean of their gradients and on
    `pull` |W - I|^2 / 2, or `pull` |U|^2 / 2 + `pull` |V|^2 / 2, which pulls the map to the identity. After n lists its
    size is min(1, n / 480) / sqrt(1 + n / 300) times `step` / d, or times `step` / sqrt(d) where the rank is low; with
    a prior n begins at 2,700. The root of its second moment is raised by half of the gradient's usual entry, so that a
    few lists move little. What measures is the mean of the iterates, of U and V apart: A <- A + (U - A) 4 / (k + 3) at
    step k. W begins as I, or U with normal random numbers of length 2 a column and V with zeros, so that the first
    similarity is that of the embeddings.

    Parameters
    ----------
    rank : r; 0 for a full matrix W, of at most 512 features. Left out: 0 up to 512 features, and 64 for more; a state
        that is restored keeps its own.
    step : size of the steps. 0.7 where it is left out, or 0.1 where the rank is low. Vectors are brought to length 1
        inside, so that it has no unit.
    pull : strength of the pull to the identity. The noisier the clicks, the more.
    memory : items that are remembered as negatives, at least 2.
    product : of the store that holds the items, and so of the model.

        - "cosine": vectors are divided by their lengths.
        - "dot": the length of an item counts.
    seed : of the first U.
    prior : path of an exported query map (.npz), or a pattern of several, whose mean P takes the place of I: W begins
        as P, and is pulled to it. It is read before the first block, and a part of the state from then on. Maps of
        another number of features are left out; without any left, W begins as I.
    dtype : "float32" or "float64", of the map and of all work with it.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    A similar pair is a list with one item clicked. The item of a dissimilar pair is only remembered. Constraints that
    follow one another and have one query vector are one list: its clicked items, and others that were shown.

    Where the mean cosine c of 64 or more items in memory is above .25, vectors have a direction in common that says
    nothing of any: the mean m of these items. Then t is 0.03 (1 - c), since similarities differ by so much less;
    gradients are of queries without their part along m, and after each step W - I, or U, has no part along m. Else
    every list would move all queries alike.

    A list pulls as much as every other one, but less where more than three of its items were clicked: it says less of
    what was sought. The weight w_c of a click is the constraint's, and for the n-th click on an item 8 / n of that if
    n > 8; n is counted while the item is remembered. So neither a list nor an item can take the map over.

    A triplet is a mistake when q' W x+ is not above q' W x-, and its loss is log(1 + exp(-margin / t)). Of pairs
    nothing is judged; the loss is that of the margin q' W x. A constraint is utilised when it begins a list before
    which a step was made; clipped when that step's gradient was over ten times as long as usual, and shortened to that.

    O(s d + r d) time for a list, in products of matrices, and d for r in a full matrix. Memory of (s + 16) d + 8 r d
    numbers, or (s + 16) d + 4 d^2.

    References
    ----------
    Oord, Li, Vinyals: Representation learning with contrastive predictive coding. 2018 (the loss).
    Wang, Zhang, Li, Liu: Cross-batch memory for embedding learning. CVPR 2020 (vectors remembered as negatives).
    Kingma, Ba: Adam: a method for stochastic optimization. ICLR 2015.
    Polyak, Juditsky: Acceleration of stochastic approximation by averaging. SIAM J. Control Optim. 1992.

    Examples
    --------
    Queries find items that are the same but for two features that are exchanged.

    >>> import numpy as np
    >>> from kinstream import Adapter
    >>> items = np.random.default_rng(7).normal(size=(2000, 16)).astype(np.float32)
    >>> queries = items[:, [1, 0, *range(2, 16)]]
    >>> model = Adapter()
    >>> found = model.learn_pairs(queries, items)
    >>> near = model.similarity(queries[:100], items[:100]) > model.similarity(queries[:100], queries[:100])
    >>> bool(near.mean() > 0.5)
    True
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.PAIR, Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.PAIR
    lists: ClassVar[bool] = True
    algorithm: ClassVar[str] = "adapter/4"

    def __init__(
        self,
        rank: int | None = None,
        step: float | None = None,
        pull: float = 0.012,
        *,
        memory: int = 512,
        product: str = "cosine",
        seed: int = 0,
        prior: str | None = None,
        dtype: str = "float32",
    ) -> None:
        self.product = one_of("product", product, PRODUCTS)
        scaler = "unit" if product == "cosine" else "none"
        super().__init__(dtype=dtype, scaler=scaler, warm_up=WARM_UP, unit=PUBLISHED)
        self.rank = None if rank is None else whole("rank", rank, 0)
        self.step = None if step is None else positive("step", step)
        self.pull = not_negative("pull", pull)
        self.memory = whole("memory", memory, 2)
        self.seed = whole("seed", seed, 0)
        self.prior = prior
        self._begin(0)

    def _work_in(self, unit: str) -> None:
        super()._work_in(unit)
        if self.scaler == "unit" and self.dtype == "float32":
            self._scaler = Directions()

    @property
    def W(self) -> Rows:
        self._known()
        parts = self._whole(self._mean)
        eye: Rows = np.eye(len(parts[0]), dtype=self.dtype)
        return eye + (parts[0] @ parts[1].T if self._rank else parts[0])

    @property
    def factors(self) -> tuple[Rows, ...]:
        """Copies of U and V (d, r), those of a prior beside them; or of W (d, d) alone where the rank is 0.

        Raises
        ------
        ValueError
            Before the first block, when the dimension is unknown.
        """
        self._known()
        return tuple(one.copy() for one in self._whole(self._mean)) if self._rank else (self.W,)

    @property
    def prior_digest(self) -> str | None:
        """SHA-256 of the prior that the map began with, in hexadecimal; None without one."""
        return sha256(b"".join(one.tobytes() for one in self._prior)).hexdigest() if self._prior else None

    def rank_of(self, d: int) -> int:
        """Rank of a map of d features that begins; 0 is a full matrix."""
        if self.rank is None:
            return RANK if d > DENSE else 0
        return min(self.rank, d)

    def item_map(self, k: int) -> tuple[Rows, Rows]:
        """Maps A (k, d) of queries and B (k, d) of items to fewer dimensions, with (A q)' (B x) near q' W x.

        B = A W, and the rows of A are orthonormal: the directions in which the remembered items, mapped by W, have the
        largest mean squares. So B is the map of k rows that loses the least of these items.

        Parameters
        ----------
        k : dimensions, at most as many as there are features and remembered items.

        Raises
        ------
        ValueError
            Before the first block, or k is out of range.
        """
        W, items = self.W.astype(np.float64), self._vectors[: self._tally[kernels.SLOTS]].astype(np.float64)
        if not 1 <= k <= min(items.shape):
            raise ValueError(f"k must be 1 to {min(items.shape)}, not {k}")
        with one_blas_thread():
            A = np.linalg.svd(W @ items.T, full_matrices=False)[0][:, :k].T
            A *= np.sign(A[np.arange(k), np.abs(A).argmax(axis=1)])[:, None]
            B = A @ W
        return np.ascontiguousarray(A, self.dtype), np.ascontiguousarray(B, self.dtype)

    def _weighted(self, rows: Rows) -> Rows:
        with one_blas_thread():
            return self._mapped_by(self._mean, rows)

    def _mapped_by(self, parts: list[Matrix], rows: Rows) -> Rows:
        """Scaled queries (n, d) under a map."""
        parts = self._whole(parts)
        return self._moved(parts, rows, rows @ parts[0])

    def _whole(self, parts: list[Matrix]) -> list[Matrix]:
        """The parts of a map with those of the prior."""
        if not self._prior:
            return parts
        pairs = zip(self._prior, parts, strict=True)
        return [np.hstack(both) if self._rank else both[0] + both[1] for both in pairs]

    def _moved(self, parts: list[Matrix], rows: Rows, projected: Rows) -> Rows:
        """The same, where the products of the queries with the first part are known."""
        return np.asarray(rows + (projected @ parts[1].T if self._rank else projected))

    # ---- state ------------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> tuple[str, ...]:
        return ("U", "V") if self._rank else ("D",)

    def _begin(self, d: int, rank: int | None = None) -> None:
        self._rank = self.rank_of(d) if rank is None else rank
        if not self._rank:
            if d > DENSE:
                wide = f"a full matrix is for at most {DENSE} features, not {d}: set a rank, such as 64"
                raise BadRecord(Reason.WRONG_DIMENSION, wide)
            first = [np.zeros((d, d), self.dtype)]
        else:
            draw = np.random.Generator(np.random.Philox(key=[self.seed, d]))
            shape = (d, self._rank)
            U = START / np.sqrt(max(d, 1)) * draw.standard_normal(shape)
            first = [U.astype(self.dtype), np.zeros(shape, self.dtype)]
        #: What the map begins with less the identity, as `_mean` is; empty for the identity.
        self._prior: list[Matrix] = []
        if self.prior is not None and d and rank is None:
            found = prior_parts(self.prior, d, low=self._rank > 0)
            self._prior = [np.ascontiguousarray(one, self.dtype) for one in found]
        self._iterate: list[Matrix] = first
        self._mean: list[Matrix] = [one.copy() for one in first]
        self._M: list[Matrix] = [np.zeros_like(one) for one in first]
        self._V: list[Matrix] = [np.zeros_like(one) for one in first]
        self._steps, self._usual = 0, 0.0
        self._vectors: Matrix = np.zeros((self.memory, d), self.dtype)
        self._hashes, self._pulls = np.zeros(self.memory, np.uint64), np.zeros(self.memory, np.int64)
        self._queries: Matrix = np.zeros((BATCH, d), self.dtype)
        self._query_hashes = np.zeros(BATCH, np.uint64)
        self._links, self._shares = np.zeros((LINKS, 2), np.int64), np.zeros(LINKS)
        self._tally = np.zeros(kernels.TALLY, np.int64)

    def _model(self) -> State:
        used, waiting = int(self._tally[kernels.SLOTS]), int(self._tally[kernels.WAITING])
        links = int(self._tally[kernels.LINKS])
        state: State = {}
        for i, name in enumerate(self._names):
            state |= {
                name: self._mean[i].copy(),
                f"iterate_{name}": self._iterate[i].copy(),
                f"first_moment_{name}": self._M[i].copy(),
                f"second_moment_{name}": self._V[i].copy(),
            }
            if self._prior:
                state[f"prior_{name}"] = self._prior[i].copy()
        # Of one size, however many wait.
        queries, query_hashes = self._queries.copy(), self._query_hashes.copy()
        queries[waiting:], query_hashes[waiting:] = 0, 0
        pairs, shares = self._links.copy(), self._shares.copy()
        pairs[links:], shares[links:] = 0, 0.0
        return state | {
            "steps": self._steps,
            "usual": self._usual,
            "tally": self._tally.copy(),
            "memory_vectors": self._vectors[:used].copy(),
            "memory_hashes": self._hashes[:used].copy(),
            "memory_pulls": self._pulls[:used].copy(),
            "pending_queries": queries,
            "pending_hashes": query_hashes,
            "pending_links": pairs,
            "pending_shares": shares,
        }

    def _restore_model(self, state: State) -> int:
        found = [self._of_type(state[name]) for name in (("D",) if "D" in state else ("U", "V"))]
        d, rank = len(found[0]), 0 if "D" in state else found[0].shape[1]
        if self.rank is not None and rank != self.rank_of(d):
            held = f"a map of rank {rank}" if rank else "a full matrix"
            raise SettingsError(f"rank is {self.rank}, but the state to restore holds {held}")
        remembered: NDArray[Any] = np.asarray(state["memory_vectors"])
        if len(remembered) > self.memory:
            raise SettingsError(f"memory is {self.memory}, but the state to restore holds {len(remembered)}")
        self._begin(d, rank)
        self._mean = found
        if f"prior_{self._names[0]}" in state:
            self._prior = [self._of_type(state[f"prior_{name}"]) for name in self._names]
        for i, name in enumerate(self._names):
            self._iterate[i] = np.array(state[f"iterate_{name}"])
            self._M[i] = np.array(state[f"first_moment_{name}"])
            self._V[i] = np.array(state[f"second_moment_{name}"])
        self._steps, self._usual = int(state["steps"]), float(state["usual"])
        self._tally = np.array(state["tally"], np.int64)
        used = len(remembered)
        self._vectors[:used], self._hashes[:used] = remembered, state["memory_hashes"]
        self._pulls[:used] = state["memory_pulls"]
        self._queries[:], self._query_hashes[:] = state["pending_queries"], state["pending_hashes"]
        self._links[:], self._shares[:] = state["pending_links"], state["pending_shares"]
        return d

    # ---- learning ---------------------------------------------------------------------------------------------------

    def _fit(self, batch: Batch, outcomes: Outcomes) -> None:
        X = batch.X + batch.X.dtype.type(0)  # Adding zero makes -0 and 0 one value.
        own = hashes(X.view(np.uint32))
        self._take_in(batch, own)
        usable = batch.usable & self._short(X)[batch.index].all(axis=1)
        some: NDArray[np.bool_] = (X != 0).any(axis=1)
        good = usable & some[batch.index].all(axis=1)
        if batch.group == 2:
            usable, good = (np.repeat(both[::2] & both[1::2], 2) for both in (usable, good))
            same = own[batch.index[::2, 1]] == own[batch.index[1::2, 1]]
            good &= ~np.repeat(same, 2)
        outcomes.rejected[:] = ~usable
        outcomes.degenerate[:] = usable & ~good
        found = np.full(len(batch), np.nan)
        with one_blas_thread(), np.errstate(all="ignore"):
            row = judged = 0
            while row < len(batch):
                row = self._admit(X, own, batch, good, row)
                if row < len(batch):
                    # The whole event of this row is measured before the step.
                    stop = max(_behind(batch, row), judged)
                    self._measure(X, batch.index, judged, stop, found)
                    judged = stop
                    outcomes.utilised[row], outcomes.clipped[row] = self._learn_waiting()
            self._measure(X, batch.index, judged, len(batch), found)
        self._report(batch, np.where(usable, found, np.nan), outcomes)

    def _take_in(self, batch: Batch, own: NDArray[np.uint64]) -> None:
        """Called before the rows of a batch are learned, with the hashes (n,) of its vectors."""

    def _short(self, X: Rows) -> NDArray[np.bool_]:
        """(n,) whose lengths leave room for products of what the map makes of them."""
        longest = float(np.finfo(self.dtype).max) ** 0.25
        return np.asarray(np.abs(X).max(axis=1) <= longest / np.sqrt(X.shape[1]))

    def _admit(
        self, X: Rows, own: NDArray[np.uint64], batch: Batch, good: NDArray[np.bool_], row: int
    ) -> int:
        pairs: Any = (X, own, batch.index, batch.signs, batch.weights, good, row, PULLS)
        memory: Any = (self._vectors, self._hashes, self._pulls)
        waiting: Any = (self._queries, self._query_hashes, self._links, self._shares, self._tally)
        everything: Any = (*pairs, *memory, *waiting)
        return int(kernels.admit(*everything))

    def _learn_waiting(self) -> tuple[bool, bool]:
        """Whether a step was made of the lists that wait, and whether its gradient was shortened."""
        used, b = int(self._tally[kernels.SLOTS]), int(self._tally[kernels.WAITING])
        links = int(self._tally[kernels.LINKS])
        self._tally[[kernels.WAITING, kernels.LINKS]] = 0
        if b == 0 or used < 2:
            return False, False
        q, slot = self._links[:links].T
        X, H, share = self._queries[:b], self._vectors[:used], self._shares[:links]
        X = X / np.sqrt((X * X).sum(axis=1, keepdims=True))
        # Of items with a mean squared length of 1 and queries of length 1, temperature and step have no unit.
        squares = 1.0 if self.scaler == "unit" else float(np.vdot(H, H)) / used
        cosine, common = common_direction(H, squares)
        scale = self.dtype_of(1.0 / (TEMPERATURE * (1.0 - cosine) * np.sqrt(squares)))
        P = X @ self._iterate[0]
        moved = self._mapped_by(self._iterate, X) if self._prior else self._moved(self._iterate, X, P)
        logits = moved @ H.T * scale
        rows = np.arange(links)
        several = links > b
        if several:
            clicked = np.zeros((b, used), np.bool_)
            clicked[q, slot] = True
            # A row for each click, in which the other clicked items of its list play no part.
            p = np.where(clicked[q], -np.inf, logits[q])
            p[rows, slot] = logits[q, slot]
        else:
            p = logits
        p -= p.max(axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)
        p[rows, slot] -= 1.0
        number = np.bincount(q, minlength=b)[q]
        p *= (share / number * np.minimum(1.0, CLICKED / number) * (scale / b))[:, None]
        # The links of a query follow one another.
        G = np.add.reduceat(p, np.searchsorted(q, np.arange(b)), axis=0) if several else p
        Y = np.asarray(G, self.dtype) @ H
        if common is None:
            return self._one_step(X, P, Y)
        X = X - np.outer(X @ common, common)
        done = self._one_step(X, X @ self._iterate[0] if self._rank else P, Y)
        for parts in (self._iterate, self._mean):
            parts[0] -= np.outer(common, common @ parts[0])
        return done

    def _one_step(self, X: Matrix, P: Matrix, Y: Matrix) -> tuple[bool, bool]:
        """A step on the gradient X' Y (d, d) of W; P is X U where the rank is low."""
        gradients = [X.T @ (Y @ self._iterate[1]), Y.T @ P] if self._rank else [X.T @ Y]
        length = float(np.sqrt(sum(float(np.vdot(G, G)) for G in gradients)))
        if not np.isfinite(length) or length == 0.0:
            return False, False
        clipped = self._steps >= BATCH and length > LONGEST * self._usual
        factor = LONGEST * self._usual / length if clipped else 1.0
        self._steps += 1
        k = self._steps
        self._usual += (factor * length - self._usual) / min(k, 100)
        d = len(self._iterate[0])
        # A step then moves what the map makes of a vector by as much in any dimension.
        usual = LOW_STEP if self._rank else FULL_STEP
        size = (usual if self.step is None else self.step) / (np.sqrt(d) if self._rank else d)
        learned = k * BATCH + (PRIOR_QUERIES if self._prior else 0.0)
        size *= min(1.0, learned / RISES) / np.sqrt(1.0 + learned / FALLS) / (1.0 - FIRST**k)
        root, share = 1.0 / np.sqrt(1.0 - SECOND**k), LATE / (k + LATE - 1.0)
        # Entries whose gradient is small against the others move by less: that of few lists is noise.
        tiny = RAISED * self._usual / np.sqrt(sum(G.size for G in gradients))
        numbers = [*map(self.dtype_of, (factor, self.pull, FIRST, SECOND, size, root, tiny, share))]
        for parts in zip(self._iterate, self._mean, self._M, self._V, gradients, strict=True):
            flat: Any = [np.ascontiguousarray(part).reshape(-1) for part in parts]
            kernels.adam(*flat, *numbers)
        return True, clipped

    def dtype_of(self, number: float) -> Any:
        """A number in the learner's type."""
        return np.dtype(self.dtype).type(number)

    # ---- verdicts ---------------------------------------------------------------------------------------------------

    def _measure(
        self, X: Rows, index: NDArray[np.int32], first: int, last: int, found: NDArray[np.float64]
    ) -> None:
        """Fill in found[first:last] with the similarities of pairs."""
        if last <= first:
            return
        anchors, place = np.unique(index[first:last, 0], return_inverse=True)
        mapped = self._mapped_by(self._mean, X[anchors])
        found[first:last] = np.einsum("ij,ij->i", mapped[place], X[index[first:last, 1]])

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        """Verdicts are written with all others: each is from before its event."""

    def _report(self, batch: Batch, found: NDArray[np.float64], outcomes: Outcomes) -> None:
        rows = slice(None, None, batch.group)
        margin = found[::2] - found[1::2] if batch.group == 2 else batch.signs * found
        known = np.isfinite(margin)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = np.maximum(np.logaddexp(0.0, -margin / TEMPERATURE), _LEAST)
        outcomes.loss[rows] = np.where(known, loss, 0.0)
        if batch.group == 2:
            outcomes.margin[rows] = np.where(known, margin, np.nan)
            outcomes.mistake[rows] = np.where(known, margin <= 0.0, UNDEFINED)


def _behind(batch: Batch, row: int) -> int:
    """The row behind the event that a row belongs to."""
    first, ends = row - row % batch.group, batch.events.ends
    alone = max(int(ends[first]) if len(ends) else 0, first + batch.group)
    return max(batch.end_of_event(first), alone)
