"""ITML-Online with a step that keeps the metric positive definite (Davis et al. 2007)."""

from __future__ import annotations

from typing import ClassVar, Final

from kinstream.learners.base.learner import State
from kinstream.learners.base.scaler import LENGTH, WARM_UP
from kinstream.learners.base.validation import one_of, positive
from kinstream.learners.kernels.one_modality import lego
from kinstream.learners.one_modality.lego import LogDetMap

RULES: Final = ("capped",)


class ITMLOnline(LogDetMap):
    r"""Information-theoretic metric learning online, "PD-capped": a LogDet step along the gradient at the old metric.

    For a pair with difference z, target y and squared distance d = z'Az under A = G'G, with w = G z and g = G'w:

        A^-1 <- A^-1 + eta_t (d - y) z z',    that is
        G <- G + (sqrt(rho) - 1) / d  w g',    rho = 1 / (1 + eta_t (d - y) d)

    It differs from `kinstream.LEGO` only in the point where the gradient is taken, and therefore in rho: the new
    distance rho d moves towards y but can pass it, and A stays positive definite only while eta_t (y - d) d < 1. So
    eta_t has a cap:

        eta_t = min(eta, kappa / ((y - d) d))  where d < y,  otherwise eta.

    Losses and mistakes are those of LEGO.

    Parameters
    ----------
    eta : largest step size, above 0, by default 0.01, in 1 / squared distance^2; see `kinstream.LEGO`. Above about 0.1
        / d^2, for a typical squared distance d, it overshoots, and the cap then slows the return.
    kappa : share of the admissible step, in (0, 1): a distance grows at most 1 / (1 - kappa) times in one step.
    rule : how eta_t is found. "capped" is the only one. The rule of the original paper depends on the data, was not
        confirmed, is undefined for the initial metric of this learner, and lets no direction grow.
    loss, targets, y_similar, y_dissimilar, dtype, scaler, warm_up, unit, kernel : as for `kinstream.LEGO`.

    Attributes
    ----------
    G : (d, d) a copy of the map, for scaled features.
    steps : pairs that changed the map so far.
    mean_step : mean eta_t of those; far below eta, the cap decides the steps.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) time and memory, as LEGO. A capped step is counted as clipped, and so is one with rho held at 1e-12.

    References
    ----------
    Davis, Kulis, Jain, Sra, Dhillon: Information-theoretic metric learning. ICML 2007. (The form of the update; its
    loss has no factor 1/2, so its eta is half of this one. The cap is Kinstream's, not the paper's.)

    Examples
    --------
    The distance of a similar pair falls from 4 to 4 / (1 + 0.125 (4 - 2) 4) = 2.

    >>> import numpy as np
    >>> from kinstream import ITMLOnline
    >>> model = ITMLOnline(eta=0.125, y_similar=2.0, y_dissimilar=8.0, unit="published")
    >>> x, y = np.array([[2.0, 0.0]]), np.array([[0.0, 0.0]])
    >>> outcomes = model.learn_pairs(x, y, np.array([1], np.int8))
    >>> float(outcomes.loss[0]), model.distance(x, y).round(6).tolist(), model.mean_step
    (2.0, [2.0], 0.125)
    """

    algorithm: ClassVar[str] = "itml-online/11"
    usual_eta: ClassVar[float] = 0.01

    def __init__(
        self,
        eta: float | None = None,
        *,
        kappa: float = 0.5,
        rule: str = "capped",
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
        self.rule = one_of("rule", rule, RULES)
        self.kappa = positive("kappa", kappa, 1.0)
        super().__init__(
            lego.CAPPED,
            eta,
            self.kappa,
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
        #: Number of pairs that changed the map, and the sum of their step sizes.
        self.steps, self._sum = 0, 0.0

    @property
    def mean_step(self) -> float:
        """Mean eta_t of the pairs that changed the map; NaN before the first."""
        return self._sum / self.steps if self.steps else float("nan")

    def _stepped(self, steps: int, total: float) -> None:
        self.steps += steps
        self._sum += total

    def _model(self) -> State:
        return super()._model() | {"steps": self.steps, "step_sum": self._sum}

    def _restore_model(self, state: State) -> int:
        self.steps, self._sum = int(state["steps"]), float(state["step_sum"])
        return super()._restore_model(state)
