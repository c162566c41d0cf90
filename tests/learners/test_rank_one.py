"""The eigendecomposition after a change of rank one is that of the changed matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.learners.kernels.matrices import rank_one

KINDS = ("apart", "equal", "zeros", "spread", "all but equal", "twice")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from((1, 2, 3, 17, 64)),
    st.sampled_from(KINDS),
    st.integers(0, 2**32 - 1),
    st.floats(-6, 6),
    st.floats(-6, 6),
    st.sampled_from((1.0, -1.0)),
    st.booleans(),
)
def test_it_is_the_eigendecomposition_of_the_changed_matrix(
    d: int, kind: str, seed: int, scale: float, size: float, sign: float, uneven: bool
) -> None:
    draw = np.random.default_rng(seed)
    values = {
        "apart": draw.normal(size=d),
        "equal": np.ones(d),
        "zeros": np.where(draw.uniform(size=d) < 0.5, 0.0, draw.uniform(size=d)),
        "spread": 10.0 ** draw.uniform(-12, 0, d),
        "all but equal": 1.0 + 1e-13 * draw.normal(size=d),
        "twice": np.repeat(draw.normal(size=d), 2)[:d],
    }[kind] * 10.0**scale
    E = np.ascontiguousarray(np.linalg.qr(draw.normal(size=(d, d)))[0])
    y = draw.normal(size=d) * (10.0 ** draw.uniform(-12, 0, d) if uneven else 1.0)
    sigma = sign * 10.0**size
    M = (E.T * values) @ E + sigma * np.outer(y, y)
    largest = max(np.abs(values).max(), abs(sigma) * (y @ y))
    space = rank_one.work(d, E.dtype)
    k, turns = rank_one.solve(values, E @ y, np.arange(d), d, sigma, 2.3e-16, space)
    rank_one.vectors(k, space)
    rank_one.turn(E, k, turns, space)
    rank_one.put(E, k, space)
    np.testing.assert_allclose((E.T * values) @ E, M, rtol=0, atol=3e-14 * largest)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(M), rtol=0, atol=3e-14 * largest)
    np.testing.assert_allclose(E @ E.T, np.eye(d), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [1, 3, rank_one.SMALL, rank_one.SMALL + 1, 64])
def test_changed_eigenvectors_are_the_product(k: int, dtype: str) -> None:
    draw, d = np.random.default_rng(k), 70
    E = draw.normal(size=(d, d)).astype(dtype)
    space, before, places = rank_one.work(d, E.dtype), E.copy(), draw.permutation(d)[:k]
    space[0][:k, :k], space[1][:k], space[3][:k] = draw.normal(size=(k, k)), E[places], places
    rank_one.put(E, k, space)
    wanted = before.astype(np.float64)
    wanted[places] = space[0][:k, :k].astype(np.float64) @ before[places].astype(np.float64)
    np.testing.assert_allclose(E, wanted, rtol=0, atol=1e-12 if dtype == "float64" else 1e-4)


def test_many_equal_eigenvalues_count_as_one() -> None:
    d = 40
    values = np.repeat([0.0, 2.0], (30, 10))
    space = rank_one.work(d, np.dtype(np.float64))
    k, turns = rank_one.solve(values, np.ones(d), np.arange(d), d, -0.1, 2.3e-16, space)
    assert (k, turns) == (2, 38)


def test_entries_that_take_no_part_are_left() -> None:
    values, w = np.array([5.0, 1.0, 7.0, 2.0]), np.ones(4)
    use = np.array([3, 1, 0, 0])
    k, _ = rank_one.solve(values, w, use, 2, 1.0, 2.3e-16, rank_one.work(4, w.dtype))
    assert k == 2
    assert (values[0], values[2]) == (5.0, 7.0)
    np.testing.assert_allclose(np.sort(values[[1, 3]]), np.linalg.eigvalsh([[2.0, 1.0], [1.0, 3.0]]))
