"""Relevant components analysis of the latest constraints (Shental et al. 2002)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.scaler import WARM_UP
from kinstream.learners.baselines.batch_base import BUFFER, Refitted
from kinstream.learners.baselines.chunklets import chunklets, of_size
from kinstream.learners.baselines.whitening import fit_rca
from kinstream.learners.baselines.window import Pairs


class RCA(Refitted):
    r"""The map C^{-1/2}, with C the covariance of vectors around the means of their chunklets.

    Chunklets are the connected components of the similar pairs in the latest constraints; of a triplet, (x, x+) is
    such a pair. Dissimilar pairs are scored, but a fit does not use them. See
    `kinstream.learners.baselines.whitening.fit_rca`.

    Parameters
    ----------
    buffer : constraints that a fit uses. A fit needs at least d more vectors in chunklets than chunklets; otherwise C
        lacks rank.
    refit_every, dtype, scaler, warm_up : as for `kinstream.learners.baselines.mahalanobis.Mahalanobis`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range.

    Notes
    -----
    Cost and memory are those of `kinstream.learners.baselines.mahalanobis.Mahalanobis`.

    References
    ----------
    Shental, Hertz, Weinshall, Pavel: Adjustment learning and relevant component analysis. ECCV 2002.

    Examples
    --------
    Similar vectors differ in the second feature by much, and in the first by little.

    >>> import numpy as np
    >>> from kinstream import RCA
    >>> draw = np.random.default_rng(7)
    >>> x, other = draw.normal(size=(2, 900, 2)) * 10.0
    >>> model = RCA(refit_every=500)
    >>> counts = model.learn_triplets(x, x + draw.normal(size=x.shape) * (0.1, 10.0), other).counts()
    >>> counts.utilised, np.abs(model.map).round(1).tolist()
    (1, [[20.3, 0.0], [0.0, 0.2]])
    """

    algorithm: ClassVar[str] = "rca/3"

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
        labels = chunklets(len(pairs.X), pairs.index[pairs.signs > 0])
        used = of_size(labels, 2)
        rank = np.count_nonzero(used) - len(np.unique(labels[used]))
        return fit_rca(pairs.X[used], labels[used]) if rank >= pairs.X.shape[1] else None
