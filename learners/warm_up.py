"""Compile every kernel now, so that no record waits for it."""

from __future__ import annotations

import numpy as np

from learners.kernels.blocked import SMALLEST
from learners.linear import DTYPES
from learners.opml import COPML


def warm_up() -> None:
    """Run every kernel once in both types: seconds the first time, then a load from numba's cache."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(3, SMALLEST, 4)).astype(np.float32)
    for dtype in DTYPES:
        for kernel in ("sequential", "blocked"):
            learner = COPML(dtype=dtype, kernel=kernel)
            learner.learn_pairs(points[0], points[1])
            learner.learn_triplets(points[0], points[1], points[2])
