"""The directions of a learned metric's result in which it varies most: what an export of a smaller rank keeps."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner
from kinstream.learners.base.one_modality import SingleModal
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.composite import Composite
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.several_modalities.fusion import Fusion
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import CheckpointError, SettingsError

Matrix = NDArray[np.floating[Any]]
Rows = NDArray[np.float64]

#: Vectors that stand for those that a network has seen, and the seed by which they are drawn.
DRAWN: Final = 2048
SEED: Final = 0


def best_columns(learner: Learner, rank: int) -> Rows:
    """Orthonormal rows (min(rank, k), k): the directions of `transform`, of k columns, in which the metric varies most.

    Of linear maps, features count by their spread, as far as the scaler knows it, and as if they did not depend on each
    other. Mixtures have vectors of the stream in their state, and those decide. OAHU has none: normal
    draws with the spread of each feature decide, the same in every call.

    Parameters
    ----------
    rank : at least 1.

    Raises
    ------
    SettingsError : the learner has no such columns, or remembers too few vectors.
    CheckpointError : nothing has been learned yet.
    """
    with one_blas_thread():
        if isinstance(learner, MultiModal | Fusion):
            return _left(_beside(_blocks(learner)), rank)
        if not isinstance(learner, SingleModal):
            raise SettingsError(f"{learner.algorithm} has no export of a smaller rank")
        if learner.dimension is None:
            raise CheckpointError("nothing has been learned yet")
        if isinstance(learner, Composite):
            known = learner.remembered
            if len(known) <= rank:
                raise SettingsError(
                    f"{learner.algorithm} remembers {len(known)} vectors, too few for a rank of {rank}"
                )
            return _principal(learner.embed_scaled(known), rank)
        if isinstance(learner, OAHU):
            return _principal(learner.transform(_drawn(learner)), rank)
        return _left(learner.map.astype(np.float64) * learner.spread, rank)


def _blocks(learner: MultiModal | Fusion) -> list[Rows]:
    """The matrix (k_i, d_i) of each part of a metric of several modalities, for features of spread 1."""
    if isinstance(learner, Fusion):
        metrics = [metric for metric in learner.learners.values() if isinstance(metric, SingleModal)]
        return [metric.map.astype(np.float64) * metric.spread for metric in metrics]
    if not learner.linear:
        raise SettingsError(f"{learner.algorithm} has no export of a smaller rank")
    return [matrix.astype(np.float64) * learner.spreads[name] for name, matrix in learner.maps.items()]


def _beside(blocks: list[Rows]) -> Rows:
    """Blocks (k_i, d_i) on the diagonal of a matrix (sum k_i, sum d_i)."""
    if not blocks:
        raise CheckpointError("nothing has been learned yet")
    found = np.zeros(np.sum([block.shape for block in blocks], axis=0))
    row = column = 0
    for block in blocks:
        found[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return found


def _drawn(learner: SingleModal) -> Rows:
    """Raw features (n, d) whose scaled ones have the spread that the scaler knows."""
    scaling = learner.affine()
    if scaling is None:
        raise SettingsError(
            f'{learner.algorithm} has no export of a smaller rank without a scaler or unit = "length", which know the '
            "spread of its features"
        )
    shift, factor = scaling
    draws = learner.spread * np.random.default_rng(SEED).normal(size=(DRAWN, learner.dimension or 0))
    return np.asarray(draws / factor + shift)


def _principal(embedded: Matrix, rank: int) -> Rows:
    """The principal directions of vectors (n, k)."""
    wide = embedded.astype(np.float64)
    return _left((wide - wide.mean(axis=0)).T, rank)


def _left(matrix: Rows, rank: int) -> Rows:
    """The left singular vectors of the largest singular values, as rows."""
    left = np.linalg.svd(matrix, full_matrices=False)[0]
    # The sign of a direction is the library's choice: make it ours.
    top = np.take_along_axis(left, np.abs(left).argmax(axis=0)[None], axis=0)
    return np.asarray((left * np.where(top < 0.0, -1.0, 1.0)).T[:rank])
