"""The exact blocked update of OPML: a few matrix products for a block instead of two passes a triplet.

Inside a block the map is L_t = L_0 + V' S' Z (`opml.recursion`), so L itself is used only twice: for V = Z L_0' at the
beginning, and for the sum at the end. Nothing is approximated; results equal the sequential loop's to rounding, and a
block that would lose too many digits uses the sequential loop.

The triplets of a stream share vectors: one-pass construction has one new vector per triplet. Products then run over the
block's distinct vectors, about half as many as the differences, and differences are taken of the results.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.events import Judged
from kinstream.learners.kernels.one_modality import opml
from kinstream.learners.kernels.shared import Flags, Matrix, Report
from kinstream.learners.kernels.spans import PIECE, last_event
from kinstream.streams.compute.blas_threads import one_blas_thread

#: Triplets of one blocked step: few below dimension `WIDE`, where the scalar work dominates.
NARROW_BLOCK: Final = 32
WIDE_BLOCK: Final = 64
WIDE: Final = 500
#: Below this many triplets the fixed cost of a blocked step is not worth it.
SMALLEST: Final = 16
#: From this dimension on "auto" uses blocks; measured with `python -m benchmarks.kernels`.
CROSSOVER: Final = {np.dtype(np.float32): 144, np.dtype(np.float64): 120}
#: Products run over distinct vectors if there are at most that many per triplet, which has 2 differences...
SHARED: Final = 1.6
#: ...and if they are within this many lengths of each triplet's longer difference (one digit of float32).
SPREAD: Final = {np.dtype(np.float32): 1e1, np.dtype(np.float64): 1e4}
#: Accepted loss of digits (see `recursion`): three of float32's seven, six of float64's sixteen.
WORST: Final = {np.dtype(np.float32): 1e3, np.dtype(np.float64): 1e6}


def triplets(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: NDArray[np.float64],
    gamma: float,
    guard: int,
    limit: float,
    bound: float,
    report: Report,
    judged: Judged,
) -> float:
    """As `kinstream.learners.kernels.one_modality.opml.triplets`, in steps counted from the block's first triplet."""
    length = WIDE_BLOCK if len(T) >= WIDE else NARROW_BLOCK
    with one_blas_thread():
        for start in range(0, len(index), length):
            rows = slice(start, start + length)
            stop = min(start + length, len(index))
            arguments = (index, usable, scale, gamma, guard)
            if stop - start >= SMALLEST and _step(T, X, *arguments, report, judged, rows):
                bound = -1.0
            else:
                bound = opml.triplets(T, X, *arguments, limit, bound, report, judged, start, stop)
    return bound


def _step(
    T: Matrix,
    X: Matrix,
    all_index: NDArray[np.int32],
    all_usable: Flags,
    all_scale: NDArray[np.float64],
    gamma: float,
    guard: int,
    all_report: Report,
    judged: Judged,
    rows: slice,
) -> bool:
    """One blocked step over some rows; False, with T untouched, if it must be done sequentially."""
    index, usable, scale = all_index[rows], all_usable[rows], all_scale[rows]
    report: Any = tuple(array[rows] for array in all_report)
    Z, V, SV, Y, LY, G, K, S, candidate = _work(len(T), 2 * len(index), T.dtype)
    opml.gather(X, index, usable, scale, Z, report[4])
    with np.errstate(all="ignore"):
        np.matmul(Z, Z.T, out=G)
        local = np.empty_like(index)
        found = _points(X, index, usable, scale, G, local, Y)
        if found > 0:
            Y, LY = Y[:found], LY[:found]
            np.matmul(Y, T, out=LY)
            opml.spread(LY, local, V)
        else:
            np.matmul(Z, T, out=V)
        np.matmul(V, V.T, out=K)
        S[:] = 0
        count = opml.recursion(G, K, usable, gamma, guard, WORST[T.dtype], S, report)
        if count >= 0 and judged[0][rows].any():
            _judge(usable, judged, rows, G, K, S, count)
            _beyond(T, X, all_index, all_usable, all_scale, judged, rows, Z, V, S)
        if count <= 0:
            return count == 0
        if 2 * count < (found or len(Z)):
            active = np.repeat(report[1], 2)
            np.matmul(Z[active].T, S[np.ix_(active, active)] @ V[active], out=candidate)
        else:
            np.matmul(S, V, out=SV)
            if found > 0:
                opml.collect(SV, local, LY)
                np.matmul(Y.T, LY, out=candidate)
            else:
                np.matmul(Z.T, SV, out=candidate)
        candidate += T
    top = max(candidate.max(), -candidate.min())
    if not np.isfinite(top) or (guard == opml.CLIP and top > opml.CEILING):
        return False
    T[:] = candidate
    return True


