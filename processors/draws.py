"""Random choices that depend on what is chosen for and on nothing else.

A running generator would make them depend on what came before, so that a restart or a replay from the middle had to
know its past. Here the seed and the identity of an event are the key of a counter-based generator (Philox), and the
draw of a row is the number at its place in the stream of that key.

References
----------
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np

from streams.records import SampleBlock


def block_draws(algorithm: str, seed: int, block: SampleBlock, offset: int, count: int) -> list[int]:
    """The first `count` draws of a block, whole numbers in [0, 2^64).

    The key is made of algorithm, seed, space and the block's place in its load, or its offset where it has none.
    """
    place: list[str | int] = [offset] if block.load is None else [block.load.load_id, block.load.sequence]
    text = json.dumps([algorithm, seed, block.space, *place], separators=(",", ":"))
    key = np.frombuffer(blake2b(text.encode(), digest_size=16).digest(), dtype="<u8")
    draws: list[int] = np.random.Philox(key=key.astype(np.uint64)).random_raw(count).tolist()
    return draws


def below(draw: int, count: int) -> int:
    """A draw as an index among `count`. The bias is below count / 2^64."""
    return draw * count >> 64
