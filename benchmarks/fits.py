"""One whole fit of the batch metrics: what a stream of small steps stands against."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import arrays
from benchmarks.figures import Figure
from kinstream.learners.baselines.batch import fit_itml, fit_lmnn, fit_rca

#: Vectors of a fit, LMNN's steps and ITML's sweeps at most, and pairs for ITML.
VECTORS: Final = 1_000
STEPS: Final = 100
PAIRS: Final = 500

Features = NDArray[np.float64]
Fit = Callable[[Features, NDArray[Any]], Features]

FITS: Final[dict[str, tuple[str, Fit]]] = {
    "rca": ("", fit_rca),
    "lmnn": (f", {STEPS} steps", lambda X, y: fit_lmnn(X, y, max_iter=STEPS)),
    "itml": (f", {PAIRS} pairs", lambda X, y: fit_itml(X, y, n_pairs=PAIRS, max_iter=STEPS)),
}


def _digits() -> dict[str, NDArray[Any]] | None:
    """The digits of scikit-learn, d = 64; it comes with metric-learn."""
    if find_spec("sklearn") is None:
        return None
    from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

    found = load_digits()
    return {"X": found.data, "y": found.target}


def figures(quick: bool) -> list[Figure]:
    """Every fit over z-scored vectors of waveform (d = 21) and of digits (d = 64)."""
    found: list[Figure] = []
    for data, table in (("waveform", arrays("waveform")), ("digits", _digits())):
        if table is None:
            continue
        order = np.random.default_rng(0).permutation(len(table["y"]))[: VECTORS // 4 if quick else VECTORS]
        X, y = table["X"][order].astype(np.float64), table["y"][order]
        width = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(width > 0, width, 1)
        for name, (words, fit) in FITS.items():
            if name != "rca" and find_spec("metric_learn") is None:
                continue
            fit(X[:100], y[:100])
            begun = time.thread_time()
            fit(X, y)
            seconds = time.thread_time() - begun
            label = f"{name}, one fit of {data} ({len(X)} vectors, d = {X.shape[1]}{words})"
            found.append(Figure("learners", label, 1e3 * seconds, "ms"))
    return found
