"""OPML and COPML: one-pass closed-form online metric learning (Li et al. 2018)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import write
from kinstream.learners.base.learner import UNDEFINED, Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch, Index
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import one_of, positive_or_none, whole
from kinstream.learners.forms.linear_map import LinearMap
from kinstream.learners.kernels.one_modality import opml, opml_blocks
from kinstream.streams.compute.compilation import limit
from kinstream.streams.records.values import PREFIX_RULE, ConstraintBlock, Kind

GUARDS: Final = ("clip", "raw", "normalise")
KERNELS: Final = ("auto", "sequential", "blocked")
_UNLIMITED: Final = 2**62


class OPML(LinearMap):
    r"""One-pass closed-form metric learning from triplets.

    For a triplet (x, x+, x-) with a = x - x+, b = x - x- and A = a a^T - b b^T, whenever the hinge
    1 + |L a|^2 - |L b|^2 is above zero:

        L <- L (I + gamma A)^{-1}

    written as two outer products (Eq. 15 and 16). A constraint is a mistake when |L a|^2 >= |L b|^2 before
    the update.

    Parameters
    ----------
    gamma : step size; by default 0.03, or 1e-3 in the published unit. There it depends on the scale of the features,
        because its unit is 1 / squared distance.
    guard : what happens when I + gamma A is not, or barely, positive definite.

        - "clip" shortens the step to gamma |lambda_min(A)| = 0.9, and scales the whole map down when an entry would
          exceed 10^9, because many steps of one kind can still add up. Both are counted as clipped.
        - "raw" is the published algorithm. It is undefined if det(I + gamma A) <= 1e-12; such a constraint is rejected
          and counted, because one triplet must not end a stream.
        - "normalise" divides by the largest norm of a vector so far and requires gamma < 1/4, the published condition;
          distances and losses are then in that unit.
    dtype : "float64" or "float32", for the map and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale is computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.
    kernel : "sequential", "blocked", or "auto" by dimension. Both give the same result to rounding, not to
        the bit.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) time and memory. A vanishing A (x+ = x-, or x halfway between them) is degenerate and changes
    nothing.

    References
    ----------
    Li, Gao, Wang, Zhou, Huo, Shi: OPML: A one-pass closed-form solution for online metric learning. Pattern
    Recognition 75, 2018.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import OPML
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 600)
    >>> X = np.column_stack([label + 0.2 * draw.normal(size=600), 3.0 * draw.normal(size=600)])
    >>> same, other = X[label == 0], X[label == 1]
    >>> n = min(len(same), len(other)) - 1
    >>> model = OPML(scaler="zscore")
    >>> early, late = (
    ...     model.learn_triplets(same[rows], same[rows.start + 1 : rows.stop + 1], other[rows]).counts()
    ...     for rows in (slice(0, 100), slice(100, n))
    ... )
    >>> round(early.mistakes / early.scored, 2), round(late.mistakes / late.scored, 2)
    (0.12, 0.04)
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET})
    form: ClassVar[Kind] = Kind.TRIPLET
    algorithm: ClassVar[str] = "opml/1"

    def __init__(
        self,
        gamma: float | None = None,
        *,
        guard: str = "clip",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
        kernel: str = "auto",
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self.guard = one_of("guard", guard, GUARDS)
        self._gamma = positive_or_none("gamma", gamma, 0.25 if guard == "normalise" else np.inf)
        self.kernel = one_of("kernel", kernel, KERNELS)
        #: Largest norm of a (scaled) vector so far; changes only under guard="normalise".
        self.radius = 0.0

    @property
    def gamma(self) -> float:
        """Step size."""
        return self._by_unit(self._gamma, 0.03, 1e-3)

    @property
    def L(self) -> Rows:
        """A copy of the map (d, d), for scaled features; under guard="normalise", for those divided by `radius`."""
        return self._T.T.copy()

    @property
    def map(self) -> Rows:
        return (
            self._mapped(np.eye(self._T.shape[0], dtype=self.dtype)).T.copy()
            if self.radius > 0.0
            else super().map
        )

    def _mapped(self, Z: Rows) -> Rows:
        mapped = super()._mapped(Z)
        return mapped / mapped.dtype.type(self.radius) if self.radius > 0.0 else mapped

    def directions(self, before: Rows, Z: Rows) -> Rows:
        """Rows that span those of a change of the map; see `learners.steps`."""
        return Z

    def _model(self) -> State:
        model = super()._model()
        return model | {"radius": self.radius} if self.guard == "normalise" else model

    def _restore_model(self, state: State) -> int:
        self.radius = float(state.get("radius", 0.0))
        return super()._restore_model(state)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        T = self._T
        way = self.kernel
        if way == "auto":
            way = "blocked" if len(T) >= opml_blocks.CROSSOVER[T.dtype] else "sequential"
        radius = self.radius
        before = 1.0 / radius if radius > 0.0 else 1.0
        scale = self._scale(batch.X, batch.index, batch.usable)
        arguments: Any = (
            T,
            batch.X,
            batch.index,
            batch.usable,
            scale,
            self.gamma,
            opml.CLIP if self.guard == "clip" else opml.RAW,
            limit(T.dtype),
            self._bound,
            outcomes.report(),
            batch.events.judged,
        )
        if way == "blocked":
            self._bound = opml_blocks.triplets(*arguments)
        else:
            whole: Any = (*arguments, 0, len(batch))
            self._bound = opml.triplets(*whole)
        if self.guard == "normalise":
            # Under the radius of `distance` before each triplet.
            outcomes.margin[:] *= (np.append(before, scale[:-1]) / scale) ** 2
            self._renormalise(batch, scale, radius)

    def _renormalise(self, batch: Batch, scale: NDArray[np.float64], radius: float) -> None:
        """Convert the measurements from before events to the unit that each constraint would have alone.

        Parameters
        ----------
        scale : (m,) the factor under which each was measured.
        radius : before the batch.
        """
        events, rows = batch.events, batch.events.rows
        if len(rows) == 0 or self.guard != "normalise":
            return
        longest = self._longest(batch.X, batch.index, batch.usable)
        radii = np.append(radius, np.maximum.accumulate(np.maximum(longest, radius)))[events.firsts]
        alone = _inverse(np.maximum(radii, longest[rows]))
        events.found[rows] *= (alone / scale[rows]) ** 2
        # Then to the unit of the radius of `distance`.
        events.levels[rows] = (_inverse(radii) / alone) ** 2

    def _judge(self, batch: Batch, outcomes: Outcomes) -> None:
        events = batch.events
        if batch.index.shape[1] == 2:
            write(
                outcomes, events.rows, np.full(len(events.rows), UNDEFINED), events.found[events.rows], None
            )
            return
        super()._judge(batch, outcomes)
        if self.guard == "normalise":
            rows = events.rows[~outcomes.degenerate[events.rows]]
            outcomes.margin[rows] *= events.levels[rows]

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        near, far = (float(difference @ difference) for difference in points[0] - points[1:])
        return int(near >= far), max(0.0, 1.0 + near - far), far - near

    def _scale(self, X: Rows, index: Index, usable: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Factor of every constraint's vectors: 1, or 1 / radius including that constraint."""
        if self.guard != "normalise":
            return np.ones(len(index))
        radius = np.maximum.accumulate(np.maximum(self._longest(X, index, usable), self.radius))
        self.radius = float(radius[-1])
        return _inverse(radius)

    def _longest(self, X: Rows, index: Index, usable: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Largest length (m,) of the vectors of each constraint; 0 for unusable ones."""
        norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
        return np.where(usable, norms[index].max(axis=1), 0.0)


def _inverse(radius: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / radius, or 1 without a radius."""
    return np.divide(1.0, radius, out=np.ones_like(radius), where=radius > 0.0)


class COPML(OPML):
    """OPML with a pre-stage that learns from pairs of successive samples while only one class is known.

    A pair of rule `kinstream.streams.records.values.PREFIX_RULE`, z = x_t - x_{t-1}, changes the map by

        L <- L (I + gamma1 z z^T)^{-1}

    which shrinks its distance. It has no threshold, so a mistake is undefined; the reported loss is |L z|^2.
    Pairs of other rules are ignored, because the algorithm does not define a step for them. Triplets are learned as by
    OPML with gamma2.

    Parameters
    ----------
    gamma1, gamma2 : step sizes of the pre-stage and of the triplets; see `OPML`.
    max_prefix_updates : largest number of pre-stage updates of a model, None for no limit. Every one of them contracts
        and nothing expands, so a long prefix of one class can flatten directions that matter later.
    guard, dtype, scaler, warm_up, unit, kernel : as for `OPML`; guard="normalise" requires gamma2 < 1/4.

    References
    ----------
    As for `OPML`, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import COPML
    >>> model = COPML(gamma1=0.5, gamma2=0.01, unit="published")
    >>> outcomes = model.learn_pairs(np.array([[1.0, 0.0]]), np.array([[0.0, 0.0]]))
    >>> float(outcomes.loss[0]), model.L.round(3).tolist()
    (1.0, [[0.667, 0.0], [0.0, 1.0]])
    """

    accepts: ClassVar[frozenset[Kind]] = frozenset({Kind.TRIPLET, Kind.PAIR})
    algorithm: ClassVar[str] = "copml/1"

    def __init__(
        self,
        gamma1: float | None = None,
        gamma2: float | None = None,
        *,
        max_prefix_updates: int | None = None,
        guard: str = "clip",
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
        kernel: str = "auto",
    ) -> None:
        self._gamma1 = positive_or_none("gamma1", gamma1)
        positive_or_none("gamma2", gamma2, 0.25 if guard == "normalise" else np.inf)
        super().__init__(
            gamma2, guard=guard, dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit, kernel=kernel
        )
        if max_prefix_updates is not None:
            whole("max_prefix_updates", max_prefix_updates, 0)
        self.max_prefix_updates = max_prefix_updates
        #: Pre-stage pairs that changed the map so far.
        self.prefix_updates = 0

    @property
    def gamma1(self) -> float:
        """Step size of the pre-stage."""
        return self._by_unit(self._gamma1, 0.03, 1e-3)

    @property
    def gamma2(self) -> float:
        """Step size of the triplets."""
        return self.gamma

    def _model(self) -> State:
        return super()._model() | {"prefix_updates": self.prefix_updates}

    def _restore_model(self, state: State) -> int:
        self.prefix_updates = int(state["prefix_updates"])
        return super()._restore_model(state)

    def _ignored(self, block: ConstraintBlock) -> NDArray[np.bool_] | None:
        if block.kind is not Kind.PAIR:
            return None
        known = np.array([name == PREFIX_RULE for name in block.rules], np.bool_)
        return np.asarray(~known[block.rule] | (block.signs < 0), np.bool_)

    def _run(self, kind: Kind, batch: Batch, outcomes: Outcomes) -> None:
        if kind is Kind.TRIPLET:
            self._update(batch, outcomes)
            return
        left = (
            _UNLIMITED if self.max_prefix_updates is None else self.max_prefix_updates - self.prefix_updates
        )
        radius = self.radius
        scale = self._scale(batch.X, batch.index, batch.usable)
        self._bound, updates = opml.pairs(
            self._T,
            batch.X,
            batch.index,
            batch.usable,
            scale,
            self.gamma1,
            left,
            limit(self._T.dtype),
            self._bound,
            outcomes.report(),
            batch.events.judged,
        )
        self.prefix_updates += updates
        self._renormalise(batch, scale, radius)

    def _score(self, points: NDArray[np.float64], sign: int) -> tuple[int, float, float]:
        if len(points) == 3:
            return super()._score(points, sign)
        difference = points[0] - points[1]
        return -1, float(difference @ difference), np.nan
