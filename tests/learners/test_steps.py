"""The change of a map over a block is the product of two thin factors, and those of all blocks add up to the map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.learners.registry import names, offers
from kinstream.learners.steps import KINDS, Stepped, as_stepped, step_of
from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import block, pair_blocks, triplet_blocks
from tests.learners.published_unit import create

#: Largest relative difference after 2,000 constraints.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
#: What the learners of these tests begin with, by kind.
SETTINGS: dict[str, dict[str, Any]] = {
    "lego": {"eta": 1e-4, "y_similar": 8.0, "y_dissimilar": 60.0},
    "itml-online": {"eta": 1e-4, "y_similar": 8.0, "y_dissimilar": 60.0},
    "opml": {"gamma": 1e-3},
    "copml": {"gamma1": 1e-3, "gamma2": 1e-3},
}


def learner(kind: str, **others: Any) -> Any:
    return create(kind, **(SETTINGS[kind] | others))


def follow(core: Stepped, blocks: list[ConstraintBlock], bits: int = 16) -> tuple[Any, Any, Any, list[int]]:
    """Learn, and keep a map and its product with R (bits, d) by the steps alone."""
    core.learn(blocks[0])
    G = core.map
    R = np.random.default_rng(5).normal(size=(bits, len(G)))
    P = R @ G
    ranks = []
    for one in blocks[1:]:
        before = core.map
        step = step_of(core, before, one, core.learn(one))
        assert step.U.dtype == step.V.dtype == G.dtype
        G = G + step.U @ step.V
        P = P + (R @ step.U) @ step.V
        ranks.append(step.U.shape[1])
    return G, P, R, ranks


def off(found: Any, wanted: Any) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def _blocks(kind: str, d: int, m: int) -> list[ConstraintBlock]:
    make = triplet_blocks if kind in ("opml", "copml") else pair_blocks
    return make(3, d, messages=2_000 // m + 1, m=m)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "m", "most"), [(33, 4, 8), (64, 20, 40), (17, 40, 17)])
def test_two_thousand_constraints_add_up_to_the_map(kind: str, dtype: str, d: int, m: int, most: int) -> None:
    core = learner(kind, dtype=dtype)
    G, P, R, ranks = follow(core, _blocks(kind, d, m))
    assert off(core.map, np.eye(d)) > 0.05, "it has learned"
    assert off(G, core.map) < TOLERANCE[dtype]
    assert off(P, R @ core.map) < TOLERANCE[dtype]
    assert 0 < max(ranks) <= most


@pytest.mark.parametrize("kernel", ["sequential", "blocked"])
@pytest.mark.parametrize("kind", ["lego", "itml-online"])
def test_both_ways_of_computing_a_block_have_the_same_directions(kind: str, kernel: str) -> None:
    core = learner(kind, kernel=kernel)
    G, _, _, ranks = follow(core, _blocks(kind, 150, 25))
    assert off(G, core.map) < 1e-12 and max(ranks) <= 25


def test_a_learner_of_pairs_that_is_given_triplets_moves_along_both_differences() -> None:
    core = learner("lego")
    G, _, _, ranks = follow(core, triplet_blocks(4, 64, messages=30, m=10))
    assert off(G, core.map) < 1e-12
    assert 10 < max(ranks) <= 20


def test_scaled_features_are_those_of_the_map() -> None:
    blocks = pair_blocks(6, 40, messages=40, m=8, scale=100.0)
    core = learner("lego", scaler="zscore", warm_up=20)
    assert not core.settled
    while not core.settled:
        core.learn(blocks.pop(0))
    G, _, _, ranks = follow(core, blocks)
    assert off(G, core.map) < 1e-12 and 0 < max(ranks) <= 8


def test_a_guard_that_changes_the_whole_map_sends_it_whole() -> None:
    blocks = triplet_blocks(7, 20, messages=8, m=3)
    blocks += triplet_blocks(8, 20, messages=8, m=3, scale=5.0)
    core = learner("opml", guard="normalise")
    G, _, _, ranks = follow(core, blocks)
    assert off(G, core.map) < 1e-12
    assert 20 in ranks and min(ranks) <= 6


def test_a_block_that_changes_nothing_has_no_directions() -> None:
    core = learner("lego")
    X = np.random.default_rng(1).normal(size=(4, 5))
    core.learn(block(X, np.array([[0, 1]]), Kind.PAIR))
    before = core.map
    same = block(X, np.array([[2, 2]]), Kind.PAIR)
    step = step_of(core, before, same, core.learn(same))
    assert step.U.shape == (5, 0) and step.V.shape == (0, 5)


def test_the_kinds_are_those_whose_classes_say_so() -> None:
    found = [kind for kind in names() if offers(kind, "directions")]
    assert tuple(found) == KINDS
    assert all(as_stepped(learner(kind)) is not None for kind in KINDS)
    assert as_stepped(create("oasis")) is None
