"""What the default learner costs: processor time for a triplet, one-pass builder included, and for a first transform.

Rows of twenty classes with much noise; none comes again, so that every row is judged as often as ever. The first half
warms up and compiles.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from benchmarks.figures import Figure
from kinstream.learners.sklearn import MetricLearner

CLASSES: Final = 20
NOISE: Final = 1.5
CHUNK: Final = 250
#: Rows, and microseconds that are asked for, by dimension.
CASES: Final = {64: (12_000, 150.0), 784: (6_000, 600.0), 1_536: (5_000, 1_000.0)}
#: Milliseconds that the first transform after a change may take.
FIRST: Final = 50.0


def figures(quick: bool) -> list[Figure]:
    """Microseconds a triplet and milliseconds of a first transform, by dimension."""
    return [figure for d in CASES for figure in _measured(d, quick)]


def _measured(d: int, quick: bool) -> list[Figure]:
    rows, allowed = CASES[d]
    rows = rows // 4 if quick else rows
    draw = np.random.default_rng(d)
    y = draw.integers(0, CLASSES, rows)
    X = draw.normal(size=(CLASSES, d))[y] + NOISE * draw.normal(size=(rows, d))
    model = MetricLearner("mixture", seed=1, block_rows=CHUNK)
    spent, learned = 0.0, 0
    for start in range(0, rows, CHUNK):
        part = slice(start, start + CHUNK)
        before, begun = model.n_constraints_ if start else 0, time.process_time()
        model.partial_fit(X[part], y[part], classes=np.arange(CLASSES))
        if start >= rows // 2:
            spent += time.process_time() - begun
            learned += model.n_constraints_ - before
    begun = time.process_time()
    model.transform(X[:2])
    first = time.process_time() - begun
    return [
        Figure(
            "mixture", f"d={d}: a triplet, with its builder", 1e6 * spent / learned, "us", at_most=allowed
        ),
        Figure("mixture", f"d={d}: the first transform after a change", 1e3 * first, "ms", at_most=FIRST),
    ]
