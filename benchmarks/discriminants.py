"""`softmax` and `lda`: microseconds a triplet, against their equations as a numpy loop over the same triplets.

Triplets of labelled rows, because both learn what their stream has in common: most cost is that of a model at work.
Both forms take all of the stream, first maps and decompositions included, which are the same library calls in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import numpy_forms as forms
from benchmarks.blocks import constraint_block
from benchmarks.figures import Figure
from kinstream.learners.registry import create
from kinstream.streams.records.values import DEFAULT_MODALITY

#: Triplets by dimension.
SIZES: Final = {21: 10_000, 64: 10_000, 310: 2_000, 784: 1_000}
BLOCK: Final = 256
#: How many times faster than numpy each is to be.
REQUIRED: Final = 8.0
FORMS: Final[dict[str, tuple[Callable[..., tuple[Any, int]], dict[str, Any]]]] = {
    "lda": (forms.lda, {"dtype": "float64", "subspace": 784}),
    "softmax": (forms.softmax, {"dtype": "float32", "groups": "none"}),
}

Array = NDArray[Any]


def labelled(d: int, m: int) -> tuple[Array, NDArray[np.int32]]:
    """Rows (m / 2, d) of ten classes, and m triplets of them."""
    draw = np.random.default_rng(d)
    y = draw.integers(0, 10, m // 2)
    X = 4.0 / np.sqrt(d) * draw.normal(size=(10, d))[y] + draw.normal(size=(len(y), d))
    same = [np.flatnonzero(y == c) for c in range(10)]
    others = [np.flatnonzero(y != c) for c in range(10)]
    anchors = draw.integers(0, len(y), m)
    near = [draw.choice(same[y[a]]) for a in anchors]
    far = [draw.choice(others[y[a]]) for a in anchors]
    return X.astype(np.float32), np.column_stack([anchors, near, far]).astype(np.int32)


def measure(kind: str, d: int, m: int, tries: int) -> tuple[float, float, tuple[int, int]]:
    """Seconds a triplet of the learner and of the loop, and the mistakes of both: they learn the same."""
    form, arguments = FORMS[kind]
    X, index = labelled(d, m)
    blocks = []
    for start in range(0, m, BLOCK):
        used, at = np.unique(index[start : start + BLOCK], return_inverse=True)
        blocks.append(constraint_block({DEFAULT_MODALITY: X[used]}, at.reshape(-1, 3)))
    seconds, wrong = np.inf, 0
    for _ in range(tries + 1):
        learner = create(kind, **arguments)
        begun = time.thread_time()
        counts = [learner.learn(block).counts() for block in blocks]
        seconds = min(seconds, time.thread_time() - begun)
        wrong = sum(found.mistakes for found in counts)
    table = X.astype(arguments["dtype"])
    begun = time.thread_time()
    _, theirs = form(table, index)
    return seconds / m, (time.thread_time() - begun) / m, (wrong, theirs)


def figures(quick: bool) -> list[Figure]:
    """Both learners at all sizes."""
    found: list[Figure] = []
    for kind in FORMS:
        for d, m in SIZES.items():
            seconds, plain, mistakes = measure(kind, d, m // 5 if quick else m, 1 if quick else 3)
            label = f"{kind} of labelled rows, d = {d}"
            facts = {"numpy": plain, "compiled": seconds, "mistakes": mistakes}
            found.append(
                Figure("learners", f"{label}: a constraint", 1e6 * seconds, "microseconds", facts=facts)
            )
            found.append(
                Figure("learners", f"{label}: over numpy", plain / seconds, "times", at_least=REQUIRED)
            )
    return found
