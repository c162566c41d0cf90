"""The projection after a change of rank one is the dense one, whatever matrix and change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.kernels.matrices.eigenpair import negative_pair, subtract, work
from tests.learners.psd import is_psd, matrices, psd

EPS = {np.float64: 2.3e-16, np.float32: 1.2e-7}


def projected(A: NDArray[Any], c: float, z: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """psd(A - c z z') by the kernel, and whether it says that A changed."""
    found = A.copy()
    finite, changed = subtract(found, c, z, 1e300, work(len(A), A.dtype))
    assert finite
    return found, changed


def border(A: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    """The largest c that leaves A - c z z' positive semi-definite, were z projected on the range of A."""
    e, V = np.linalg.eigh(A)
    kept = e > 1e-12 * e[-1]
    return 1.0 / float(np.sum((V.T @ z)[kept] ** 2 / e[kept]))


@settings(max_examples=300, deadline=None)
@given(matrices(), st.integers(0, 2**32 - 1), st.floats(-4, 3), st.floats(-3, 3), st.booleans())
def test_it_is_the_dense_projection(
    A: NDArray[np.float64], seed: int, scale: float, share: float, in_range: bool
) -> None:
    z = 10.0**scale * np.random.default_rng(seed).normal(size=len(A))
    if in_range:
        z = A @ z
    c = 10.0**share * border(A, z)
    for dtype in (np.float64, np.float32):
        B, y = A.astype(dtype), z.astype(dtype)
        change = c * np.outer(y.astype(np.float64), y)
        found, changed = projected(B, c, y)
        wanted = psd(B.astype(np.float64) - change)
        assert is_psd(found, 600.0 * EPS[dtype], float(np.linalg.norm(A, 2)))
        assert changed == bool((found != B).any())
        # Dense eigenvalues are exact to a rounding of the change, which may be far larger than A.
        room = 600.0 * EPS[dtype] * np.linalg.norm(A, 2) + 20.0 * EPS[np.float64] * np.abs(change).max()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=room)


@pytest.mark.parametrize("d", [1, 2, 3, 17, 64])
def test_up_to_the_border_nothing_is_cut_off(d: int) -> None:
    draw = np.random.default_rng(d)
    G = draw.normal(size=(d, d))
    A, z = G @ G.T + 0.1 * np.eye(d), draw.normal(size=d)
    A = (A + A.T) / 2.0
    c = border(A, z)
    for share, leaves in ((1e-6, False), (0.5, False), (1 - 1e-6, False), (1 + 1e-6, True), (2.0, True)):
        mu, _, products = negative_pair(A, share * c, z, work(d, A.dtype))
        assert (mu > 0.0) == leaves
        assert products <= d


@pytest.mark.parametrize("d", [2, 3, 17, 64])
def test_a_step_without_end_leaves_the_part_that_is_orthogonal_to_z(d: int) -> None:
    """psd(A - c z z') has the limit (I - u u') A (I - u u'), u = z / |z|, and no digits are lost on the way."""
    draw = np.random.default_rng(d)
    G = draw.normal(size=(d, d))
    A, z = (G @ G.T + (G @ G.T).T) / 2.0, draw.normal(size=d)
    rest = np.eye(d) - np.outer(z, z) / (z @ z)
    found, _ = projected(A, 1e16, z)
    np.testing.assert_allclose(found, rest @ A @ rest, rtol=0, atol=1e-13 * np.abs(A).max())


def test_an_eigenvalue_that_is_negative_by_rounding_makes_a_small_step_no_larger() -> None:
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    A = (V * np.array([-1e-13, 0.0, 0.2, 0.5, 0.7, 1.0])) @ V.T
    A = (A + A.T) / 2.0
    z = V @ np.ones(6)
    found, changed = projected(A, 1e-15, z)
    assert changed
    np.testing.assert_allclose(found, A, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_changes_nothing_leaves_every_bit(dtype: Any) -> None:
    z = np.array([0.0, 2.0, 0.0], dtype)
    for A, c in ((np.zeros((3, 3), dtype), 0.3), (np.eye(3, dtype=dtype), 1e-30)):
        found, changed = projected(A, c, z)
        assert not changed
        assert found.tobytes() == A.tobytes()


def test_what_is_not_finite_is_refused() -> None:
    A = np.eye(2)
    for c, z in ((1e300, np.array([1e200, 1.0])), (np.inf, np.ones(2)), (np.nan, np.ones(2))):
        finite, changed = subtract(A, c, z, 1e300, work(2, A.dtype))
        assert not finite and not changed
        assert (np.eye(2) == A).all()


def test_a_long_stream_stays_symmetric_and_positive() -> None:
    draw = np.random.default_rng(3)
    d = 30
    for dtype in (np.float64, np.float32):
        space = work(d, np.dtype(dtype))
        A: NDArray[Any] = np.eye(d, dtype=dtype)
        for _ in range(3_000):
            z: NDArray[Any] = draw.normal(size=d).astype(dtype)
            A += np.outer(z, z) / d
            subtract(A, 2.0 / d, draw.normal(size=d).astype(dtype), 1e30, space)
        assert is_psd(A, 100.0 * EPS[dtype])


def test_products_are_far_fewer_than_dimensions() -> None:
    d = 300
    draw = np.random.default_rng(5)
    G = draw.normal(size=(d, 2 * d)) / np.sqrt(d)
    A = G @ G.T
    z = draw.normal(size=d)
    mu, gamma, products = negative_pair(A, 3.0 * border(A, z), z, work(d, A.dtype))
    assert mu > 0.0 and gamma > 0.0
    assert products < 60
