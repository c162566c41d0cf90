"""Equal vectors stay equal, whatever the BLAS makes of a row's place in a product."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest

from kinstream.learners.kernels.equal_vectors import first_equal

DEGENERATE = """
import numpy as np
from tests.learners.published_unit import create

draw = np.random.default_rng(3)
for d in (5, 17, 33, 100):
    for dtype in ("float32", "float64"):
        for batch in (1, 3):
            learner = create("oahu", variant="published", dtype=dtype, batch=batch)
            T = draw.normal(size=(3, 40, d))
            learner.learn_triplets(*T)
            T[1:, 7:33] = T[0, 7:33]
            outcomes = learner.learn_triplets(*T)
            assert outcomes.degenerate[7:33].all(), (d, dtype, batch)
            assert (outcomes.margin[7:33] == 0.0).all(), (d, dtype, batch)
"""


def test_the_first_equal_vector_of_a_triplet() -> None:
    draw = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        X = draw.integers(-1, 2, (20, 2)).astype(dtype) * draw.choice([1.0, -1.0], (20, 1)).astype(dtype)
        index = draw.integers(0, 20, (300, 3)).astype(np.int32)
        wanted = [[next(m for m in range(3) if (X[t[m]] == X[t[n]]).all()) for n in range(3)] for t in index]
        assert first_equal(X, index).tolist() == wanted
        assert len({tuple(row) for row in wanted}) == 5
    assert first_equal(X, index[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    "kernels, needs", [("Haswell", "AVX2"), ("Nehalem", "SSE42"), ("SkylakeX", "AVX512_SKX")]
)
def test_three_equal_vectors_teach_nothing_under_any_blas(kernels: str, needs: str) -> None:
    # OpenBLAS would run the kernels that it is told to, and the process would end at the first unknown instruction.
    if not importlib.import_module("numpy._core._multiarray_umath").__cpu_features__[needs]:
        pytest.skip(f"this processor has no {needs}")
    done = subprocess.run(
        [sys.executable, "-c", DEGENERATE],
        env={**os.environ, "OPENBLAS_CORETYPE": kernels},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
