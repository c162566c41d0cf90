"""Metrics fitted to a whole data set: the baselines that online learners are measured against.

Each function returns a map M (k, d): the learned squared distance is |M (x - y)|^2. LMNN and ITML are metric-learn's,
everything else here is a few lines of numpy. Work is float64 on one BLAS thread, so the same input gives the same
bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.learners.base.validation import positive, whole
from kinstream.learners.baselines.metric_learn import itml_class, lmnn_class
from kinstream.learners.baselines.sampling import random_pairs, squared_percentiles
from kinstream.learners.baselines.whitening import fit_mahalanobis, fit_rca, labelled, vectors
from kinstream.streams.compute.blas_threads import one_blas_thread

__all__ = ["fit_itml", "fit_itml_of_pairs", "fit_lmnn", "fit_mahalanobis", "fit_rca"]

#: Mean squared distance to target neighbours, in margins, from which LMNN's descent starts.
START: Final = 4.0
#: Largest number of pairs that `fit_itml` draws by default.
MOST_PAIRS: Final = 2_000

Features = NDArray[np.float64]


def fit_lmnn(
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_neighbors: int = 3,
    mu: float = 0.5,
    max_iter: int = 1000,
    tol: float = 1e-3,
) -> Features:
    r"""Large margin nearest neighbours, by metric-learn.

    It minimises (1 - mu) sum d_ij + mu sum [1 + d_ij - d_il]_+ over target neighbours j of i (the nearest of its
    class under Euclidean distance, fixed) and vectors l of other classes, by gradient descent: a step that would
    raise the objective is halved, the next one is 1.01 times as long. The descent starts from the Euclidean metric,
    in the unit in which the mean squared distance to target neighbours is 4, and with a step of that unit: the map's
    scale is learned like its directions, so no scale of the features is too small or too large.

    Parameters
    ----------
    X : (n, d) vectors.
    y : (n,) classes.
    n_neighbors : target neighbours of a vector; every class needs one vector more than that.
    mu : weight of impostors against target neighbours, in (0, 1).
    max_iter : steps at most.
    tol : change of the objective below which the descent ends, after 50 steps at the earliest.

    Returns
    -------
    ndarray
        (d, d) map after which the margin is 1.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range, or metric-learn is not installed.
    ValueError
        Shapes do not fit, X is not finite, there are fewer than two classes, a class is too small, or its vectors
        are all equal.

    Notes
    -----
    A step takes O(d^2) time for every pair that is closer than its margin, and memory for all their differences; if
    classes overlap completely, those are most of the n^2 pairs.

    References
    ----------
    Weinberger, Blitzer, Saul: Distance metric learning for large margin nearest neighbor classification. NIPS 2005.

    Examples
    --------
    >>> draw = np.random.default_rng(3)
    >>> y = draw.integers(0, 2, 60)
    >>> M = fit_lmnn(np.column_stack([y + 0.2 * draw.normal(size=60), 3.0 * draw.normal(size=60)]), y)
    >>> (np.linalg.norm(M, axis=0) / np.linalg.norm(M)).round(1).tolist()
    [1.0, 0.3]
    """
    whole("n_neighbors", n_neighbors, 1)
    positive("mu", mu, 1.0)
    whole("max_iter", max_iter, 2)
    positive("tol", tol)
    rows, labels = labelled(X, y)
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2 or counts.min() <= n_neighbors:
        raise ValueError(f"LMNN needs two classes or more, of at least {n_neighbors + 1} vectors each")
    with one_blas_thread():
        model = lmnn_class()(
            init="identity",
            n_neighbors=n_neighbors,
            max_iter=max_iter,
            regularization=1.0 - mu,
            convergence_tol=tol,
        )
        model.labels_ = np.arange(len(counts))
        targets = model._select_targets(rows, numbers)
        length = float(np.mean((rows[:, None] - rows[targets]) ** 2)) * rows.shape[1]
        if not 0.0 < length < np.inf:
            raise ValueError("vectors that are equal to all neighbours of their class, or too large")
        scale = np.sqrt(START / length)
        model.learn_rate = 1.0 / (len(rows) * n_neighbors * START)
        try:
            model.fit((rows - rows.mean(axis=0)) * scale, numbers)
        except AssertionError as error:
            # metric-learn asserts that sums are numbers.
            raise ValueError("the steps of LMNN left the finite numbers") from error
    return np.asarray(model.components_ * scale, np.float64)


def fit_itml(
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_pairs: int | None = None,
    gamma: float = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-3,
    seed: int = 0,
) -> Features:
    """Information-theoretic metric learning from random pairs of labelled vectors; see `fit_itml_of_pairs`.

    Parameters
    ----------
    X : (n, d) vectors.
    y : (n,) classes.
    n_pairs : pairs to draw, half of them similar; None for 20 times the square of the number of classes, at most
        2,000.
    gamma, max_iter, tol : as for `fit_itml_of_pairs`.
    seed : for the pairs, and for those whose percentiles are the bounds.

    Returns
    -------
    ndarray
        (d, d).

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range, or metric-learn is not installed.
    ValueError
        Shapes do not fit, X is not finite, there are fewer than two classes, or no class has two vectors.

    Examples
    --------
    >>> draw = np.random.default_rng(3)
    >>> y = draw.integers(0, 2, 60)
    >>> M = fit_itml(np.column_stack([y + 0.2 * draw.normal(size=60), 3.0 * draw.normal(size=60)]), y)
    >>> bool(np.linalg.norm(M[:, 0]) > 10.0 * np.linalg.norm(M[:, 1]))
    True
    """
    whole("seed", seed, 0)
    rows, labels = labelled(X, y)
    if n_pairs is None:
        n_pairs = min(20 * len(np.unique(labels)) ** 2, MOST_PAIRS)
    index, signs = random_pairs(labels, whole("n_pairs", n_pairs, 2), seed)
    bounds = squared_percentiles(rows, seed)
    if bounds is None:
        raise ValueError("the vectors are all equal")
    left, right = rows[index.T]
    return fit_itml_of_pairs(left, right, signs, bounds, gamma=gamma, max_iter=max_iter, tol=tol)


def fit_itml_of_pairs(
    left: ArrayLike,
    right: ArrayLike,
    signs: ArrayLike,
    bounds: tuple[float, float],
    *,
    gamma: float = 1.0,
    max_iter: int = 1000,
    tol: float = 1e-3,
) -> Features:
    r"""Information-theoretic metric learning, by metric-learn.

    It finds the A nearest to I in the LogDet divergence under which similar pairs have at most the squared distance u
    and dissimilar ones at least l, up to slack. It uses cyclic projections.

    Parameters
    ----------
    left, right : (m, d) vectors of the pairs. Pairs of equal vectors are left out.
    signs : (m,) +1 similar and -1 dissimilar.
    bounds : (u, l), squared distances; the published choice is their 5th and 95th percentile, see
        `squared_percentiles`. (metric-learn's own are percentiles of distances that are not squared, and not used.)
    gamma : the cost of slack; infinity allows none, and requires constraints that can all hold.
    max_iter : sweeps over all pairs, at most.
    tol : relative change of the dual variables in one sweep at which it ends.

    Returns
    -------
    ndarray
        (d, d), with A = M^T M.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range, or metric-learn is not installed.
    ValueError
        Shapes do not fit, vectors are not finite, no pair is left, or the projections left the finite numbers.

    Notes
    -----
    O(m d^2) per sweep, in Python: 7 microseconds a pair for small d.

    References
    ----------
    Davis, Kulis, Jain, Sra, Dhillon: Information-theoretic metric learning. ICML 2007.
    """
    if gamma != np.inf:
        positive("gamma", gamma)
    whole("max_iter", max_iter, 1)
    positive("tol", tol)
    u, v, s = vectors(left, least=1), vectors(right, least=1), np.asarray(signs)
    if u.shape != v.shape or s.shape != u.shape[:1]:
        raise ValueError(f"pairs of shapes {u.shape} and {v.shape}, with signs of shape {s.shape}")
    kept = (u != v).any(axis=1)
    if not kept.any():
        raise ValueError("no pair has a difference")
    # metric-learn asks `gamma is np.inf`, which another infinity is not.
    model = itml_class()(gamma=np.inf if gamma == np.inf else gamma, max_iter=max_iter, tol=tol)
    pairs = np.stack([u, v], axis=1)[kept]
    with one_blas_thread(), np.errstate(all="ignore"):
        try:
            model._fit(pairs, s[kept], bounds=np.array(bounds, np.float64))
        except (ValueError, np.linalg.LinAlgError) as error:
            raise ValueError(f"the projections of ITML left the finite numbers: {error}") from error
    found = np.asarray(model.components_, np.float64)
    if not np.isfinite(found).all():
        raise ValueError("the projections of ITML left the finite numbers")
    return found
