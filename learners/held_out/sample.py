"""A sample of the items that lists have shown, and how many there are."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.state import State

SAMPLED: Final = 512


class Sample:
    """The items with the least hashes: a uniform sample of the different ones, in any order of arrival.

    References
    ----------
    Bar-Yossef, Jayram, Kumar, Sivakumar, Trevisan: Counting distinct elements in a data stream. RANDOM 2002.

    Attributes
    ----------
    hashes : (s,) uint64, rising.
    vectors : (s, D) float32.
    """

    def __init__(self, d: int) -> None:
        self.hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.vectors: NDArray[np.float32] = np.zeros((0, d), np.float32)

    def after(self, hashes: NDArray[np.uint64], vectors: NDArray[np.float32]) -> Sample:
        """The sample with more items; this one does not change."""
        full = len(self.hashes) == SAMPLED
        fresh = hashes < self.hashes[-1] if full else np.ones(len(hashes), np.bool_)
        fresh &= ~np.isin(hashes, self.hashes)
        if not fresh.any():
            return self
        every, first = np.unique(np.concatenate([self.hashes, hashes[fresh]]), return_index=True)
        found = Sample(self.vectors.shape[1])
        found.hashes = every[:SAMPLED]
        found.vectors = np.concatenate([self.vectors, vectors[fresh]])[first[:SAMPLED]]
        return found

    @property
    def share(self) -> float:
        """How many different items one of the sample stands for."""
        if len(self.hashes) < SAMPLED:
            return 1.0
        return max(1.0, (SAMPLED - 1) / (float(self.hashes[-1]) / 2.0**64) / SAMPLED)

    def state(self) -> State:
        return {"hashes": self.hashes.copy(), "vectors": self.vectors.copy()}

    def restore(self, state: State) -> None:
        self.hashes = np.array(state["hashes"], np.uint64)
        self.vectors = np.array(state["vectors"], np.float32)
