"""Information-theoretic metric learning over the latest constraints (Davis et al. 2007)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.scaler import WARM_UP
from kinstream.learners.base.validation import positive, whole
from kinstream.learners.baselines.batch import fit_itml_of_pairs
from kinstream.learners.baselines.batch_base import BUFFER, Refitted
from kinstream.learners.baselines.metric_learn import require
from kinstream.learners.baselines.window import Pairs

#: Sweeps of a fit; the stream waits for them.
SWEEPS: Final = 100


class ITML(Refitted):
    r"""Information-theoretic metric learning, fitted by metric-learn.

    Similar pairs should have at most the squared distance u and dissimilar ones at least l, with slack; a triplet is
    one pair of each. This is the batch form of LEGO and ITML-Online: the bounds are their targets, and (u + l) / 2
    remains the threshold of pairs.

    Parameters
    ----------
    gamma : the cost of slack, above 0; infinity allows none.
    max_iter : sweeps of a fit over its pairs, at most. Every fit starts from the Euclidean metric.
    y_similar, y_dissimilar : u and l, squared distances of scaled features; by default, the 5th and 95th percentile
        over the warm-up, see `kinstream.learners.base.targets`.
    buffer, refit_every, dtype, scaler, warm_up : as for `kinstream.learners.baselines.mahalanobis.Mahalanobis`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range, or metric-learn is not installed.

    Notes
    -----
    O(d^2) for a constraint. A fit takes seconds, and the stream waits: O(d^2) for every pair of the buffer in every
    sweep, in Python. Memory is O(buffer d + d^2); a checkpoint holds all of it.

    References
    ----------
    Davis, Kulis, Jain, Sra, Dhillon: Information-theoretic metric learning. ICML 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import ITML
    >>> draw = np.random.default_rng(7)
    >>> x, other = draw.normal(size=(2, 500, 2))
    >>> model = ITML(refit_every=300, warm_up=50)
    >>> counts = model.learn_triplets(x, x + draw.normal(size=x.shape) * (0.1, 1.0), other).counts()
    >>> counts.utilised, bool(np.linalg.norm(model.map[:, 0]) > 2.0 * np.linalg.norm(model.map[:, 1]))
    (1, True)
    """

    algorithm: ClassVar[str] = "itml/3"

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        max_iter: int = SWEEPS,
        y_similar: float | None = None,
        y_dissimilar: float | None = None,
        buffer: int = BUFFER,
        refit_every: int = BUFFER,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(
            buffer=buffer,
            refit_every=refit_every,
            dtype=dtype,
            scaler=scaler,
            warm_up=warm_up,
            y_similar=y_similar,
            y_dissimilar=y_dissimilar,
        )
        self.gamma = float(gamma) if gamma == np.inf else positive("gamma", gamma)
        self.max_iter = whole("max_iter", max_iter, 1)
        require("ITML")

    def _fit(self, pairs: Pairs) -> NDArray[np.float64] | None:
        left, right = pairs.X[pairs.index.T]
        bounds = (self._pair_targets.similar, self._pair_targets.dissimilar)
        return fit_itml_of_pairs(left, right, pairs.signs, bounds, gamma=self.gamma, max_iter=self.max_iter)

    def _threshold_of(self, mapped: NDArray[np.float64]) -> float:
        return np.nan
