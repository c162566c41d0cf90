"""Large margin nearest neighbours over the latest constraints (Weinberger et al. 2005)."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.scaler import WARM_UP
from kinstream.learners.base.validation import positive, whole
from kinstream.learners.baselines.batch import fit_lmnn
from kinstream.learners.baselines.batch_base import BUFFER, Refitted
from kinstream.learners.baselines.chunklets import chunklets, of_size
from kinstream.learners.baselines.metric_learn import require
from kinstream.learners.baselines.window import Pairs

#: Steps of a fit: LMNN gains most in these, and the stream waits for them.
STEPS: Final = 100


class LMNN(Refitted):
    r"""Large margin nearest neighbours, fitted by metric-learn; see `kinstream.learners.baselines.batch.fit_lmnn`.

    LMNN needs classes, but a stream has constraints. So a class is a connected component of the similar pairs in the
    latest constraints; (x, x+) of a triplet is such a pair. Components of n_neighbors vectors or fewer are ignored.
    **Two components count as two classes, even without a dissimilar pair between them**: the buffer must be long enough
    to connect the vectors of a class. One-pass triplets connect every sample with the one before it in its class. With
    random similar pairs, a class of n vectors needs about (n / 2) ln n of them.

    Parameters
    ----------
    n_neighbors : target neighbours of a vector.
    mu : weight of impostors against target neighbours, in (0, 1).
    max_iter : steps of a fit, at most. Every fit starts from the Euclidean metric. After it, the margin is 1.
    buffer : constraints that a fit uses. No fit takes place with fewer than two classes.
    refit_every, dtype, scaler, warm_up : as for `kinstream.learners.baselines.mahalanobis.Mahalanobis`.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range, or metric-learn is not installed.

    Notes
    -----
    O(d^2) for a constraint. A fit takes seconds, and the stream waits: steps of O(d^2) for every pair of vectors that
    is closer than its margin, with as much memory as their differences. Other memory is O(buffer d + d^2); a checkpoint
    holds all of it.

    References
    ----------
    Weinberger, Blitzer, Saul: Distance metric learning for large margin nearest neighbor classification. NIPS 2005.

    Examples
    --------
    Two classes that differ in the first feature only; the second feature is louder, and noise.

    >>> import numpy as np
    >>> from kinstream import LMNN
    >>> draw = np.random.default_rng(7)
    >>> X = np.column_stack([np.repeat([0.0, 1.0], 200) + 0.2 * draw.normal(size=400), 3.0 * draw.normal(size=400)])
    >>> x = np.concatenate([X[:199], X[200:399]])
    >>> similar = np.concatenate([X[1:200], X[201:]])
    >>> dissimilar = np.concatenate([X[200:399], X[:199]])
    >>> model = LMNN(refit_every=200, warm_up=20)
    >>> counts = model.learn_triplets(x, similar, dissimilar).counts()
    >>> bool(np.linalg.norm(model.map[:, 0]) > 5.0 * np.linalg.norm(model.map[:, 1]))
    True
    """

    algorithm: ClassVar[str] = "lmnn/3"

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        mu: float = 0.5,
        max_iter: int = STEPS,
        buffer: int = BUFFER,
        refit_every: int = BUFFER,
        dtype: str = "float64",
        scaler: str | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        super().__init__(buffer=buffer, refit_every=refit_every, dtype=dtype, scaler=scaler, warm_up=warm_up)
        self.n_neighbors = whole("n_neighbors", n_neighbors, 1)
        self.mu = positive("mu", mu, 1.0)
        self.max_iter = whole("max_iter", max_iter, 2)
        require("LMNN")

    def _fit(self, pairs: Pairs) -> NDArray[np.float64] | None:
        labels = chunklets(len(pairs.X), pairs.index[pairs.signs > 0])
        used = of_size(labels, self.n_neighbors + 1)
        return fit_lmnn(
            pairs.X[used],
            labels[used],
            n_neighbors=self.n_neighbors,
            mu=self.mu,
            max_iter=self.max_iter,
        )
