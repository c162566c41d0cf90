"""Learners of several modalities take no step along what rounding leaves of a difference of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.several_modalities.lomdml import LOMDML
from kinstream.learners.several_modalities.omdml import OMDML
from kinstream.testing.learners import digest

MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "omdml": lambda: OMDML(0.9, 1.0, 1e9, unit="published"),
    "omdml, projecting later": lambda: OMDML(0.9, 1.0, 1e9, psd_every=3, unit="published"),
    "lomdml": lambda: LOMDML(2, 0.01, 0.9, 1e9, own_hinge=False, unit="published"),
}
Rows = NDArray[np.float64]


def cases(near: str, d: int, scale: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Anchor, positive and negative of which two or all are equal to 14 digits, and the same with equal ones."""
    draw = np.random.default_rng(seed)
    x, other = scale * (1.0 + draw.uniform(size=(2, 1, d)))
    other = -other
    one, two = (x * (1.0 + 1e-14 * draw.choice([-3.0, -1.0, 2.0], size=(1, d))) for _ in range(2))
    assert (one != x).any() and (two != x).any()
    return {
        "similar": ([x, one, other], [x, x, other]),
        "dissimilar": ([x, other, one], [x, other, x]),
        "all": ([x, one, two], [x, x, x]),
        "others": ([other, x, one], [other, x, x]),
    }[near]


def triplet(learner: Any, shape: list[Rows], colour: Rows) -> Any:
    return learner.learn_triplets(*({"shape": s, "colour": c} for s, c in zip(shape, colour, strict=True)))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("near", ["similar", "dissimilar", "all", "others"])
@given(d=st.sampled_from([1, 2, 5, 17]), scale=st.sampled_from([1e-3, 1.0, 1e3]), seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_vectors_that_are_next_to_equal_count_as_equal(
    kind: str, near: str, d: int, scale: float, seed: int
) -> None:
    shape, equal = cases(near, d, scale, seed)
    # Ranked wrong, so that it steps.
    v = np.random.default_rng(seed).normal(size=(1, 4))
    colour = np.stack([0.0 * v, 2.0 * v, 0.5 * v[:, ::-1]])
    learner, wanted = (MAKERS[kind]() for _ in range(2))
    found, exact = triplet(learner, shape, colour), triplet(wanted, equal, colour)
    assert digest(learner.state()) == digest(wanted.state())
    for name in ("mistake", "loss", "utilised", "degenerate"):
        assert getattr(found, name)[0] == getattr(exact, name)[0]
    assert found.utilised[0] and not found.degenerate[0]
    # The other modality steps, and this one only where a direction is left.
    start = MAKERS[kind]()
    start.learn_triplets(
        *({"shape": s, "colour": c} for s, c in zip(3 * [equal[0]], 3 * [colour[0]], strict=True))
    )
    assert (learner.matrices["colour"] != start.matrices["colour"]).any()
    moved = (learner.matrices["shape"] != start.matrices["shape"]).any()
    if near in ("all", "others"):
        assert not moved


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("near", ["all", "others"])
def test_nothing_but_rounding_is_degenerate(kind: str, near: str) -> None:
    shape, _ = cases(near, 3, 1e3, 1)
    learner = MAKERS[kind]()
    triplet(learner, cases("similar", 3, 1e3, 2)[1], np.random.default_rng(3).normal(size=(3, 1, 3)))
    before = digest({name: v for name, v in learner.state().items() if name != "accepted"})
    outcomes = triplet(learner, shape, np.stack(shape))
    assert outcomes.degenerate[0] and outcomes.mistake[0] == 1 and not outcomes.utilised[0]
    assert digest({name: v for name, v in learner.state().items() if name != "accepted"}) == before


def test_a_difference_beyond_rounding_is_one() -> None:
    x = np.full((1, 2), 1e3)
    shape = [x, x + 1e-7, x + np.array([0.0, 3e-7])]
    learner = MAKERS["omdml"]()
    outcomes = learner.learn_triplets(*({"shape": s} for s in shape))
    assert not outcomes.degenerate[0]
