"""Compiles what held-out events need."""

from __future__ import annotations

import numpy as np

from kinstream.learners.held_out.unlearned_metrics import Scales
from kinstream.learners.kernels.ensembles.hash_choice import chosen


def compile_held_out() -> None:
    """Compile the choice of events, and the distances of un-learned metrics, in advance."""
    rows = np.zeros((1, 1), np.int32)
    chosen(
        np.zeros((1, 2), np.uint32), rows[:, 0], np.zeros(2, np.uint32), np.uint64(0), np.empty(1, np.bool_)
    )
    places = np.zeros(1, np.int64)
    Scales().distances(np.zeros((1, 1)), places, places, np.empty((5, 1)))
