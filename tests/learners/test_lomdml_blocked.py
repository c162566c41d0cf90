"""LOMDML's blocked way gives the results of the sequential loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.kernels import lomdml_blocked
from kinstream.learners.lomdml import LOMDML
from kinstream.streams.records import ConstraintBlock
from tests.learners.multi import tables

#: Allowed difference of results, of the largest entry.
ROOM = {"float64": 1e-9, "float32": 2e-4}


def block(draw: np.random.Generator, sizes: list[int], m: int, scale: float = 1.0) -> ConstraintBlock:
    """Triplets of which each shares vectors with others."""
    parts = [scale * draw.normal(size=(m + 3, d)) / np.sqrt(d) for d in sizes]
    return tables(parts, np.array([draw.choice(m + 3, 3, replace=False) for _ in range(m)], np.int32))


def both(
    monkeypatch: pytest.MonkeyPatch, blocks: list[ConstraintBlock], dtype: str = "float64", **settings: Any
) -> list[bool]:
    """Learn the blocks in both ways and compare; whether each step of the blocked way was taken as a block."""
    taken: list[bool] = []
    step = lomdml_blocked._step

    def watched(*given: Any) -> bool:
        taken.append(bool(step(*given)))
        return taken[-1]

    monkeypatch.setattr(lomdml_blocked, "_step", watched)
    one, other = (LOMDML(dtype=dtype, kernel=kernel, **settings) for kernel in ("sequential", "blocked"))
    for message in blocks:
        left, right = one.learn(message), other.learn(message)
        for name in ("mistake", "utilised", "clipped", "rejected", "degenerate"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name), name)
        np.testing.assert_allclose(left.loss, right.loss, rtol=ROOM[dtype], atol=ROOM[dtype])
    assert one.weights == other.weights and one.accepted == other.accepted
    for name, W in one.matrices.items():
        top = float(np.abs(W).max())
        np.testing.assert_allclose(other.matrices[name], W, rtol=0, atol=ROOM[dtype] * top)
    return taken


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("own_hinge", [True, False])
@pytest.mark.parametrize("guard", ["clip", "raw"])
@pytest.mark.parametrize("sizes", [[5], [70], [3, 1, 40], [120, 33]])
def test_both_ways_agree(
    monkeypatch: pytest.MonkeyPatch, dtype: str, own_hinge: bool, guard: str, sizes: list[int]
) -> None:
    draw = np.random.default_rng(len(sizes) + sizes[0])
    blocks = [block(draw, sizes, m) for m in (100, 7, 33, 64)]
    taken = both(monkeypatch, blocks, dtype, rank=20, eta=0.02, beta=0.9, own_hinge=own_hinge, guard=guard)
    # The last four of a hundred and the block of seven are too few, and so is one of 33.
    assert taken == 6 * [True]


def test_steps_that_the_guard_cuts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block(np.random.default_rng(1), [30, 8], 96, 2.0)]
    assert all(both(monkeypatch, blocks, rank=10, eta=0.2, margin=0.5))


def test_rows_without_effect_are_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    given = block(np.random.default_rng(2), [30, 8], 96)
    given.tables[1].vectors[given.index[5, 0], 2] = np.nan
    index = given.index.copy()
    index[[10, 40], 1] = index[[10, 40], 2]
    index[20, 1] = index[20, 0]
    # One modality differs in nothing, the other one in something.
    given.tables[0].vectors[:40] = given.tables[0].vectors[0]
    assert all(both(monkeypatch, [replace(given, index=index)], rank=10, eta=0.05, margin=0.3))


def test_a_map_that_may_reach_its_cap_is_learned_sequentially(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block(np.random.default_rng(seed), [30], 64) for seed in range(3)]
    assert not all(both(monkeypatch, blocks, rank=10, eta=0.1, norm_cap=5.6))


@pytest.mark.parametrize("scale", [1e-9, 1e19, 1e30])
def test_numbers_at_the_edge_are_learned_sequentially(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    blocks = [block(np.random.default_rng(seed), [30], 64, scale) for seed in range(2)]
    for guard in ("clip", "raw"):
        both(monkeypatch, blocks, "float32", rank=10, eta=0.1, guard=guard)


def test_large_maps_are_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    def widths(sizes: list[int]) -> list[NDArray[Any]]:
        seen: list[NDArray[Any]] = []
        step = lomdml_blocked._step

        def watched(*given: Any) -> bool:
            seen.append(given[1])
            return bool(step(*given))

        with monkeypatch.context() as patch:
            patch.setattr(lomdml_blocked, "_step", watched)
            LOMDML(rank=50).learn(block(np.random.default_rng(0), sizes, 16))
        return seen

    assert widths([400]) and not widths([64]) and not widths([400, 20])
