"""Maps that are the inverse root of a covariance: Mahalanobis distance and RCA, for a whole data set."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.streams.compute.blas_threads import one_blas_thread

#: Ridge of a covariance, as a share of its mean diagonal entry.
RIDGE: Final = 1e-6

Features = NDArray[np.float64]


def fit_mahalanobis(X: ArrayLike) -> Features:
    r"""The map of A = (Sigma + eps I)^{-1}, with Sigma the sample covariance and eps = 10^-6 tr(Sigma) / d.

    Parameters
    ----------
    X : (n, d) vectors, two at least.

    Returns
    -------
    ndarray
        (d, d) the symmetric square root of A. O(n d^2 + d^3).

    Raises
    ------
    ValueError
        X is not (n, d), not finite, or all its rows are equal.

    Examples
    --------
    >>> fit_mahalanobis([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]]).round(3).tolist()
    [[0.866, 0.0], [0.0, 0.433]]
    """
    rows = vectors(X, least=2)
    with one_blas_thread():
        Z = rows - rows.mean(axis=0)
        return _whitening(Z.T @ Z / (len(rows) - 1))


def fit_rca(X: ArrayLike, y: ArrayLike) -> Features:
    r"""Relevant components analysis: the map C^{-1/2}, with C the covariance within chunklets.

    C = 1/N sum_j sum_{x in chunklet j} (x - m_j)(x - m_j)^T over the N vectors in chunklets of two and more, with
    10^-6 tr(C) / d added to its diagonal. After the map the vectors of chunklets have covariance I around their
    means.

    Parameters
    ----------
    X : (n, d) vectors.
    y : (n,) chunklet, or class, of each; -1 for none.

    Returns
    -------
    ndarray
        (d, d), symmetric. O(n d^2 + d^3).

    Raises
    ------
    ValueError
        Shapes do not fit, X is not finite, or no chunklet has two different vectors.

    Notes
    -----
    Dissimilar pairs are not used. C has full rank only if N less the number of chunklets is at least d; in other
    directions the ridge bounds the map.

    References
    ----------
    Shental, Hertz, Weinshall, Pavel: Adjustment learning and relevant component analysis. ECCV 2002. Confirmed
    against metric-learn's implementation, which has no ridge.

    Examples
    --------
    >>> fit_rca([[0.0, 0.0], [2.0, 0.0], [5.0, 3.0], [5.0, 7.0]], [0, 0, 1, 1]).round(3).tolist()
    [[1.414, 0.0], [0.0, 0.707]]
    """
    rows, labels = labelled(X, y)
    rows, labels = rows[labels != -1], labels[labels != -1]
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    rows, numbers = rows[counts[numbers] > 1], numbers[counts[numbers] > 1]
    if len(rows) == 0:
        raise ValueError("no chunklet has two vectors")
    with one_blas_thread():
        sums = np.zeros((len(counts), rows.shape[1]))
        np.add.at(sums, numbers, rows)
        Z = rows - (sums / counts[:, None])[numbers]
        return _whitening(Z.T @ Z / len(rows))


def vectors(X: ArrayLike, least: int) -> Features:
    """X (n, d) as float64, if it is that: finite, d > 0 and n at least `least`; ValueError otherwise."""
    found = np.ascontiguousarray(X, np.float64)
    if found.ndim != 2 or len(found) < least or found.shape[1] == 0:
        raise ValueError(f"expected {least} or more vectors as an array (n, d), got shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError("vectors hold values that are not finite")
    return found


def labelled(X: ArrayLike, y: ArrayLike) -> tuple[Features, NDArray[Any]]:
    """X (n, d) as from `vectors`, n at least 2, and its labels (n,); ValueError where they do not fit."""
    found, labels = vectors(X, least=2), np.asarray(y)
    if labels.shape != (len(found),):
        raise ValueError(f"{len(found)} vectors, and labels of shape {labels.shape}")
    return found, labels


def _whitening(C: Features) -> Features:
    """(C + eps I)^{-1/2}, eps = 10^-6 tr(C) / d."""
    e, V = np.linalg.eigh((C + C.T) / 2.0)
    ridge = RIDGE * float(np.trace(C)) / len(C)
    if not (np.isfinite(ridge) and ridge > 0.0):
        raise ValueError("vectors that are all equal, or too large, have no covariance to invert")
    return np.asarray((V / np.sqrt(np.maximum(e, 0.0) + ridge)) @ V.T)
