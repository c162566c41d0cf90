"""The projection of a symmetric matrix on the positive semi-definite ones, by a whole eigendecomposition."""

from __future__ import annotations

import numpy as np

# Imported for its effect: `one_blas_thread` then finds the library of compiled products.
import kinstream.learners.kernels.blas  # noqa: F401
from kinstream.learners.kernels.shared import Matrix
from kinstream.streams.compute.compilation import compiled


@compiled
def project(M: Matrix, pull: Matrix) -> bool:
    """M becomes the nearest positive semi-definite matrix of M - pull, in the Frobenius norm; returns whether that
    changes it.

    Parameters
    ----------
    M : (n, n) symmetric and finite.
    pull : flat, of M's type; empty for none.
    """
    n = len(M)
    moved = M.copy()
    for i in range(n if len(pull) > 0 else 0):
        row = moved[i]
        for j in range(n):
            row[j] -= pull[i * n + j]
    rest = moved.astype(np.float64)
    values, vectors = np.linalg.eigh(rest)
    low = np.searchsorted(values, 0.0)
    if low > 0:
        # By the smaller part of the spectrum: the positive part is summed up, or the negative part is subtracted.
        part = vectors[:, :low] * np.sqrt(-values[:low])
        if low > n // 2:
            part = vectors[:, low:] * np.sqrt(values[low:])
            rest[:] = 0
        if low < n:
            rest += np.dot(part, part.T)
        for i in range(n):
            for j in range(n):
                moved[i, j] = (rest[i, j] + rest[j, i]) / 2.0
    changed = False
    for i in range(n):
        for j in range(n):
            changed |= M[i, j] != moved[i, j]
            M[i, j] = moved[i, j]
    return changed
