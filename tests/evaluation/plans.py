"""Small experiments that tests of the engine run."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinstream.evaluation.experiment.data import LabelledRows, of_arrays
from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.experiment.plan import Contender, Plan, grid

ONE_PASS = Built("one-pass", block_rows=16)
PAIRS = Built("random-pairs", {"per_sample": 2}, limit=60, passes=4, block_rows=16)


def blobs(name: str = "blobs", n: int = 90, d: int = 4, seed: int = 0) -> LabelledRows:
    """Three classes that overlap."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, n)
    return of_arrays(name, draw.normal(size=(n, d)) + labels[:, None], labels)


def contenders() -> tuple[Contender, ...]:
    """One that learns nothing, one with a grid, one of pairs."""
    return (
        Contender("euclidean", "euclidean", ONE_PASS, {"warm_up": 8}, unlearned=True),
        Contender("opml", "opml", ONE_PASS, grid=grid({"gamma": [1e-3, 1e-1]})),
        Contender("lego", "lego", PAIRS, {"y_similar": 1.0, "y_dissimilar": 9.0}),
    )


def plan(**changes: Any) -> Plan:
    given: dict[str, Any] = {"name": "test", "contenders": contenders(), "splits": 3}
    return Plan(**(given | changes))
