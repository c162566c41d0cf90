"""Mahalanobis distance of the latest vectors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.scaler import WARM_UP
from kinstream.learners.baselines.batch_base import BUFFER, Refitted
from kinstream.learners.baselines.whitening import fit_mahalanobis
from kinstream.learners.baselines.window import Pairs


class Mahalanobis(Refitted):
    r"""Distance under the inverse covariance of the vectors, A = (Sigma + eps I)^{-1}, eps = 10^-6 tr(Sigma) / d.

    Sigma is the sample covariance of the distinct vectors in the latest constraints. The fit ignores which vectors are
    similar: this baseline whitens, and learns nothing about similarity.

    Parameters
    ----------
    buffer : constraints that a fit uses; they should name several times as many distinct vectors as there
        are features. The first fit needs more than d of them.
    refit_every : constraints from one fit to the next; 0 fits only once, when the buffer is full. For which constraint
        counts as utilised, see `kinstream.learners.baselines.batch_base.Refitted`.
    dtype : "float64" or "float32", of the map and the vectors kept; a fit is float64.
    scaler : None or "none", "zscore", "unit", "minmax"; of the model, see `kinstream.learners.base.scaler`.
    warm_up : distinct vectors before the scaler and the first threshold are frozen.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    O(d^2) for a constraint, O(buffer d^2 + d^3) for a fit; memory O(buffer d + d^2), all of it in checkpoints.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream import Mahalanobis
    >>> draw = np.random.default_rng(7)
    >>> X = draw.normal(size=(3, 900, 2)) * (1.0, 10.0)
    >>> model = Mahalanobis(refit_every=500)
    >>> counts = model.learn_triplets(*X).counts()
    >>> counts.utilised, np.abs(model.map).round(1).tolist()
    (1, [[1.0, 0.0], [0.0, 0.1]])
    """

    algorithm: ClassVar[str] = "mahalanobis/3"

    def __init__(
        self,
        *,
        buffer: int = BUFFER,
        refit_every: int = BUFFER,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(buffer=buffer, refit_every=refit_every, dtype=dtype, scaler=scaler, warm_up=warm_up)

    def _fit(self, pairs: Pairs) -> NDArray[np.float64] | None:
        return fit_mahalanobis(pairs.X) if len(pairs.X) > pairs.X.shape[1] else None
