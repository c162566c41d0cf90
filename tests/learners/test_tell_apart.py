"""The quick look at differences, beside the sums that decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.kernels.several_modalities.modalities import _tell_apart, differences


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_one_entry_tells_vectors_apart_the_differences_are_the_plain_ones(dtype: type) -> None:
    draw = np.random.default_rng(5)
    told = kept = 0
    for _ in range(4_000):
        d = int(draw.integers(1, 6))
        length = 10.0 ** draw.integers(-30, 15)
        # Vectors next to each other, the same, and opposite ones.
        x = length * draw.normal(size=d)
        y, z = (
            x * draw.choice([1.0, -1.0, 0.0])
            + draw.choice([0.0, 1e-9, 1e-7, 1e-3, 1.0]) * length * draw.normal(size=d)
            for _ in range(2)
        )
        x, y, z = (one.astype(dtype) for one in (x, y, z))
        slow: NDArray[Any] = np.empty((2, d), dtype)
        quick: NDArray[Any] = np.empty((2, d), dtype)
        differences(x, y, z, *slow)
        if _tell_apart(x, y, z, *quick):
            told += 1
            assert quick.tobytes() == slow.tobytes()
        else:
            kept += 1
    assert told > 500
    assert kept > 500
