"""The multi-modal learners over mfeat: microseconds a triplet, against their equations as a plain numpy loop.

The vectors of a triplet are drawn at random, whatever their classes, and the margin is so large that every one opens
the gate; LOMDML takes the step in every modality. Features are scaled to [0, 1], as in the paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import numpy_forms as forms
from benchmarks.blocks import constraint_block
from benchmarks.data import arrays
from benchmarks.figures import Figure
from kinstream.learners.registry import create
from kinstream.learners.several_modalities.lomdml import orthogonal

#: mfeat's modalities and their features.
MODALITIES: Final = {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}
BETA: Final = 0.99
GATE: Final = 1e6
AGGRESSIVENESS: Final = 0.1
RANK: Final = 50
ETA: Final = 1e-3
#: How many times faster than the numpy loop OMDML is to be, and LOMDML up to `NARROW` features and above.
OMDML: Final = 3.0
LOMDML: Final = (10.0, 5.0)
NARROW: Final = 64

#: Learners that no plain loop stands beside.
OTHERS: Final[dict[str, dict[str, Any]]] = {
    "omks": {"warm_up": 64, "unit": "published"},
    "omdl-lr-like": {"warm_up": 64, "unit": "published"},
    "fusion": {"base": "opml", "how": "uniform", "unit": "published"},
}

Parts = dict[str, NDArray[np.float32]]
Loop = Callable[[list[NDArray[Any]], list[NDArray[Any]], list[NDArray[Any]]], int]


def modalities() -> Parts:
    """mfeat's tables; numbers drawn at random of the same sizes where it is not there."""
    found = arrays("mfeat")
    parts = {}
    for i, (name, d) in enumerate(MODALITIES.items()):
        X = np.random.default_rng(i).normal(size=(2_000, d)) if found is None else found[f"X_{name}"]
        X = X.astype(np.float64) - X.min(axis=0)
        top = X.max(axis=0)
        parts[name] = (X / np.where(top > 0, top, 1)).astype(np.float32)
    return parts


def measure(
    kind: str, settings: dict[str, Any], parts: Parts, m: int, tries: int, loop: Loop
) -> tuple[float, float, float]:
    """Seconds a triplet of the learner and of the loop over the same m triplets, and the share that changed it."""
    draw = np.random.default_rng(0)
    index = np.array([draw.choice(2_000, 3, replace=False) for _ in range(m)], np.int32)
    used, at = np.unique(index, return_inverse=True)
    block = constraint_block({name: X[used] for name, X in parts.items()}, at.reshape(m, 3).astype(np.int32))
    compiled, plain, active = np.inf, np.inf, 0
    for _ in range(tries):
        learner = create(kind, unit="published", **settings)
        # Its first maps are made, and its code is compiled, by a triplet that cannot be learned from.
        learner.learn(constraint_block(parts, np.zeros((1, 3), np.int32)))
        begun = time.thread_time()
        active = learner.learn(block).counts().utilised
        compiled = min(compiled, time.thread_time() - begun)
    tables = [X.astype(np.float64) for X in parts.values()]
    a = [X[index[:, 0]] - X[index[:, 1]] for X in tables]
    b = [X[index[:, 0]] - X[index[:, 2]] for X in tables]
    for _ in range(max(1, tries - 1)):
        maps = [
            np.eye(X.shape[1]) if kind == "omdml" else orthogonal(min(RANK, X.shape[1]), X.shape[1], (0, i))
            for i, X in enumerate(tables)
        ]
        begun = time.thread_time()
        loop(maps, a, b)
        plain = min(plain, time.thread_time() - begun)
    return compiled / m, plain / m, active / m


def figures(quick: bool) -> list[Figure]:
    """OMDML over all six modalities; LOMDML over all, and over each alone."""
    parts = modalities()
    tries = 1 if quick else 3
    found: list[Figure] = []

    def report(
        label: str, kind: str, used: Parts, m: int, settings: dict[str, Any], loop: Loop, least: float
    ) -> None:
        compiled, plain, active = measure(kind, settings, used, m, tries, loop)
        facts = {"numpy": plain, "compiled": compiled, "constraints": m, "active": active}
        found.append(
            Figure("learners", f"{label}: a constraint", 1e6 * compiled, "microseconds", facts=facts)
        )
        found.append(Figure("learners", f"{label}: over numpy", plain / compiled, "times", at_least=least))

    settings: dict[str, Any] = {
        "beta": BETA,
        "aggressiveness": AGGRESSIVENESS,
        "margin": GATE,
        "psd_every": 1,
    }
    report(
        "omdml, mfeat's six",
        "omdml",
        parts,
        40 if quick else 150,
        settings,
        lambda maps, a, b: forms.omdml(maps, a, b, BETA, AGGRESSIVENESS, GATE),
        OMDML,
    )
    settings = {"rank": RANK, "eta": ETA, "beta": BETA, "margin": GATE, "own_hinge": False}
    several: list[tuple[str, Parts]] = [("six", parts), *((name, {name: X}) for name, X in parts.items())]
    for label, used in several:
        narrow = sum(X.shape[1] for X in used.values()) <= NARROW
        report(
            f"lomdml, mfeat's {label}",
            "lomdml",
            used,
            250 if quick else 2_000,
            settings,
            lambda maps, a, b: forms.lomdml(maps, a, b, BETA, ETA, GATE, own=False),
            LOMDML[0 if narrow else 1],
        )
    for kind, chosen in OTHERS.items():
        seconds = alone(kind, chosen, parts, 100 if quick else 1_000)
        label = f"{kind}{', ' + chosen['how'] if 'how' in chosen else ''}, mfeat's six: a constraint"
        found.append(Figure("learners", label, 1e6 * seconds, "microseconds"))
    return found


def alone(kind: str, settings: dict[str, Any], parts: Parts, m: int) -> float:
    """Seconds a triplet of a learner that has seen as many before."""
    draw = np.random.default_rng(1)
    index = np.array([draw.choice(2_000, 3, replace=False) for _ in range(2 * m)], np.int32)
    learner = create(kind, **settings)
    learner.learn(constraint_block(parts, index[:m]))
    begun = time.thread_time()
    learner.learn(constraint_block(parts, index[m:]))
    return (time.thread_time() - begun) / m
