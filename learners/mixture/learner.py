"""Un-learned and learned metrics behind several scalings, and one metric that follows those with good neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import Numbers, take
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import SingleModal
from kinstream.learners.base.validation import whole
from kinstream.learners.baselines.euclidean import Euclidean
from kinstream.learners.composite import Composite
from kinstream.learners.distances import spread
from kinstream.learners.mixture.first_constraints import FirstConstraints
from kinstream.learners.mixture.metric import Component, Metric, added, arrays, margins, shown, together
from kinstream.learners.mixture.neighbours import EVERY, WINDOW, Neighbours
from kinstream.learners.mixture.views import OneScale, View
from kinstream.learners.mixture.weights import weights
from kinstream.learners.one_modality.lda import LDA
from kinstream.learners.one_modality.softmax import BATCH, Softmax
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import (
    DEFAULT_MODALITY,
    PREFERENCE_RULES,
    ConstraintBlock,
    Kind,
    Table,
)

Vector = NDArray[np.float64]

#: Un-learned metrics: name to view.
UNLEARNED: Final = {
    "euclidean": "one-scale",
    "cosine": "cosine",
    "zscore": "zscore",
    "zscore-cosine": "zscore-cosine",
    "minmax": "minmax",
}
#: Learners: name to view. "lda" is linear discriminant analysis, the others are softmax learners.
LEARNED: Final = {
    "softmax-zscore": "guarded",
    "softmax-cosine": "cosine",
    "softmax-zscore-cosine": "zscore-cosine",
}
#: Beside them with fewer than `WIDE` features.
NARROW: Final = {"softmax-minmax": "minmax", "lda": "zscore"}
#: Instead of both where constraints come from lists.
IN_LISTS: Final = {
    "softmax": "one-scale",
    "softmax-zscore": "guarded",
    "softmax-cosine": "cosine",
    "lda": "zscore",
}
#: Directions in which LDA keeps its sums: O(s^2) time for a constraint.
SUBSPACE: Final = 64
#: Distinct vectors before scales are frozen: fewer than elsewhere, for a mistaken scale is one of several.
WARM_UP: Final = 128
#: Rows that the first maps of the learners are made from.
BUFFER: Final = 128
#: Vectors that spreads of distances are measured on.
SAMPLED: Final = 96
#: From so many features on, the metric is that of the learners, or of the heaviest un-learned part: the window has too
#: few vectors to join more. Learners have a low rank then, and stand side by side.
WIDE: Final = WINDOW
#: Distinct vectors from which on the best scaling is told before the end of the warm-up.
TOLD: Final = 16
#: Weighings after which constraints are judged by the latest metric: as many, and each power of 2.
LATEST: Final = 16


class Mixture(Composite):
    r"""Un-learned and learned metrics behind several scalings, weighted by the neighbours that they find.

    Which scaling suits a data set, and whether learning pays, is not known beforehand, and mistakes on triplets tell
    neither. So the five metrics that need no learning (Euclidean distance and cosine of the features as they came and
    of z-scored ones, Euclidean distance of features divided by their ranges) and learners behind several scalings stand
    side by side: softmax learners, and with fewer than 500 features linear discriminant analysis. A new row is
    classified by its 5 nearest of 500 earlier vectors under every member as it was before the row came; classes are
    what similar pairs have linked. With l_i the mean loss of member i, l the least of them, and s the standard error of
    l, the weights are

        w_i ~ p_i exp(-2 (l_i - l) / s),

    p_i a share of .25 for the un-learned metrics and of .75 for the learners. With fewer than 500 features, rows that
    come again are judged, too; once they are more than 500 new ones, learners share their weight by these losses.
    In lists of clicks a row is a query; it loses 9/10 of the share of its own list's items that are nearer than the
    clicked one although they were shown before it, and 1/10 of the share of 500 earlier items that are. The metric is

        D^2(x, y) = sum_i w_i D_i^2(x, y) / t_i,

    with t_i the standard deviation of D_i^2 over 96 vectors of the window. Weights and spreads change when 64 rows have
    been judged.

    Parameters
    ----------
    rank : columns of what `transform` returns, at most; None for as many as there are features.
    buffer : rows that the first maps of the learners are made from, at least 16.
    dtype : "float64" or "float32", of what members are handed and of their maps.
    warm_up : distinct vectors before scales are frozen.

    Attributes
    ----------
    weights : of all members by name; their sum is 1.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    A triplet is a mistake when x is not nearer to x+ than to x- under the metric; its loss is log(1 + exp(-margin)).
    It is utilised when it changed a member, and clipped when a member's step was. It is rejected when a vector is not
    finite, or too long for its squares to be numbers. Pairs are scored, and link what is similar; softmax learners do
    not learn from them.

    `transform` keeps the `rank` directions in which the members' maps of the latest 500 vectors vary most. With 500
    features or more the metric is that of the learners side by side, or of the heaviest un-learned part: of features as
    they are, scaled and cut, or of directions.

    References
    ----------
    Dawid: Present position and potential developments: the prequential approach. J. R. Stat. Soc. A 147, 1984.
    Cover, Hart: Nearest neighbor pattern classification. IEEE Trans. Inf. Theory 13, 1967.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.learners.mixture.learner import Mixture
    >>> draw = np.random.default_rng(0)
    >>> x, near, far = np.array([0.3, 2.0, 2.0, 2.0]) * draw.normal(size=(3, 2000, 4))
    >>> far += [1.0, 0.0, 0.0, 0.0]
    >>> model = Mixture()
    >>> mistake = model.learn_triplets(x, near, far).mistake
    >>> bool(mistake[-500:].mean() < 0.85 * mistake[:500].mean())
    True
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.PAIR, Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET
    algorithm: ClassVar[str] = "mixture/6"

    def __init__(
        self,
        rank: int | None = None,
        *,
        buffer: int = BUFFER,
        dtype: str = "float32",
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(dtype=dtype, scaler=None, warm_up=warm_up)
        self.rank = None if rank is None else whole("rank", rank, 1)
        self.buffer = whole("buffer", buffer, BATCH)
        #: What members see, once the scales are known.
        self._views: dict[str, View] = {}
        self._spreads: Vector = np.empty(0)
        #: Maps of the learners when new rows were judged last.
        self._before: dict[str, Rows] = {}
        self._metric: Metric | None = None
        #: The metric that constraints are judged by: matrices by part, as of some weighing.
        self._served: dict[str, Rows] = {}
        self._early: Mixture | None = None
        self._renew()

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every member; none before the first block."""
        return {m.name: float(w) for m, w in zip(self._members, self._weights, strict=True)}

    def _learn_part(
        self, block: ConstraintBlock, vectors: Rows, events: Numbers | None, outcomes: Outcomes
    ) -> None:
        self._metric = self._early = None
        if not self._members:
            self._start(block.rules[block.rule[0]] in PREFERENCE_RULES)
        start, late = self._watched(vectors, block.index, block.signs, events, outcomes)
        if start:
            self._first.add(block, events, np.flatnonzero(~outcomes.rejected[:start]))
        if self._scaler.ready and not self._views:
            outcomes.utilised[start - 1] = self._open()
        if start < len(block):
            self._learn_on(block, events, start, outcomes)
        if late is not None:
            take(outcomes, start, late)

    def _whole(self) -> State:
        state: State = {} if self._dimension is None else {"dimension": self._dimension}
        state |= {f"scaler.{name}": value for name, value in self._scaler.state().items()}
        if not self._members:
            return state
        state |= {"lists": self._neighbours.lists, "spreads": self._spreads.copy()}
        state |= with_prefix("first.", self._first.state())
        state |= {f"served.{part}": matrix.copy() for part, matrix in self._served.items()}
        state |= {f"neighbours.{name}": value for name, value in self._neighbours.state().items()}
        for member in self._members:
            state |= {f"member.{member.name}.{k}": value for k, value in member.learner.state().items()}
        return state | {f"before.{name}": matrix.copy() for name, matrix in self._before.items()}

    def _restore_whole(self, state: State) -> int | None:
        self._dimension = int(state["dimension"]) if "dimension" in state else None
        self._scaler.restore(without_prefix("scaler.", state))
        if "lists" not in state:
            return self._dimension
        self._start(bool(state["lists"]))
        self._spreads = np.array(state["spreads"], np.float64)
        self._neighbours.restore(without_prefix("neighbours.", state))
        for member in self._members:
            member.learner.restore(without_prefix(f"member.{member.name}.", state))
        self._before = {name: np.array(matrix) for name, matrix in without_prefix("before.", state).items()}
        self._served = {name: np.array(matrix) for name, matrix in without_prefix("served.", state).items()}
        self._first.restore(without_prefix("first.", state))
        if self._scaler.ready:
            self._views = self._scales.views()
        self._weigh()
        return self._dimension

    @property
    def metric(self) -> Metric:
        """What `transform` adds up of scaled vectors: views, each with a matrix (k, d) for what it shows.

        Raises
        ------
        CheckpointError
            The scales are not known yet.
        """
        if not self._views:
            raise CheckpointError(f"{self.algorithm} still scales: its members have learned nothing yet")
        if self._metric is None:
            self._metric = self._made_of(self._together())
        return self._metric

    def transform(self, X: Rows) -> Rows:
        early = self._as_it_would_end()
        return super().transform(X) if early is None else early.transform(X)

    @property
    def remembered(self) -> Rows:
        if not self._views:
            raise CheckpointError(f"{self.algorithm} still scales: its members have learned nothing yet")
        return self._neighbours.window

    def quick_distance(self, X: Rows, Y: Rows) -> Rows:
        """Squared distances (n,) of all members, of which `distance` and `transform` leave some directions out.

        To find those takes O(d^3) time after each change, and this none.
        """
        early = self._as_it_would_end()
        if early is not None:
            return early.quick_distance(X, Y)
        left, right = self.scale(X), self.scale(Y)
        if left.shape != right.shape:
            raise ValueError(f"expected two tables of the same shape, got {np.shape(X)} and {np.shape(Y)}")
        found = np.zeros(len(left))
        with np.errstate(all="ignore"), one_blas_thread():
            if not self._views:
                return np.asarray(np.einsum("ij,ij->i", left - right, left - right))
            moved = {
                name: view.apply(left) - view.apply(right)
                for name, view in self._views.items()
                if any(member.view == name for member in self._members)
            }
            for member, share in zip(self._members, self._shares(), strict=True):
                if share > 0.0:
                    gap = moved[member.view]
                    gap = gap @ member.learner.map.T if member.learns else gap
                    found += share * np.einsum("ij,ij->i", gap, gap)
        return found

    def exported(self) -> tuple[dict[str, Rows], list[dict[str, str]]]:
        """The metric as arrays by name, and its parts; see docs/mixture.md.

        Raises
        ------
        CheckpointError
            The scales are not known yet.
        """
        found, parts = arrays(self.metric)
        scaling = self.affine()
        assert scaling is not None
        return {"shift": scaling[0], "factor": scaling[1]} | found, parts

    def _renew(self) -> None:
        self._scaler = self._scales = OneScale(self.warm_up)
        self._members: tuple[Component, ...] = ()
        self._views = {}
        self._weights: Vector = np.empty(0)
        self._spreads = np.empty(0)
        self._before = {}
        self._served = {}
        self._first = FirstConstraints()
        self._metric = self._early = None

    def _start(self, lists: bool) -> None:
        """Make the members, with the first block."""
        d = self._dimension
        assert d is not None
        groups = "none" if lists else "chains"
        learners = IN_LISTS if lists else LEARNED | (NARROW if d < WIDE else {})

        def learner(name: str) -> SingleModal:
            if name == "lda":
                return LDA(subspace=SUBSPACE, dtype=self.dtype)
            return Softmax(buffer=self.buffer, groups=groups, dtype=self.dtype)

        self._members = (
            *(Component(name, view, learner(name), learns=True) for name, view in learners.items()),
            *(
                Component(name, view, Euclidean(warm_up=2, dtype=self.dtype), learns=False)
                for name, view in UNLEARNED.items()
            ),
        )
        for member in self._members:
            member.learner.expect(d)
        N = len(self._members)
        self._neighbours = Neighbours(N, d, lists=lists, again=not lists and d < WIDE)
        self._spreads = np.ones(N)
        self._before = {m.name: np.eye(d, dtype=self.dtype) for m in self._members if m.learns}
        self._weigh()

    def _open(self) -> bool:
        """End the warm-up: begin with its scales, and learn its constraints, which were judged before.

        Returns whether a member has changed.
        """
        self._views = self._scales.views()
        first, self._first = self._first, FirstConstraints()
        changed = False
        for block in first.blocks():
            found = Outcomes.blank(len(block))
            self._learn_on(block, block.events, 0, found)
            changed |= bool(found.utilised.any())
        self._serve()
        return changed

    def _as_it_would_end(self) -> Mixture | None:
        """During the warm-up, what this would be if it ended now; None with too few vectors to tell a scale."""
        if self._views or not len(self._first) or self._scales.seen < TOLD:
            return None
        if self._early is None:
            self._early = Mixture(self.rank, buffer=self.buffer, dtype=self.dtype, warm_up=self.warm_up)
            self._early.restore(self.state())
            self._early._scales.end()
            self._early._open()
            self._early._judge_new()
        return self._early

    def _weigh(self) -> None:
        learners = np.array([member.learns for member in self._members])
        self._weights = weights(learners, self._usable, self._neighbours)

    def _shares(self) -> Vector:
        """Of each member's squared distance in that of the metric."""
        usable = self._usable
        found = np.where(usable, self._weights / np.where(usable, self._spreads, 1.0), 0.0)
        if (self._dimension or 0) < WIDE:
            return found
        parts = ["learners" if member.learns else member.part for member in self._members]
        weights: dict[str, float] = {}
        for part, weight, share in zip(parts, self._weights, found, strict=True):
            weights[part] = weights.get(part, 0.0) + (weight if share > 0.0 else 0.0)
        heaviest = max(weights, key=lambda part: weights[part])
        return np.where([part == heaviest for part in parts], found, 0.0)

    @property
    def _usable(self) -> NDArray[np.bool_]:
        """(N,) members whose distances tell vectors apart."""
        return np.asarray((self._spreads > 0.0) & np.isfinite(self._spreads))

    def _learn_on(
        self, block: ConstraintBlock, events: Numbers | None, start: int, outcomes: Outcomes
    ) -> None:
        """Learn the rows of a block from `start` on, in as many parts as new rows make."""
        vectors, index = block.tables[0].vectors, block.index
        with np.errstate(all="ignore"):
            Z = self._scaler.apply(vectors)
            seen = np.ascontiguousarray(Z, np.float32)
            tables = {
                name: self._views[name].seen(Z, self.dtype)
                for name in dict.fromkeys(m.view for m in self._members)
            }
            # Lengths leave room for squares of squares.
            limit = float(np.finfo(np.float32).max) ** 0.25 / np.sqrt(Z.shape[1])
            short = np.all([np.abs(table).max(axis=1) <= limit for table in tables.values()], axis=0)
            near = short & (np.abs(seen).max(axis=1) <= limit) & self._scaler.within(vectors)
        usable: NDArray[np.bool_] = np.asarray(near)
        good = np.asarray(usable[index].all(axis=1))
        links = block.signs > 0 if block.kind is Kind.PAIR else np.ones(len(index), np.bool_)
        last = np.ones(len(index), np.bool_)
        if events is not None:
            last[:-1] = events[1:] != events[:-1]
        own = self._neighbours.of(seen)
        while start < len(index):
            stop = self._neighbours.admit(seen, own, index, good, links, last, start)
            rows = slice(start, stop)
            # Members take the time of a table.
            used, few = np.unique(index[rows], return_inverse=True)
            part = replace(block.take(rows), index=few.reshape(-1, index.shape[1]).astype(np.int32))
            given = {name: Table(DEFAULT_MODALITY, table[used]) for name, table in tables.items()}
            self._follow(part, given, seen[used], good[rows], outcomes[rows])
            if self._neighbours.due:
                self._judge_new()
            start = stop

    def _follow(
        self,
        block: ConstraintBlock,
        tables: Mapping[str, Table],
        Z: Rows,
        good: NDArray[np.bool_],
        outcomes: Outcomes,
    ) -> None:
        """Let all members learn from some constraints, and report for them by the metric as it is served."""
        outcomes.rejected[:] = ~good
        if not good.any():
            return
        kept = block if good.all() else block.take(np.flatnonzero(good))
        scores, margin = np.zeros(len(kept)), np.zeros(len(kept))
        used, clipped = np.zeros(len(kept), np.bool_), np.zeros(len(kept), np.bool_)
        degenerate = np.zeros(len(kept), np.bool_)
        for member, weight, share in zip(self._members, self._weights, self._shares(), strict=True):
            if kept.kind not in member.learner.accepts:
                continue
            found = member.learner.learn(replace(kept, tables=(tables[member.view],)))
            used |= found.utilised
            clipped |= found.clipped
            degenerate |= found.degenerate
            scored = found.mistake >= 0
            scores += np.where(scored, weight * (1.0 - 2.0 * found.mistake), 0.0)
            margin += np.where(scored & np.isfinite(found.margin), share * found.margin, 0.0)
        pairs = kept.kind is Kind.PAIR
        if not pairs and self._served:
            margin = margins(added(Z, self._made_of(self._served), self.dtype), kept.index)
        decided = scores if pairs else margin
        outcomes.mistake[good] = decided <= 0.0
        outcomes.margin[good] = np.nan if pairs else margin
        outcomes.loss[good] = np.logaddexp(0.0, -decided)
        outcomes.utilised[good], outcomes.clipped[good] = used, clipped
        outcomes.degenerate[good] = degenerate & ~used

    def _judge_new(self) -> None:
        """Judge the rows that wait, by the learners from before; then weigh anew."""
        with one_blas_thread():
            self._neighbours.judge(self._embedded)
            self._before = {m.name: m.learner.map for m in self._members if m.learns}
            sample = self._neighbours.window[self._neighbours.usual][:SAMPLED]
            with np.errstate(all="ignore"):
                self._spreads = np.array(
                    [spread(np.asarray(mapped, np.float64)) for mapped in self._embedded(sample)]
                )
        self._weigh()
        turn = self._neighbours.judged // EVERY
        if turn % LATEST == 0 or turn.bit_count() == 1:
            self._serve()

    def _serve(self) -> None:
        """Judge constraints by the present metric from now on; of many features, members tell its distances."""
        self._served = self._together() if (self._dimension or 0) < WIDE else {}

    def _embedded(self, Z: Rows) -> Iterator[Rows]:
        """Vectors z (n, d) under each member, the learners by their maps from before."""
        seen = {name: self._views[name].seen(Z, self.dtype) for name in {m.view for m in self._members}}
        for member in self._members:
            rows = seen[member.view]
            with np.errstate(all="ignore"):
                yield np.asarray(rows @ self._before[member.name].T) if member.learns else rows

    def _mapped(self, Z: Rows) -> Rows:
        if not self._views:
            return Z
        return added(Z, self.metric, self.dtype)

    def _together(self) -> dict[str, Rows]:
        d = self._dimension or 0
        sample = self._neighbours.window[self._neighbours.usual]
        return together(self._members, self._shares(), self._views, sample, min(self.rank or d, d))

    def _made_of(self, parts: dict[str, Rows]) -> Metric:
        return [(shown(part, self._views), matrix) for part, matrix in parts.items()]
