"""Several learners and un-learned metrics on the same constraints, combined into one metric that follows the best."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import Outcomes, Rows, State
from kinstream.learners.composite import Composite
from kinstream.learners.kernels.ensembles import portfolio
from kinstream.learners.portfolio import metric as portfolio_metric
from kinstream.learners.portfolio.hubs import Hubs
from kinstream.learners.portfolio.members import BROKEN, Members, Settings, made, settings_of
from kinstream.learners.portfolio.metric import Metric
from kinstream.learners.portfolio.unit import Unit
from kinstream.learners.portfolio.views import Views
from kinstream.learners.shared import scaler
from kinstream.learners.shared.events import Events, Numbers, shared, take
from kinstream.learners.shared.one_modality import Index
from kinstream.learners.shared.scaler import WARM_UP
from kinstream.learners.shared.validation import not_negative, positive, whole
from kinstream.streams.compute.arrays import plain
from kinstream.streams.errors import BadRecord, CheckpointError, SettingsError
from kinstream.streams.records.state import without_prefix
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Kind, Table

#: Constraints in a row that a member may reject while others do not, before it is dropped.
PATIENCE: Final = 100


class Portfolio(Composite):
    r"""Several learners and two un-learned metrics side by side, with weights by progressive validation.

    Every constraint reaches every member. The mistake of a member is counted before it learns from the event; decayed
    sums L_i of mistakes over the latest constraints give the weights

        w = (1 - floor) h + floor (a + u) / 2,    eta = sqrt(8 ln N / n),

    with n the decayed number of constraints. Over all N members h_i ~ b_i exp(-3 s_i - eta L_i), with b_i = 1, or less
    for learners if the same vectors come repeatedly (`kinstream.learners.portfolio.views`). Over the un-learned ones
    u_i ~ exp(-3 s_i) ((1 + min L) / (1 + L_i))^2 and a_i ~ u_i exp(-eta L_i), so half of the floor follows ratios of
    mistakes, for any number of constraints. s_i is the skewness of how often each of the first 384 vectors is a
    neighbour of the others, checked whenever twice as many constraints have come (`kinstream.learners.portfolio.hubs`):
    a metric with hubs, such as Euclidean distance between vectors of very different lengths, has poor neighbours, which
    mistakes on random triplets do not show.

    The un-learned metrics are Euclidean distance of the scaled vectors z, and Euclidean distance of their directions
    z / |z|, which ranks as cosine does.

    A triplet is a mistake of the portfolio when sum_i w_i m_i / s_i is at most 0, with the members' margins m_i, their
    mean magnitudes s_i so far, and the weights before its event. A pair is a mistake when the members that are wrong
    have half of the weight. The metric of `transform`, `distance` and an export is

        D^2(x, y) = sum_i w_i D_i^2(x, y) / t_i,

    with t_i the standard deviation of D_i^2 from one vector to the others, over the first 96 vectors. One vector index
    holds it; it changes with the weights.

    Parameters
    ----------
    members : a table for each learner by its name, with its `kind` (by default the name) and its hyper-parameters; in
        `kinstream.toml` the tables `[learners.NAME.members.MEMBER]`. The notes name the default members. Any learner of
        one modality can be a member, with the scaler "unit" or none.
    floor : share of the weight that un-learned metrics always have, in [0, 1).
    repeats : mean number of times that a vector may come before learners begin with less weight, above 0; see
        `kinstream.learners.portfolio.views`. Use inf if only the vectors of constraints will be searched.
    window : constraints over which mistakes are counted, at least 2: one that is k constraints old weighs (1 - 1 /
        window)^k.
    seed : of members that draw at random, unless they have their own.
    dtype : "float64" or "float32", for the vectors that members get, and for members without their own.
    scaler : None or "none", "zscore", "unit", "minmax"; one for all members, see `kinstream.learners.shared.scaler`.
    warm_up : distinct vectors before "zscore" and "minmax" are frozen, also for members without their own.

    Attributes
    ----------
    accepts : kinds of constraints that one of the learners takes.
    form : pairs if one of the learners is made for those. Each handles triplets in its own way.
    weights : weight of every member by name.
    dropped : names of the dropped members.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range; for a member's, the error names the member.

    Notes
    -----
    Members work in a common unit: after the scaler's warm-up and 32 more triplets (48 pairs), vectors are divided by
    their root mean squared length, so step sizes do not depend on the scale of the features. OPML's gamma is that of
    OPML alone times the mean square. Until then constraints are scored by Euclidean distance and not learned.

    Default members: OAHU without anchors, OPML and OASIS on directions, LEGO. Together they take about 50 microseconds
    a triplet at 64 features.

    A constraint is utilised when it changed a member, clipped when a member's step was; it is rejected when all
    members reject it. The loss is the mean of the learners' losses, which have different units. A member that rejects a
    constraint that others score is counted as wrong. After 100 such constraints in a row, or if its arithmetic fails,
    it is dropped permanently: its weight is 0, `dropped` names it, and the others continue. A member without a verdict,
    such as a learner of triplets on pairs, gets the average loss of the others.

    Exponential weights with this eta make, in expectation, at most sqrt(T ln N / 2) more mistakes than the best of N in
    T constraints, for a known T. This vote is deterministic, uses margins, and has a window and a floor;
    docs/portfolio.md describes it, and the reasons for these defaults.

    The floor exists because mistakes on triplets do not show which metric has the best neighbours: a learner that has
    seen few vectors many times is nearly always right on their triplets, and worse than no learning on others. So,
    beyond `repeats` views of a vector on average, learners need a larger lead for the same weight.

    Time and memory are the sum of the members'. Margins are those of `kinstream.learners.base.Outcomes`: those of OASIS
    are of its similarity, while the metric uses its distance.

    References
    ----------
    Cesa-Bianchi, Lugosi: Prediction, learning, and games. Cambridge 2006, theorem 2.2 (eta), section 2.11 (discounts).
    Freund, Schapire, Singer, Warmuth: Using and combining predictors that specialize. STOC 1997 (no verdict).

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import Portfolio
    >>> draw = np.random.default_rng(0)
    >>> noise = np.array([0.3, 0.3, 3.0, 3.0, 3.0])
    >>> x, near, far = noise * draw.normal(size=(3, 2000, 5))
    >>> far += [1.0, 1.0, 0.0, 0.0, 0.0]
    >>> model = Portfolio()
    >>> mistake = model.learn_triplets(x, near, far).mistake
    >>> bool(mistake[-500:].mean() < 0.8 * mistake[:500].mean())
    True
    """

    def __init__(
        self,
        *,
        members: Members | None = None,
        floor: float = 0.5,
        repeats: float = 10.0,
        window: int = 1000,
        seed: int = 0,
        dtype: str = "float32",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up)
        self.floor = not_negative("floor", floor)
        if self.floor >= 1.0:
            raise SettingsError(f"floor must be at least 0 and below 1, not {floor!r}")
        self.repeats = repeats if repeats == np.inf else positive("repeats", repeats)
        self.window = whole("window", window, 2)
        self.seed = whole("seed", seed, 0)
        #: Kind and hyper-parameters of each learner, by name.
        self.members: Settings = settings_of(members)
        self._metric: Metric | None = None
        self._renew()
        learners = [member.learner for member in self._members if member.learns]
        self._learned = len(learners)
        self._accepts = frozenset[Kind]().union(*(learner.accepts for learner in learners))
        self._form = Kind.PAIR if any(one.form is Kind.PAIR for one in learners) else Kind.TRIPLET
        names = "-".join(one.algorithm.replace("/", "-") for one in learners)
        self._algorithm = f"portfolio-{names}/6"

    @property
    def accepts(self) -> frozenset[Kind]:  # type: ignore[override]
        """Kinds of constraints that one of the learners takes."""
        return self._accepts

    @property
    def form(self) -> Kind:  # type: ignore[override]
        """Pairs if one of the learners is made for those."""
        return self._form

    @property
    def algorithm(self) -> str:  # type: ignore[override]
        """Such as "portfolio-opml-1-lego-1/6"."""
        return self._algorithm

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every member in the vote and in the metric; their sum is 1."""
        found = self._weights()
        return {member.name: float(w) for member, w in zip(self._members, found, strict=True)}

    @property
    def dropped(self) -> tuple[str, ...]:
        """Members that were dropped."""
        return tuple(m.name for m, gone in zip(self._members, self._gone, strict=True) if gone)

    @property
    def metric(self) -> Metric:
        """What `transform` does with scaled vectors.

        Raises
        ------
        ValueError
            The members have not begun.
        """
        if not self._scaler.ready:
            raise ValueError(f"{self.algorithm} still scales: there is no metric yet")
        if self._metric is None:
            self._metric = portfolio_metric.together(self._members, list(self._weights()), self._unit.sample)
        return self._metric

    def _learn_part(
        self, block: ConstraintBlock, vectors: Rows, events: Numbers | None, outcomes: Outcomes
    ) -> None:
        self._metric = None
        start, late = self._watched(vectors, block.index, block.signs, events, outcomes)
        if self._unit.ready and not self._hubs.begun:
            self._hubs.begin(self._unit.sample.astype(self.dtype), self._members)
        if start < len(block):
            with np.errstate(all="ignore"):
                X = plain(self._scaler.apply(vectors), self.dtype)
            self._learn_on(block, block.index, X, start, outcomes)
        if late is not None:
            take(outcomes, start, late)

    def _whole(self) -> State:
        state: State = {}
        if self._dimension is not None:
            state |= self._own()
        state |= {f"scaler.{name}": value for name, value in self._scaler.state().items()}
        for member, gone in zip(self._members, self._gone, strict=True):
            if not gone:
                own = member.learner.state().items()
                state |= {f"member.{member.name}.{name}": value for name, value in own}
        return state

    def _restore_whole(self, state: State) -> int | None:
        self._scaler.restore(without_prefix("scaler.", state))
        self._dimension = self._restore_own(state) if "dimension" in state else None
        for member, gone in zip(self._members, self._gone, strict=True):
            if not gone:
                member.learner.restore(without_prefix(f"member.{member.name}.", state))
        return self._dimension

    def exported(self) -> tuple[dict[str, Rows], list[dict[str, str]]]:
        """The metric as arrays by name, and its parts; see docs/portfolio.md.

        Raises
        ------
        CheckpointError
            The members have not begun.
        SettingsError
            A member is neither a linear map nor a network of OAHU without anchors.
        """
        if not self._unit.ready:
            raise CheckpointError(f"{self.algorithm} still scales: its members have learned nothing yet")
        arrays, parts = portfolio_metric.arrays(self.metric)
        d = self._unit.sample.shape[1]
        shift, factor = self.affine() or (np.zeros(d), np.full(d, self._unit.factor))
        return {"shift": shift, "factor": factor} | arrays, parts

    @property
    def remembered(self) -> Rows:
        if not self._unit.ready:
            raise CheckpointError(f"{self.algorithm} still scales: its members have learned nothing yet")
        return self._unit.sample

    def distance(self, X: Rows, Y: Rows) -> Rows:
        left, right = self.scale(X), self.scale(Y)
        if left.shape != right.shape or not self._scaler.ready:
            return super().distance(X, Y)
        return self.metric.distance(left, right)

    def _mapped(self, Z: Rows) -> Rows:
        # The members begin together; before that, the metric is the first un-learned one.
        return self.metric.apply(Z).astype(self.dtype) if self._scaler.ready else Z

    def _renew(self) -> None:
        """Create new members with equal weights."""
        self._members = made(self.members, dtype=self.dtype, warm_up=self.warm_up, seed=self.seed)
        self._scaler = self._unit = Unit(scaler.create(self.scaler, self.warm_up))
        self._metric = None
        self._views = Views(self.repeats)
        N = len(self._members)
        self._hubs = Hubs(N)
        self._losses, self._gone = np.zeros(N), np.zeros(N, np.bool_)
        self._refused, self._sizes, self._seen = np.zeros(N, np.int64), np.zeros((N, 2)), np.zeros(1)

    def _weights(self) -> NDArray[np.float64]:
        found = np.empty(len(self._members))
        seen, start = float(self._seen[0]), self._views.start
        portfolio.weigh(
            self._losses, self._gone, self._learned, self._hubs.prior, seen, start, self.floor, found
        )
        return found

    def _own(self) -> State:
        state: State = {f"views.{name}": value for name, value in self._views.state().items()}
        state |= {f"hubs.{name}": value for name, value in self._hubs.state().items()}
        return state | {
            "dimension": int(self._dimension or 0),
            "losses": self._losses.copy(),
            "gone": self._gone.astype(np.int8),
            "refused": self._refused.copy(),
            "sizes": self._sizes.copy(),
            "seen": self._seen.copy(),
        }

    def _restore_own(self, state: State) -> int:
        for name in ("losses", "gone", "refused", "sizes", "seen"):
            found, own = np.asarray(state[name]), getattr(self, f"_{name}")
            if found.shape != own.shape:
                raise SettingsError(f"the state to restore is of {len(found)} members, not of {len(own)}")
            setattr(self, f"_{name}", found.astype(own.dtype))
        self._views.restore(without_prefix("views.", state))
        self._hubs.restore(without_prefix("hubs.", state))
        return int(state["dimension"])

    def _learn_on(
        self, block: ConstraintBlock, index: Index, X: Rows, start: int, outcomes: Outcomes
    ) -> None:
        """Learn from the constraints of a block from `start` on, in parts that end at checks of hubs.

        No part ends within an event, because the rest would be judged after the first part was learned.
        """
        while start < len(index):
            stop = start + self._hubs.until(X, index[start:])
            if block.events is not None:
                stop = int(np.searchsorted(block.events, block.events[stop - 1], side="right"))
            rows = slice(start, stop)
            scored = self._follow(replace(block.take(rows), index=index[rows]), X, outcomes[rows])
            left = [None if gone else member for member, gone in zip(self._members, self._gone, strict=True)]
            self._hubs.count(X, index[rows], scored, left)
            start = rows.stop

    def _follow(self, block: ConstraintBlock, X: Rows, outcomes: Outcomes) -> NDArray[np.bool_]:
        """Let all members learn from the scaled vectors X of a block, and report for them; which rows were scored."""
        found = [self._reported(i, block, X) for i in range(len(self._members))]
        rejected, ignored, mistakes, margins = (
            np.array([getattr(one, name) for one in found])
            for name in ("rejected", "ignored", "mistake", "margin")
        )
        fates = np.where(mistakes >= 0, portfolio.SCORED, portfolio.ABSENT).astype(np.int8)
        fates[rejected] = portfolio.REJECTED
        scored = np.asarray((fates == portfolio.SCORED).any(axis=0))
        portfolio.follow(
            fates,
            mistakes,
            margins,
            outcomes.split,
            Events.of(shared(block.events, len(block))).ends,
            self._learned,
            self._hubs.prior,
            self._views.starts(X, block.index, scored),
            self.floor,
            1.0 - 1.0 / self.window,
            PATIENCE,
            self._losses,
            self._gone,
            self._refused,
            self._sizes,
            self._seen,
            outcomes.mistake,
            outcomes.margin,
        )
        took = ~(rejected | ignored)
        outcomes.utilised[:] = np.any([one.utilised for one in found], axis=0)
        outcomes.clipped[:] = np.any([one.clipped for one in found], axis=0)
        outcomes.rejected[:] = ~took.any(axis=0) & rejected.any(axis=0)
        flat = np.array([one.degenerate for one in found])
        outcomes.degenerate[:] = (flat | ~took).all(axis=0) & took.any(axis=0) & ~outcomes.utilised
        learned = took[: self._learned]
        losses = np.array([one.loss for one in found[: self._learned]])
        number = np.maximum(learned.sum(axis=0), 1)
        # Divided first: a sum of the largest numbers would overflow.
        outcomes.loss[:] = np.where(learned, losses / number, 0.0).sum(axis=0)
        return scored

    def _reported(self, i: int, block: ConstraintBlock, X: Rows) -> Outcomes:
        """A member's outcomes of a block; blank if it cannot use the block or was dropped."""
        member = self._members[i]
        nothing = Outcomes.blank(len(block), ignored=True)
        if self._gone[i] or block.kind not in member.learner.accepts:
            return nothing
        table = Table(DEFAULT_MODALITY, X)
        try:
            return member.learner.learn(replace(block, tables=(table,)))
        except BadRecord:
            return nothing
        except BROKEN:
            self._gone[i] = True
            return nothing
