"""Both ways of computing OPML agree, and neither depends on the machine's threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import (  # type: ignore[import-untyped, unused-ignore]
    threadpool_info,
    threadpool_limits,
)

from kinstream.learners.kernels.one_modality import opml, opml_blocks
from kinstream.learners.warm_up import warm_up
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.testing.blocks import block, triplet_blocks
from tests.learners.published_unit import OPML


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 10.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 2e-3)])
@pytest.mark.parametrize("d", [1, 2, 13, 64, 200])
def test_blocked_equals_sequential(d: int, dtype: str, tolerance: float, scale: float) -> None:
    ways = [OPML(dtype=dtype, kernel=kernel) for kernel in ("sequential", "blocked")]
    for message in triplet_blocks(9, d, messages=3, m=150, scale=scale):
        one, other = (learner.learn(message) for learner in ways)
        assert np.mean(one.mistake != other.mistake) <= 0.01
        np.testing.assert_array_equal(one.degenerate, other.degenerate)
    found, wanted = ways[1].L, ways[0].L
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-3)])
@pytest.mark.parametrize("d", [3, 200, 600])
def test_shared_vectors_save_work_and_change_nothing(
    d: int, dtype: str, tolerance: float, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triplets as one-pass construction chains them, near the origin and far off, one vector not finite."""
    found: list[int] = []
    points = opml_blocks._points

    def watched(*arguments: Any) -> int:
        found.append(points(*arguments))
        return found[-1]

    draw = np.random.default_rng(d)
    X = offset + draw.normal(size=(130, d))
    X[77] = np.nan
    first = np.arange(128)
    message = block(X, np.column_stack([first + 2, first + 1, first]))
    monkeypatch.setattr(opml_blocks, "_points", watched)
    learners = [OPML(dtype=dtype, kernel="blocked"), OPML(dtype=dtype, kernel="sequential")]
    outcomes = [learner.learn(message) for learner in learners]
    assert len(found) == (2 if d >= opml_blocks.WIDE else 4)
    assert min(found) > 0
    assert outcomes[0].counts().rejected == 3
    assert outcomes[0].counts().utilised > 30
    assert np.mean(outcomes[0].mistake != outcomes[1].mistake) <= 0.01
    wanted = learners[1].L
    np.testing.assert_allclose(learners[0].L, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def test_shared_vectors_are_left_where_they_would_cost_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two far clusters, every triplet inside one of them."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(60, 5))
    X[30:] += 1e5
    index = np.array([(t + 2, t + 1, t) for start in (0, 30) for t in range(start, start + 28)])
    maps = []
    for shared in (opml_blocks.SHARED, 0.0):
        monkeypatch.setattr(opml_blocks, "SHARED", shared)
        learner = OPML(1e-2, kernel="blocked")
        learner.learn(block(X, np.random.default_rng(1).permutation(index)))
        maps.append(learner.L)
    np.testing.assert_array_equal(maps[0], maps[1])


def test_a_block_that_would_lose_its_digits_is_done_sequentially(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same triplet again and again, at a scale where one step shrinks a distance to rounding."""
    taken: list[bool] = []
    step = opml_blocks._step

    def watched(*arguments: Any) -> bool:
        taken.append(step(*arguments))
        return taken[-1]

    monkeypatch.setattr(opml_blocks, "_step", watched)
    X = 1e6 * np.array([[0.0, 0.0], [1.0, 0.0], [0.1, 0.0]])
    message = block(X, np.tile([0, 1, 2], (40, 1)))
    maps = []
    for kernel in ("sequential", "blocked"):
        learner = OPML(1.0, kernel=kernel)
        learner.learn(message)
        maps.append(learner.L)
    assert taken == [False]
    np.testing.assert_array_equal(maps[0], maps[1])


def test_overflow_is_rejected_and_leaves_the_map() -> None:
    for kernel in ("sequential", "blocked"):
        learner = OPML(dtype="float32", kernel=kernel)
        X = np.array([[0.0, 0.0], [3e38, 0.0], [-3e38, 0.0], [1.0, 0.0], [0.0, 1.0]])
        index = np.array([[1, 2, 3], [0, 3, 4]] * 20)
        outcomes = learner.learn(block(X, index))
        assert outcomes.rejected.any() and outcomes.utilised.any()
        assert np.isfinite(learner.L).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_threads(dtype: str) -> None:
    states = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            learner = OPML(dtype=dtype, kernel="blocked")
            for message in triplet_blocks(3, 200, messages=2, m=130):
                learner.learn(message)
            states.append(learner.L.tobytes())
    assert len(set(states)) == 1


def test_the_thread_setting_is_put_back_by_the_last_one_out() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            with one_blas_thread():
                assert set(threads()) == {1}
            assert set(threads()) == {1}
        assert set(threads()) == {2}


def test_auto_is_decided_by_dimension_alone() -> None:
    for dtype, crossover in opml_blocks.CROSSOVER.items():
        for d, kernel in ((crossover - 1, "sequential"), (crossover, "blocked")):
            maps = []
            for way in ("auto", kernel):
                learner = OPML(dtype=str(dtype), kernel=way)
                learner.learn(triplet_blocks(1, d, 1, 70)[0])
                maps.append(learner.L.tobytes())
            assert maps[0] == maps[1]


def test_warm_up_leaves_nothing_to_compile() -> None:
    for dtype in ("float32", "float64"):
        warm_up("copml", {"dtype": dtype})
    kernels: tuple[Any, ...] = (opml.triplets, opml.pairs, opml.gather, opml.recursion)
    before = [len(kernel.signatures) for kernel in kernels]
    for dtype in ("float32", "float64"):
        for kernel in ("sequential", "blocked"):
            for message in triplet_blocks(2, 9):
                OPML(dtype=dtype, kernel=kernel).learn(message)
    assert [len(kernel.signatures) for kernel in kernels] == before
