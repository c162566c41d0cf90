"""The scan in float64 that exact indexes are compared with, and vectors that rounding is hard on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


def scan(names: list[Any], X: Rows, q: NDArray[np.float32], k: int) -> tuple[list[Any], list[float]]:
    """The k nearest by squared distance in float64, equally near ones by name."""
    far = ((X.astype(np.float64) - q.astype(np.float64)) ** 2).sum(axis=1).tolist()
    best = sorted(zip(far, names, strict=True))[:k]
    return [name for _, name in best], [d for d, _ in best]


def utm(rng: np.random.Generator, n: int) -> Rows:
    """Metres east and north in one quarter of a town."""
    return (np.array([5e5, 5.2e6]) + rng.normal(size=(n, 2)) * 300.0).astype(np.float32)


def beside_a_year(rng: np.random.Generator, n: int) -> Rows:
    year = 1990.0 + rng.integers(0, 35, (n, 1))
    return np.concatenate([year, rng.normal(size=(n, 15))], axis=1).astype(np.float32)


def unix_times(rng: np.random.Generator, n: int) -> Rows:
    """Seconds since 1970 within a year, beside features of deviation 1."""
    time = 1.7e9 + rng.uniform(0, 3e7, (n, 1))
    return np.concatenate([time, rng.normal(size=(n, 7))], axis=1).astype(np.float32)


def a_thousand(rng: np.random.Generator, n: int) -> Rows:
    return (1000.0 + rng.normal(size=(n, 64))).astype(np.float32)


def centred(rng: np.random.Generator, n: int) -> Rows:
    return rng.normal(size=(n, 32)).astype(np.float32)


def towns(rng: np.random.Generator, n: int) -> Rows:
    """Two clusters far apart: no centre is near both."""
    place = rng.integers(0, 2, (n, 1)) * 2e6 - 1e6
    return (place + rng.normal(size=(n, 6))).astype(np.float32)


def one_far_away(rng: np.random.Generator, n: int) -> Rows:
    X = rng.normal(size=(n, 12)).astype(np.float32)
    X[n // 2] = 1e12
    return X


def tiny(rng: np.random.Generator, n: int) -> Rows:
    """Squares of these are no float32."""
    return (rng.normal(size=(n, 9)) * 1e-24).astype(np.float32)


def huge(rng: np.random.Generator, n: int) -> Rows:
    return (rng.normal(size=(n, 5)) * 1e30).astype(np.float32)


def few_values(rng: np.random.Generator, n: int) -> Rows:
    """Many items are equally far from a query, also at the cut."""
    return rng.integers(0, 3, (n, 4)).astype(np.float32) + np.float32(70_000.0)


HARD = (utm, beside_a_year, unix_times, a_thousand, centred, towns, one_far_away, tiny, huge, few_values)
