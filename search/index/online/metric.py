"""The metric of an index: a map that changes by steps of low rank, and its product with random hyperplanes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.online.base import Counters
from kinstream.streams.compute.blas_threads import one_blas_thread

Matrix = NDArray[np.float64]

#: Steps are kept beside the map, and added to it when their ranks come to more than this.
HELD: Final = 64
#: P is recomputed from R and G after this many updates.
EVERY: Final = 1_000
DRIFT: Final = 1e-8
_PARALLEL: Final = 1e-12


class Metric:
    """The map x -> G x + o, with A = G'G, and P = R G for random hyperplanes R.

    G = base + U V, where the held steps U (k, p) and V (p, d) are added to the base from time to time.

    Parameters
    ----------
    d : features.
    bits : rows of R. R is drawn from the seed once for each number of rows k of G.
    hold : steps are added to the base when their ranks come to more than this.

    Attributes
    ----------
    P : (bits, d), and thresholds : (bits,), R o. Bit j of x is 1 where P_j x + thresholds_j >= 0.
    recomputed : times that P was recomputed.
    path : (bits,) sum of |change of P_j| over all changes so far; and path_thresholds : (bits,) that of thresholds.
    version : changes whenever P does.
    base_version : changes whenever the base does, unless the caller of `settle` states that it knows of it.
    """

    _base: Matrix
    _offset: Matrix
    _U: Matrix
    _V: Matrix
    _back: Matrix
    _narrow: NDArray[Any] | None
    _size: float

    def __init__(self, d: int, bits: int, seed: int, stats: Counters, hold: int = HELD) -> None:
        self._hold = hold
        self.bits, self.seed, self.stats = bits, seed, stats
        self.path, self.path_thresholds = np.zeros(bits), np.zeros(bits)
        self.version = self.base_version = self.recomputed = self._since = 0
        self._narrowed: tuple[int, NDArray[Any]] | None = None
        self._matrix(np.eye(d), np.zeros(d))
        self.P, self.thresholds = self._R @ self._base, np.zeros(bits)

    @property
    def d(self) -> int:
        return int(self._base.shape[1])

    @property
    def k(self) -> int:
        return int(self._base.shape[0])

    @property
    def G(self) -> Matrix:
        """The map (k, d), a copy."""
        return np.asarray(self._base + self._U @ self._V)

    @property
    def A(self) -> Matrix:
        """G'G (d, d)."""
        G = self.G
        return np.asarray(G.T @ G)

    @property
    def R(self) -> Matrix:
        """The hyperplanes (bits, k)."""
        return self._R

    @property
    def offset(self) -> Matrix:
        """(k,)."""
        return self._offset

    @property
    def size(self) -> float:
        """A bound of G's Frobenius norm, and of those of the parts that `apply` adds up."""
        return float(self._size + np.linalg.norm(self._U) * np.linalg.norm(self._V))

    @property
    def held(self) -> int:
        """Sum of the ranks of the steps not yet in the base."""
        return len(self._V)

    def remap(self, matrix: Matrix, offset: Matrix) -> None:
        """A new map; held steps are forgotten."""
        self._matrix(matrix, offset)
        self._recompute()
        self.stats.updates += 1

    def step(self, U: Matrix, V: Matrix) -> None:
        """G <- G + U V[:, :d], and where V has another column v, o <- o + U v.

        O(bits (k + d) r), for any number of items.
        """
        moved = self._R @ U
        change = moved @ V[:, : self.d]
        self.P += change
        # The rounding of the sum moves a row, too, by at most this much.
        self.path += _lengths(change) + np.finfo(np.float64).eps * _lengths(self.P)
        if V.shape[1] > self.d:
            shift = moved @ V[:, self.d]
            self.thresholds += shift
            self.path_thresholds += np.abs(shift) + np.finfo(np.float64).eps * np.abs(self.thresholds)
            self._offset = self._offset + U @ V[:, self.d]
        self._U = np.concatenate([self._U, U], axis=1)
        self._V = np.concatenate([self._V, V[:, : self.d]])
        if self.held > self._hold:
            self.settle()
            self.base_version += 1
        self.version += 1
        self._since += len(V)
        self.stats.updates += len(V)
        if self._since >= EVERY:
            self._audit()

    def _audit(self) -> None:
        """Recompute P, and record the error of the old one."""
        old = self.P
        self._recompute()
        error = float(np.linalg.norm(self.P - old) / max(np.linalg.norm(self.P), np.finfo(np.float64).tiny))
        self.stats.drift = max(self.stats.drift, error)
        self.stats.drift_faults += not error < DRIFT

    def settle(self) -> None:
        """Add the held steps to the base, after their `change` was recorded."""
        self._base = self.G
        self._narrow, self._size = None, float(np.linalg.norm(self._base))
        self._forget()

    def apply(self, Z: NDArray[Any]) -> NDArray[Any]:
        """G z for each row, in the type of Z: (n, d) to (n, k)."""
        base = self._base
        if Z.dtype != np.float64:
            if self._narrow is None or self._narrow.dtype != Z.dtype:
                self._narrow = self._base.astype(Z.dtype)
            base = self._narrow
        found = Z @ base.T
        if self.held:
            found += (Z @ self._V.T.astype(Z.dtype)) @ self._U.T.astype(Z.dtype)
        return np.asarray(found)

    def narrowed(self, dtype: Any) -> NDArray[Any]:
        """P in that type, kept until P changes."""
        kept = self._narrowed
        if kept is None or kept[0] != self.version or kept[1].dtype != dtype:
            self._narrowed = kept = (self.version, self.P.astype(dtype))
        return kept[1]

    def pull(self, Y: Matrix) -> Matrix:
        """G'y for each row: (n, k) to (n, d)."""
        return np.asarray(Y @ self._base + (Y @ self._U) @ self._V)

    def change(self) -> tuple[Matrix, Matrix]:
        """The change of A = G'G by the held steps, as Q C Q'.

        Returns
        -------
        tuple of (d, p) and (p, p)
            Q has orthonormal columns and C is symmetric. p is the sum of the held ranks for steps like those of LEGO,
            whose G'U lies in the span of V', and at most twice that for others.
        """
        done = self._back.shape[1]
        if done < self.held:
            self._back = np.concatenate([self._back, self._base.T @ self._U[:, done:]], axis=1)
        Q, _ = np.linalg.qr(self._V.T)
        rest = self._back - Q @ (Q.T @ self._back)
        if np.linalg.norm(rest) > _PARALLEL * np.linalg.norm(self._back):
            Q, _ = np.linalg.qr(np.concatenate([self._V.T, self._back], axis=1))
        v, b = Q.T @ self._V.T, Q.T @ self._back
        cross = b @ v.T
        return Q, cross + cross.T + v @ (self._U.T @ self._U) @ v.T

    def _matrix(self, matrix: Matrix, offset: Matrix) -> None:
        k = len(matrix)
        if self.base_version == 0 or k != self.k:
            # A generator of its own for each number of rows, so that R does not depend on earlier metrics.
            self._R = np.random.Generator(np.random.Philox([self.seed, k])).normal(size=(self.bits, k))
        self._base = np.array(matrix, np.float64)
        self._narrow, self._size = None, float(np.linalg.norm(self._base))
        self.base_version += 1
        self._offset = np.array(offset, np.float64)
        self._forget()

    def _forget(self) -> None:
        self._U, self._V = np.empty((self.k, 0)), np.empty((0, self.d))
        self._back = np.empty((self.d, 0))

    def _recompute(self) -> None:
        with one_blas_thread():
            P, thresholds = self._R @ self.G, self._R @ self._offset
        if P.shape == self.P.shape:
            self.path += _lengths(P - self.P) + np.finfo(np.float64).eps * _lengths(P)
            self.path_thresholds += np.abs(thresholds - self.thresholds)
        self.P, self.thresholds = P, thresholds
        self._since = 0
        self.version += 1
        self.recomputed += 1


def _lengths(rows: NDArray[Any]) -> Matrix:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
