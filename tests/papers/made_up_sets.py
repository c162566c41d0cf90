"""A folder of made-up data sets under the names that the experiments know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Name of a set to its classes and features.
TABLES = {
    "glass": (6, 5),
    "balance": (3, 4),
    "breast": (2, 4),
    "pima": (2, 4),
    "spect": (2, 4),
    "sensorless_2200": (4, 6),
    "soybean": (3, 5),
    "cifar10_gray": (5, 9),
}
MODALITIES = {"mfeat": {"fou": 5, "mor": 3}, "msrc_v1": {"cm": 4, "gist": 6}}
ROWS = 80


def table(seed: int, classes: int, d: int, n: int = ROWS) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes that overlap, in random order."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, n)
    return draw.normal(size=(n, d)) + 2.0 * y[:, None], y


def fill(folder: Path) -> Path:
    """Write all of them."""
    for seed, (name, (classes, d)) in enumerate(TABLES.items()):
        X, y = table(seed, classes, d)
        np.savez(folder / f"{name}.npz", X=X, y=y)
    for seed, (name, sizes) in enumerate(MODALITIES.items()):
        y = np.random.default_rng(seed).integers(0, 4, ROWS)
        parts = {f"X_{part}": table(seed, 4, d)[0] + y[:, None] for part, d in sizes.items()}
        np.savez(folder / f"{name}.npz", **{"y": y, **parts})  # type: ignore[arg-type]
    X, y = table(9, 10, 12, 700)
    np.savez(folder / "mnist.npz", X=X, y=y, is_test=np.arange(700) % 7 == 0)
    return folder
