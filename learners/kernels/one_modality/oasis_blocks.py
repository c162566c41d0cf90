"""The exact blocked update of OASIS: a few matrix products for a block instead of a pass over W for a triplet.

Inside a block W_t = W_0 + sum tau_i x_i v_i^T (`oasis.recursion`), so W itself is used only twice: for W_0^T x of the
block's distinct anchors, and for the sum at the end. Nothing is approximated; results equal the sequential loop's to
rounding.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Imported for its effect: `one_blas_thread` then finds the library of compiled products.
import kinstream.learners.kernels.blas  # noqa: F401
from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.one_modality import oasis
from kinstream.learners.kernels.shared import Flags, Matrix, Report
from kinstream.streams.compute.blas_threads import one_blas_thread

#: Triplets of one blocked step: few below dimension `WIDE`, where the scalar work dominates.
NARROW_BLOCK: Final = 64
WIDE_BLOCK: Final = 128
WIDE: Final = 500
#: Below this many triplets the fixed cost of a blocked step is not worth it.
SMALLEST: Final = 16
#: Below this share of non-zero entries the sequential loop is faster.
SPARSE: Final = 0.25
#: From this dimension on "auto" uses blocks.
CROSSOVER: Final = {np.dtype(np.float32): 96, np.dtype(np.float64): 80}


def triplets(
    W: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    aggressiveness: float,
    limit: float,
    bound: float,
    full: bool,
    report: Report,
    judged: Judged,
) -> float:
    """As `kinstream.learners.kernels.one_modality.oasis.triplets`, in steps counted from the block's first triplet.

    Unless `full`, steps whose anchors are mostly zeros use the sequential loop, which skips zeros.
    """
    length = WIDE_BLOCK if len(W) >= WIDE else NARROW_BLOCK
    with one_blas_thread():
        for start in range(0, len(index), length):
            rows = slice(start, start + length)
            stop = min(start + length, len(index))
            arguments = (W, X, index, usable, aggressiveness, limit, bound)
            raised = -1.0
            if stop - start >= SMALLEST:
                raised = _step(*arguments, full, report, judged, rows)
            bound = raised if raised >= 0.0 else oasis.triplets(*arguments, report, judged, start, stop)
    return bound


def _step(
    W: Matrix,
    X: Matrix,
    all_index: NDArray[np.int32],
    all_usable: Flags,
    aggressiveness: float,
    limit: float,
    bound: float,
    full: bool,
    all_report: Report,
    judged: Judged,
    chosen: slice,
) -> float:
    """One blocked step over some rows; -1, with W untouched, if it must be done sequentially."""
    index, usable = all_index[chosen], all_usable[chosen]
    report: Any = tuple(array[chosen] for array in all_report)
    A, U, V, G, K, change = _work(len(W), len(index), W.dtype)
    rows, local = np.empty(len(index), np.int32), np.empty(len(index), np.int32)
    squares, tau = np.empty((len(index), 2)), np.empty(len(index))
    found, entries = oasis.gather(X, index, usable, V, rows, local, squares, report[4])
    if found == 0 or (not full and entries < SPARSE * found * len(W)):
        return -1.0
    A, U, G = A[:found], U[:found], G[:found, :found]
    with np.errstate(all="ignore"):
        np.take(X, rows[:found], axis=0, out=A, mode="clip")
        np.matmul(A, W, out=U)
        np.matmul(A, A.T, out=G)
        np.matmul(V, V.T, out=K)
        raised = -1.0
        for known in (bound, -1.0):
            if raised < 0.0:
                # The earlier bound only grows; a refusal may be due to that.
                top = known if known >= 0.0 else float(max(W.max(), -W.min()))
                raised = oasis.recursion(
                    U,
                    V,
                    G,
                    K,
                    local,
                    squares,
                    usable,
                    aggressiveness,
                    limit,
                    top,
                    tau,
                    report,
                    judged,
                    chosen.start,
                )
        if raised >= 0.0 and len(judged[0]):
            stop = chosen.start + len(index)
            oasis.beyond(W, X, all_index, all_usable, judged, chosen.start, stop, A, U, V, local, tau)
        if raised < 0.0 or not report[1].any():
            return raised
        oasis.collect(V, local, tau, U)
        if not report[1].all():
            active = np.unique(local[report[1]])
            A, U = A[active], U[active]
        np.matmul(A.T, U, out=change)
        W += change
    return raised


_kept = threading.local()


def _work(d: int, m: int, dtype: np.dtype[Any]) -> tuple[Matrix, ...]:
    """Anchors, their products, directions (m, d), the Gram matrices (m, m), and the change of W (d, d).

    New memory pages cost as much as a small product, so every thread keeps the arrays of its last shape.
    """
    key = (d, m, dtype)
    if getattr(_kept, "key", None) != key:
        shapes = [(m, d)] * 3 + [(m, m)] * 2 + [(d, d)]
        _kept.key, _kept.arrays = key, tuple(np.empty(shape, dtype) for shape in shapes)
    arrays: tuple[Matrix, ...] = _kept.arrays
    return arrays
