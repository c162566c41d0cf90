"""Positive semi-definite matrices, and pairs that suit them, for tests of learners that keep one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes, State
from kinstream.learners.forms.pairs import PairLearner
from tests.learners.transcriptions.parts import psd as psd

DIMENSIONS = (1, 2, 3, 17, 64)


class Setup(NamedTuple):
    """A matrix A (d, d) and a pair of difference z whose squared distance is about 1."""

    A: NDArray[np.float64]
    pair: NDArray[np.float64]
    sign: int

    @property
    def z(self) -> NDArray[np.float64]:
        return np.asarray(self.pair[0] - self.pair[1])

    @property
    def found(self) -> float:
        return float(self.z @ self.A @ self.z)

    def learn(self, learner: PairLearner, state: State) -> Outcomes:
        """Let a learner in a state learn the pair; A goes into the state, of the learner's type."""
        whole: State = {"accepted": 0, "A": self.A.astype(learner.dtype)}
        learner.restore(whole | state)
        return learner.learn_pairs(self.pair[:1], self.pair[1:], np.array([self.sign], np.int8))


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[np.float64]:
    """(d, d), of full or lower rank, with eigenvalues near each other, equal, or over many orders."""
    d = draw(st.sampled_from(DIMENSIONS))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(("near", "equal", "spread", "low rank")))
    e = random.uniform(0.1, 1.0, d) if kind != "equal" else np.ones(d)
    if kind == "spread":
        e = 10.0 ** random.uniform(-9, 0, d)
    if kind == "low rank":
        e *= random.permutation(d) >= draw(st.integers(0, d - 1))
    V = np.linalg.qr(random.normal(size=(d, d)))[0]
    A = (V * e) @ V.T
    return np.asarray((A + A.T) / 2.0)


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """Vectors of scale 1e-4 to 1e3, and a matrix in the inverse of their square."""
    A = draw(matrices())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pair = 10.0 ** draw(st.floats(-4, 3)) * random.normal(size=(2, len(A)))
    z = pair[0] - pair[1]
    wanted = 10.0 ** draw(st.floats(-1, 1))
    return Setup(A * (wanted / float(z @ A @ z)), pair, draw(st.sampled_from((1, -1))))


def is_psd(M: NDArray[Any], tolerance: float = 1e-10, size: float = 0.0) -> bool:
    """Symmetric to the bit, and without an eigenvalue below rounding, of the largest one or of `size`."""
    e = np.linalg.eigvalsh(M.astype(np.float64))
    return bool((M == M.T).all() and e[0] >= -tolerance * max(e[-1], size))
