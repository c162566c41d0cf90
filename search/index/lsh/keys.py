"""Packed keys of all items, as computed from P by one product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.lsh import kernels
from kinstream.search.index.online.metric import Metric
from kinstream.search.index.online.vectors import CHUNK, Slots, VectorSlots, grown
from kinstream.streams.compute.blas_threads import one_blas_thread


class Keys:
    """Keys in slots.

    Attributes
    ----------
    table : (slots, words) uint64; bit j of a key is bit j % 64 of word j // 64.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.table = np.zeros((0, -(-bits // 64)), np.uint64)

    def reserve(self, slots: int) -> None:
        """Make room for that many."""
        if slots > len(self.table):
            self.table = grown(self.table, slots)

    def write(self, slots: Slots, items: VectorSlots, metric: Metric) -> Iterator[tuple[Slots, NDArray[Any]]]:
        """Compute the keys of some slots, in pieces.

        Yields
        ------
        tuple of (m,) and (m, bits)
            Slots of a piece, and their values before the sign, in the items' type and without the thresholds.
        """
        dtype = items.X.dtype
        right = np.ascontiguousarray(metric.P.T, dtype)
        narrow = metric.thresholds.astype(dtype)
        unsure, unsure_thresholds = (np.asarray(bound, dtype) for bound in doubt(metric, dtype))
        huge = float(np.finfo(dtype).max) / 4.0
        for first in range(0, len(slots), CHUNK):
            piece = slots[first : first + CHUNK]
            with one_blas_thread():
                S = items.rows(piece) @ right
            kernels.sign_bits(
                S,
                piece,
                items.X,
                items.norms,
                metric.P,
                metric.thresholds,
                narrow,
                unsure,
                unsure_thresholds,
                huge,
                self.table,
            )
            yield piece, S

    def bit(self, slots: Slots, j: int) -> NDArray[np.bool_]:
        """Bit j of some keys."""
        return np.asarray((self.table[slots, j // 64] >> np.uint64(j % 64)) & np.uint64(1) != 0)

    def of_query(self, q: NDArray[np.float64], metric: Metric) -> NDArray[np.uint64]:
        """The key (words,) of one vector (d,), without storing it."""
        ones = np.zeros(64 * self.table.shape[1], np.bool_)
        np.greater_equal(metric.P @ q + metric.thresholds, 0.0, out=ones[: self.bits])
        return np.asarray(np.packbits(ones, bitorder="little").view("<u8").astype(np.uint64, copy=False))


def doubt(metric: Metric, dtype: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of the rounding errors of P_j x + thresholds_j in that type: first * |x| + second, for each bit."""
    unit = (metric.d + 16) * float(np.finfo(dtype).eps)
    lengths = np.sqrt(np.einsum("ij,ij->i", metric.P, metric.P))
    return unit * lengths, unit * np.abs(metric.thresholds) + float(np.finfo(dtype).tiny)
