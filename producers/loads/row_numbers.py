"""Seeded numbers for rows, which depend on the seed, the purpose and the row alone."""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

#: Numbers that Philox makes at each step of its counter.
_STEP = 4


def row_numbers(purpose: str, seed: int, start: int, stop: int) -> NDArray[np.uint64]:
    """One number of 64 random bits for each of the rows start..stop-1.

    The generator is counter-based (Philox), so the number of a row is found without those before it.
    """
    digest = blake2b(json.dumps([purpose, seed]).encode(), digest_size=16).digest()
    generator = np.random.Philox(key=np.frombuffer(digest, "<u8").astype(np.uint64), counter=start // _STEP)
    skip = start % _STEP
    return np.asarray(generator.random_raw(stop - start + skip), np.uint64)[skip:]
