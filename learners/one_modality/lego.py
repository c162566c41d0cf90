"""LEGO: online metric learning with the exact gradient of the LogDet divergence (Jain et al. 2008)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, Rows
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.targets import Targets
from kinstream.learners.base.validation import one_of, positive_or_none
from kinstream.learners.forms.linear_map import LinearMap
from kinstream.learners.forms.pairs import PairLearner
from kinstream.learners.kernels.one_modality import lego, lego_blocks
from kinstream.streams.compute.compilation import limit

LOSSES: Final = ("hinge", "squared")
KERNELS: Final = ("auto", "sequential", "blocked")


class TargetLearner(PairLearner):
    """A learner of pairs with target distances, whose initial metric is Euclidean.

    Attributes
    ----------
    loss : "hinge" or "squared".
    """

    _targets: Targets

    def _aim(self, loss: str, targets: Targets) -> None:
        self.loss = one_of("loss", loss, LOSSES)
        self._targets = targets

    def _score_pair(self, squared: float, sign: int) -> tuple[int, float]:
        similar, dissimilar = self._targets.similar, self._targets.dissimilar
        gap = squared - (similar if sign > 0 else dissimilar)
        threshold = (similar + dissimilar) / 2.0
        mistake = -1 if np.isnan(threshold) else int((squared > threshold) == (sign > 0))
        if np.isnan(gap) or (self.loss == "hinge" and sign * gap <= 0.0):
            return mistake, 0.0
        return mistake, 0.5 * gap * gap

    def _score_pairs(
        self, squared: NDArray[np.float64], signs: NDArray[np.int8], batch: Batch, rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        levels, gap = batch.events.levels[rows], squared - batch.targets[rows]
        mistake = np.where(np.isnan(levels), -1, (squared > levels) == (signs > 0))
        wrong = (signs * gap > 0.0) | (self.loss == "squared")
        return mistake, np.where(wrong, 0.5 * gap * gap, 0.0 * gap)

    def _first_distance(self, z: NDArray[np.float64]) -> float:
        return float(z @ z)


class LogDetMap(LinearMap, TargetLearner):
    """The base of LEGO and ITML-Online: a map G with A = G'G, stretched or shrunk by a pair along w = G z.

    Parameters
    ----------
    rule : of `kinstream.learners.kernels.one_modality.lego`.
    kappa : share of the cap, read by the capped rule only.
    """

    letter = "G"
    #: Step size for vectors of a mean squared length of 1.
    usual_eta: ClassVar[float] = 0.03

    def __init__(
        self,
        rule: int,
        eta: float | None,
        kappa: float,
        *,
        loss: str,
        targets: str,
        y_similar: float | None,
        y_dissimilar: float | None,
        dtype: str,
        scaler: str | None,
        warm_up: int,
        unit: str,
        kernel: str,
    ) -> None:
        super().__init__(dtype=dtype, scaler=scaler, warm_up=warm_up, unit=unit)
        self._aim(loss, Targets(targets, y_similar, y_dissimilar, warm_up))
        self._eta = positive_or_none("eta", eta)
        self.kernel = one_of("kernel", kernel, KERNELS)
        self._rule, self._kappa = rule, kappa

    @property
    def eta(self) -> float:
        """Step size."""
        return self._by_unit(self._eta, self.usual_eta, 1e-5)

    @property
    def G(self) -> Rows:
        """A copy of the map (d, d), for scaled features."""
        return self._T.T.copy()

    def directions(self, before: Rows, Z: Rows) -> Rows:
        """Rows that span those of a change of the map; see `kinstream.learners.steps`."""
        return np.asarray((Z @ before.T) @ before)

    def _update(self, batch: Batch, outcomes: Outcomes) -> None:
        T = self._T
        way = self.kernel
        if way == "auto":
            way = "blocked" if len(T) >= lego_blocks.CROSSOVER[T.dtype] else "sequential"
        arguments: Any = (
            T,
            batch.X,
            batch.index,
            batch.usable,
            batch.signs,
            batch.targets,
            batch.thresholds,
            batch.group,
            self._rule,
            self.loss == "squared",
            self.eta,
            self._kappa,
            limit(T.dtype),
            self._bound,
            outcomes.report(),
            batch.events.judged,
        )
        if way == "blocked":
            self._bound, steps, total = lego_blocks.pairs(*arguments)
        else:
            whole: Any = (*arguments, 0, len(batch))
            self._bound, steps, total = lego.pairs(*whole)
        self._stepped(steps, total)

    def _stepped(self, steps: int, total: float) -> None:
        """Note the number of pairs that changed the map, and the sum of their step sizes."""


class LEGO(LogDetMap):
    r"""LogDet exact gradient online metric learning, which moves pairs towards target distances.

    A pair with difference z, target y and sign s (+1: at most y, -1: at least y) has the squared distance
    d = z'Az under A = G'G. With the hinge loss [s (d - y)]_+^2 / 2, or the squared loss (d - y)^2 / 2, the new
    metric is the exact minimiser of D(A, A_t) + eta loss(A), D the LogDet divergence. In closed form, with w = G z
    and g = G'w:

        G <- G + (sqrt(rho) - 1) / d  w g',    rho = d' / d

    where d' is the pair's new distance, the positive root of d' = d / (1 + eta (d' - y) d). It lies between d and y,
    and tends to y for large eta, so the loss on the learned pair never grows and A stays positive definite for any step
    size. A pair is a mistake when it is similar and d is above (y_S + y_D) / 2, or dissimilar and d is not, before the
    update; a triplet, learned as two pairs, when the dissimilar vector is not the farther one.

    Parameters
    ----------
    eta : step size, above 0; by default 0.03. In the published unit it depends on the scale and the number of the
        features, because its unit is 1 / squared distance^2: about 0.1 / d^2 is a good start for a typical squared
        distance d. The default there, 1e-5, suits z-scored data of 30 to 60 features, where d is about 100.
    loss : "hinge" learns from pairs on the wrong side of their target, "squared" from all.
    targets : "own" gives all similar pairs the target y_S and all dissimilar ones y_D; "block" takes the targets of
        the constraint blocks.
    y_similar, y_dissimilar : y_S and y_D, squared distances after scaling. By default the 5th and 95th percentile over
        the warm-up, see `kinstream.learners.base.targets`.
    dtype : "float64" or "float32", for the map and all calculations with it.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors that the scale, and targets that are not given, are computed from.
    unit : "length" or "published", see `kinstream.learners.base.one_modality.SingleModal`.
    kernel : "sequential", "blocked", or "auto" by dimension. Both give the same result to rounding, not to
        the bit.

    Attributes
    ----------
    G : (d, d) a copy of the map, for scaled features.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) time and memory: two products with the map and a rank-one change for a learned pair, one product for any
    other. A itself is never formed, and G is never refactored, so that keys hashed from G stay comparable.

    rho is held between 1e-12 and 1e12, counted as clipped. The map needs no other guard: with contradictory targets,
    distances oscillate between them and do not grow. A pair without a difference is degenerate and changes nothing.

    References
    ----------
    Jain, Kulis, Dhillon, Grauman: Online metric learning and fast similarity search. NIPS 2008. (The update, its
    losses and the closed form are stated there; the form of rho without cancellation, the mistake threshold and the
    range of eta are not.)

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import LEGO
    >>> draw = np.random.default_rng(7)
    >>> label = draw.integers(0, 2, 2000)
    >>> X = np.column_stack([label + 0.2 * draw.normal(size=2000), 3.0 * draw.normal(size=2000)])
    >>> sign = np.where(label[:-1] == label[1:], 1, -1)
    >>> model = LEGO(eta=0.1, y_similar=0.5, y_dissimilar=2.0, unit="published")
    >>> early, late = (
    ...     model.learn_pairs(X[:-1][rows], X[1:][rows], sign[rows]).counts()
    ...     for rows in (slice(0, 100), slice(1000, 1999))
    ... )
    >>> round(early.mistakes / early.scored, 2), round(late.mistakes / late.scored, 2)
    (0.2, 0.06)
    """

    algorithm: ClassVar[str] = "lego/11"

    def __init__(
        self,
        eta: float | None = None,
        *,
        loss: str = "hinge",
        targets: str = "own",
        y_similar: float | None = None,
        y_dissimilar: float | None = None,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
        unit: str = LENGTH,
        kernel: str = "auto",
    ) -> None:
        super().__init__(
            lego.EXACT,
            eta,
            0.0,
            loss=loss,
            targets=targets,
            y_similar=y_similar,
            y_dissimilar=y_dissimilar,
            dtype=dtype,
            scaler=scaler,
            warm_up=warm_up,
            unit=unit,
            kernel=kernel,
        )
