"""The learners with kernels end where their transcriptions end; both state their model by what it measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.learners import published_unit
from tests.learners.transcriptions.omdl_lr import OMDLLRLike
from tests.learners.transcriptions.omks import OMKS, Kernel
from tests.learners.transcriptions.parts import Report

CLOSE = 1e-6
SIZES = {"colour": 3, "edges": 5}

Row = dict[str, NDArray[np.float64]]


def triplets(seed: int, m: int) -> list[tuple[Row, Row, Row]]:
    """Triplets of float32 values, some with equal vectors."""
    draw = np.random.default_rng(seed)
    made = []
    for t in range(m):
        rows: list[Row] = [
            {name: draw.uniform(size=d).astype(np.float32).astype(float) for name, d in SIZES.items()}
            for _ in range(3)
        ]
        if t % 15 == 7:
            rows[2] = rows[1]
        made.append((rows[0], rows[1], rows[2]))
    return made


def learned(learner: Any, rows: tuple[Row, ...]) -> Any:
    """Outcomes of one triplet."""
    return learner.learn_triplets(*({name: x[None] for name, x in row.items()} for row in rows))


def same(outcomes: Any, wanted: Report) -> None:
    assert outcomes.mistake[0] == int(bool(wanted["mistake"]))
    assert outcomes.utilised[0] == wanted["utilised"]
    assert not outcomes.rejected[0]
    assert outcomes.loss[0] == pytest.approx(wanted["loss"], rel=1e-9, abs=1e-9 * wanted["size"])


def gaussian(name: str, bandwidth: float) -> Kernel:
    return lambda p, q: float(np.exp(-((p[name] - q[name]) ** 2).sum() / (2.0 * bandwidth**2)))


def linear(name: str) -> Kernel:
    return lambda p, q: float(p[name] @ q[name])


# Where the cap makes sums of tau equal, which of the smallest is dropped is nobody's rule.
@pytest.mark.parametrize(
    ("aggressiveness", "budget", "drop"),
    [(0.1, 200, "oldest"), (0.1, 4, "oldest"), (100.0, 4, "oldest"), (100.0, 4, "smallest")],
)
@pytest.mark.parametrize("kernels", [("linear",), ("rbf",), ("linear", "rbf")])
def test_omks(kernels: tuple[str, ...], aggressiveness: float, budget: int, drop: str) -> None:
    made = [
        linear(name) if kernel == "linear" else gaussian(name, 0.7) for name in SIZES for kernel in kernels
    ]
    reference = OMKS(made, 0.8, aggressiveness, budget, drop)
    learner: Any = published_unit.create(
        "omks",
        kernels=kernels,
        budget=budget,
        drop=drop,
        beta=0.8,
        aggressiveness=aggressiveness,
        bandwidth=0.7,
    )
    for x, positive, negative in triplets(1, 40):
        support, theta = list(reference.support), reference.theta
        wanted = reference.triplet(x, positive, negative)
        if wanted["edge"] < CLOSE:
            reference.support, reference.theta = support, theta
            continue
        same(learned(learner, (x, positive, negative)), wanted)
        tables = [{name: row[name][None] for name in SIZES} for row in (negative, x)]
        wanted_similarity = reference.similarity(negative, x)
        assert learner.similarity(*tables)[0] == pytest.approx(wanted_similarity, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("smoothness", [0.0, 0.01])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_omdl_lr_like(margin: float, smoothness: float) -> None:
    rows = triplets(2, 60)
    landmarks = {name: np.array([row[name] for triplet in rows[:4] for row in triplet]) for name in SIZES}
    reference = OMDLLRLike(landmarks, landmarks, 6, 3, 0.9, 0.1, smoothness, 0.5, margin)
    learner: Any = published_unit.create(
        "omdl-lr-like",
        rank=6,
        aggressiveness=0.1,
        smoothness=smoothness,
        eta=0.5,
        beta=0.9,
        margin=margin,
        neighbours=3,
        warm_up=12,
    )
    for warm in rows[:4]:
        assert not learned(learner, warm).utilised[0]
    for x, positive, negative in rows[4:]:
        matrices, theta = dict(reference.learner.matrices), reference.learner.theta
        wanted = reference.triplet(x, positive, negative)
        if wanted["edge"] < CLOSE:
            reference.learner.matrices, reference.learner.theta = matrices, theta
            continue
        same(learned(learner, (x, positive, negative)), wanted)
        tables = [{name: row[name][None] for name in SIZES} for row in (negative, x)]
        squared = reference.distance(negative, x)
        assert learner.distance(*tables)[0] == pytest.approx(squared, rel=1e-7, abs=1e-9)
