"""LDA and NCA, fitted to all training rows at once, for comparison with online learners."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.experiment.contenders import BATCH_ROWS
from kinstream.streams.errors import SettingsError

Features = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


class Fitted:
    """A linear map M (k, d) as a metric: |M (x - y)|^2."""

    def __init__(self, matrix: Features) -> None:
        self.map = np.asarray(matrix, np.float64)

    def scale(self, X: Features) -> Features:
        """The features (n, d) themselves: they were scaled before."""
        return np.asarray(X, np.float64)

    def transform(self, X: Features) -> Features:
        """(n, k) for features (n, d)."""
        return self.scale(X) @ self.map.T

    def distance(self, X: Features, Y: Features) -> Features:
        """Squared distances (n,) of the rows of two tables (n, d)."""
        moved = self.transform(self.scale(X) - self.scale(Y))
        return np.asarray(np.einsum("ij,ij->i", moved, moved))


def fitted(kind: str, X: Features, y: Labels, seed: int) -> Fitted:
    """Fit a batch learner.

    Parameters
    ----------
    kind : "lda" or "nca" of scikit-learn. NCA takes `BATCH_ROWS` random rows at most.
    X, y : (n, d) scaled features and (n,) classes. Rows of a class with a single row are left out.
    seed : of the choice of rows and of NCA.

    Raises
    ------
    SettingsError : fewer than two classes are left, or the rows cannot be fitted.
    """
    rows = np.arange(len(y))
    if kind != "lda":
        rows = np.random.default_rng([seed, 3_141]).permutation(len(y))[:BATCH_ROWS]
    sizes = np.bincount(y[rows])
    rows = rows[sizes[y[rows]] > 1]
    sizes = sizes[sizes > 1]
    if len(sizes) < 2:
        raise SettingsError("a batch learner needs two classes or more, of two training rows each")
    wide, labels = np.asarray(X[rows], np.float64), y[rows]
    try:
        if kind == "lda":
            from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

            model = LinearDiscriminantAnalysis().fit(wide, labels)
            return Fitted(model.scalings_[:, : model._max_components].T)
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        return Fitted(NeighborhoodComponentsAnalysis(random_state=seed).fit(wide, labels).components_)
    except (ValueError, np.linalg.LinAlgError) as error:
        raise SettingsError(f"cannot be fitted: {error}") from error