def _judge(usable: Flags, judged: Judged, rows: slice, G: Matrix, K: Matrix, S: Matrix, count: int) -> None:
    """Measure the rows of a step that share an event with an earlier one, under the map at the event's start.

    Of a difference z that is |L_t z|^2 = u' K u, u = e + S' G e over the rows before t alone (`opml.recursion`).
    """
    ends, before, _ = judged
    squared = np.diagonal(K).astype(np.float64)
    began = np.maximum.accumulate(np.where(ends[rows] > 0, np.arange(len(usable)), 0))
    if count:
        known = np.arange(len(G)) < 2 * np.repeat(began, 2)[:, None]
        C = np.where(known, G, G.dtype.type(0)) @ S
        squared += np.einsum("ij,ij->i", C, 2 * K + C @ K)
    inside = np.arange(len(usable)) + rows.start
    several = (ends[began + rows.start] > inside) & (inside > began + rows.start)
    found = np.where(usable, squared[1::2] - squared[::2], np.nan)
    before[inside[several]] = found[several]


def _beyond(
    T: Matrix,
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: NDArray[np.float64],
    judged: Judged,
    rows: slice,
    Z: Matrix,
    V: Matrix,
    S: Matrix,
) -> None:
    """Measure the triplets after a step whose event began in it, under the map at the event's start."""
    ends, before, _ = judged
    stop = rows.start + len(Z) // 2
    began = last_event(ends, rows.start, stop)
    end, known = int(ends[began]), 2 * (began - rows.start)
    for start in range(stop, end, PIECE):
        some = slice(start, min(start + PIECE, end))
        count = some.stop - some.start
        z = np.empty((2 * count, len(T)), T.dtype)
        opml.gather(X, index[some], usable[some], scale[some], z, np.empty(count, np.bool_))
        pairs = index[some, :2]
        shared = bool(
            usable[some].all() and (pairs == pairs[0]).all() and scale[some.start] == scale[some.stop - 1]
        )
        if shared:
            # In a list all triplets have the difference of the query and the clicked item.
            z = np.concatenate([z[:1], z[1::2]])
        mapped = z @ T
        if known:
            mapped += ((z @ Z[:known].T) @ S[:known, :known]) @ V[:known]
        squared = np.einsum("ij,ij->i", mapped, mapped).astype(np.float64)
        found = squared[1:] - squared[0] if shared else squared[1::2] - squared[::2]
        before[some] = np.where(usable[some], found, np.nan)


def _points(
    X: Matrix,
    index: NDArray[np.int32],
    usable: Flags,
    scale: NDArray[np.float64],
    G: Matrix,
    local: NDArray[np.int32],
    Y: Matrix,
) -> int:
    """Fill Y with the block's distinct vectors, less the first of them; returns 0 if differences are better."""
    rows = np.empty(index.size, np.int32)
    found = opml.distinct(index, usable, rows, local)
    if not 0 < found <= SHARED * len(index) or scale[0] != scale[-1]:
        return 0
    points = Y[:found]
    np.take(X, rows[:found], axis=0, out=points)
    points -= X[rows[0]]
    if scale[0] != 1.0:
        points *= X.dtype.type(scale[0])
    lengths = np.diagonal(G).reshape(-1, 2).max(axis=1)[usable]
    reach = np.einsum("ij,ij->i", points, points).max()
    # Written so that a number that is not finite gives false.
    return found if reach <= SPREAD[X.dtype] ** 2 * lengths.min() else 0


_kept = threading.local()


def _work(d: int, m: int, dtype: np.dtype[Any]) -> tuple[Matrix, ...]:
    """Z, V, S V, Y, L Y (m, d), the Gram matrices and S (m, m), and the next map (d, d).

    New memory pages cost as much as a small product, so every thread keeps the arrays of its last shape.
    """
    key = (d, m, dtype)
    if getattr(_kept, "key", None) != key:
        shapes = [(m, d)] * 5 + [(m, m)] * 3 + [(d, d)]
        _kept.key, _kept.arrays = key, tuple(np.empty(shape, dtype) for shape in shapes)
    arrays: tuple[Matrix, ...] = _kept.arrays
    return arrays
