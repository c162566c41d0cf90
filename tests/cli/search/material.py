"""A small material: functions whose names say which, and vectors that one can work out by hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kinstream.cli.demo.search.material import Material
from kinstream.evaluation.queries.signals import Signals
from kinstream.evaluation.queries.sources import Corpus
from kinstream.producers.simulated.documentation import Documented

FUNCTIONS = 24
D = 6


class Words:
    """An embedder that knows the digits 0 to 5: the vector counts them."""

    def __call__(self, texts: Iterable[str]) -> NDArray[np.float32]:
        found = np.array([[text.count(str(one)) for one in range(D)] for text in texts], np.float32)
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        return found


def material(seed: int = 0) -> Material:
    """Queries next to their items, so that most answers are found; rows 16 to 23 are never sent."""
    draw = np.random.default_rng(seed)
    items = draw.normal(size=(FUNCTIONS, D)).astype(np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    queries = items + 0.3 * draw.normal(size=items.shape).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    functions = tuple(
        Documented(f"package.function_{row}", f"what function {row} of this package is for", "")
        for row in range(FUNCTIONS)
    )
    texts = [one.query for one in functions], [f"item of function {row}" for row in range(FUNCTIONS)]
    signals = Signals(Corpus(queries, items, texts))
    return Material(functions, queries, items, np.arange(16), np.arange(16, FUNCTIONS), Words(), signals)
